"""Repetitions of the program inside a run, so many that the run lasts long enough to be measured.

The warm-up on each side decides the number (``virtqual.harness.repetitions``), the same for both sides.
"""

from pathlib import Path

import reframe as rfm
from reframe.core.exceptions import SanityError

from virtqual.harness import repetitions
from virtqual.harness.repetitions import StartTime
from virtqual.job import notes
from virtqual.runs import Result

from . import counts

#: A warm-up starts its program again if the first start was short: that one may have read files from disk.
WARM_UP_STARTS = 2


class Repeated(rfm.RegressionTestPlugin):
    """Starts the program again and again in its job, each time in a directory of its own.

    Goes before :class:`~checks.sampled.Sampled`.
    """

    #: The warm-up decides how often a run starts the program; else it does so once.
    repeats = True
    #: Commands after the program that are part of every repetition.
    following = ()
    #: The times of a start in this warm-up, and in the warm-ups before it.
    start_times = ()
    #: The results of all starts of these warm-ups, as JSON: ReFrame may restore this test from its report.
    start_results = ()

    def choose_repetitions(self):
        """Decide how often this run starts its program."""
        self.following, self.timed = [], self.warm_up and self.repeats
        self.aim = repetitions.choose_aim(self.scale, self.partition_extras.get("run_seconds"))
        self.repetitions = self._count_starts()
        if self.timed:
            self.env_vars["VIRTQUAL_TIMED"] = "1"

    def _count_starts(self):
        if not self.repeats:
            return 1
        if self.warm_up:
            return WARM_UP_STARTS
        previous = self.previous_tests()
        if previous and not previous[0].warm_up:
            return previous[0].repetitions
        if count := repetitions.decided_starts.get((self.current_environ.name, self.case)):
            return count
        times = [StartTime(*time) for warm_up in previous for time in warm_up.start_times]
        starts = [results for warm_up in previous for results in warm_up.start_results]
        results = [[Result.model_validate_json(text) for text in start] for start in starts]
        for_clock = repetitions.count_for_clock(results, self.hypervisor_class or counts.stated_class())
        return repetitions.count_starts(times, self.aim, self.time_limit, for_clock)

    def repeat(self):
        """Put the loop around the program, within the notes of load."""
        commands = list(self.following)
        if self.repetitions > 1:
            numbers = " ".join(map(str, range(1, self.repetitions + 1)))
            self.prerun_cmds += [
                f"for repetition in {numbers}; do virtqual_repetition $repetition {self.job.stdout}"
            ]
            commands.append("virtqual_repeated $repetition")
            if self.warm_up:
                commands.append(f"if virtqual_took {self.aim}; then break; fi")
            commands.append("done")
        self.postrun_cmds = [*commands, *self.postrun_cmds]

    def rooms(self):
        """Return the directories in which the program ran, one for each repetition."""
        stage = Path(self.stagedir)
        further = [stage / f"repetition-{count}" for count in range(2, self.repetitions + 1)]
        # A warm-up stops after the first start if that was long enough.
        return [stage, *(room for room in further if not self.warm_up or room.is_dir())]

    def keep_time(self):
        """Keep the times of the last start of a warm-up, beside those of the other side's."""
        if not self.timed:
            return
        rooms = self.rooms()
        try:
            time = StartTime(notes.read_program_seconds(rooms[-1]), self.noted.node_seconds / len(rooms))
        except notes.NotesError as error:
            raise SanityError(str(error)) from error
        previous = self.previous_tests()
        own = [[result.model_dump_json() for result in results] for results in self.results_by_start]
        self.start_times = [*(time for test in previous for time in test.start_times), tuple(time)]
        self.start_results = [*(start for test in previous for start in test.start_results), *own]
