"""Repetitions of the program inside a run, so many that the run lasts long enough to be measured.

The warm-up on each side decides how many (``virtqual.harness.repetitions``), the same for both sides.
"""

from pathlib import Path

import reframe as rfm
from reframe.core.exceptions import SanityError

from virtqual.harness import repetitions
from virtqual.harness.repetitions import Took
from virtqual.job import notes

#: A warm-up starts its program again where the first start was short: that one may have read files from disk.
WARM_UP = 2


class Repeated(rfm.RegressionTestPlugin):
    """Starts the program again and again in its job, each time in a directory of its own.

    Goes before :class:`~checks.base.Sampled`.
    """

    #: Whether the warm-up decides how often; else every run starts the program once.
    repeats = True
    #: Commands after the program that are part of every repetition.
    following = ()
    #: Of a warm-up: what a start took there, and in the warm-ups before it.
    took = ()

    def choose_repetitions(self):
        """Decide how often this run starts its program, when the run before it has ended."""
        self.following, self.timed = [], self.warm_up and self.repeats
        self.wanted = repetitions.aim(self.known["scale"], self.known.get("run_seconds"))
        self.repetitions = self._number()
        if self.timed:
            self.env_vars["VIRTQUAL_TIMED"] = "1"

    def _number(self):
        if not self.repeats:
            return 1
        before = self.previous()
        if self.warm_up:
            return WARM_UP
        if before and not before[0].warm_up:
            return before[0].repetitions
        if known := repetitions.known(self.current_environ.name, self.case):
            return known
        took = [Took(*one) for warm_up in before for one in warm_up.took]
        return repetitions.number(took, self.wanted, self.time_limit)

    def repeat(self):
        """Put the loop around the program, within the notes of load."""
        if self.repetitions == 1:
            self.postrun_cmds = [*self.following, *self.postrun_cmds]
            return
        counted = " ".join(map(str, range(1, self.repetitions + 1)))
        enough = [f"if virtqual_took {self.wanted.least}; then break; fi"] if self.warm_up else []
        self.prerun_cmds += [
            f"for repetition in {counted}; do virtqual_repetition $repetition {self.job.stdout}"
        ]
        self.postrun_cmds = [
            *self.following,
            "virtqual_repeated $repetition",
            *enough,
            "done",
            *self.postrun_cmds,
        ]

    def rooms(self):
        """Return the directories in which the program ran, one for each repetition."""
        stage = Path(self.stagedir)
        further = [stage / f"repetition-{count}" for count in range(2, self.repetitions + 1)]
        # A warm-up stops where the first start was long enough.
        return [stage, *(room for room in further if not self.warm_up or room.is_dir())]

    def keep_time(self):
        """Keep what the last start of a warm-up took, beside what the other side's did."""
        if not self.timed:
            return
        rooms = self.rooms()
        try:
            own = Took(notes.read_program_seconds(rooms[-1]), self.noted.node_seconds / len(rooms))
        except notes.NotesError as error:
            raise SanityError(str(error)) from error
        self.took = [*(one for warm_up in self.previous() for one in warm_up.took), tuple(own)]
