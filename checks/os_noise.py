"""Noise (fixed_work): how much longer a fixed piece of work takes now and then, on all cores at once."""

from virtqual.files.wording import pluralize
from virtqual.programs import fixed_work
from virtqual.runs import Result

from . import overhead
from .asked import as_asked
from .base import Measurement

#: About a millisecond of work on a current core; emulated cores are some twenty times slower.
STEPS = {"small": 40_000, "standard": 700_000}
PIECES = {"small": 2_000, "standard": 10_000}
MAX_ONE_IN = 100_000


@overhead.simple_test
class os_noise(Measurement):
    """One thread a core, once a run: a mean of repetitions would hide the rare disturbance."""

    descr = "noise: times of a fixed piece of work"
    feature = "fixed-work"
    repeats = False
    tags = {"noise", "quick", "full"}

    def arrange(self):
        """One task with all cores."""
        self.num_cpus_per_task = self.cores
        self.bind_to_threads()
        self.steps, self.pieces = STEPS[self.scale], PIECES[self.scale]
        self.executable_opts = [str(self.steps), str(self.pieces)]

    def read(self):
        """Assert steps, pieces and cores; then take the mean, and the times that one piece in N exceeds."""
        run = fixed_work.parse(self.output())
        as_asked(
            "fixed_work",
            steps=(run.steps, self.steps),
            pieces=(run.pieces, self.pieces),
            cores=(len(run.means), self.cores),
        )
        setting = pluralize(self.cores, "core")
        mean = sum(run.means.values()) / len(run.means)
        # Little is known of a time that fewer than ten pieces exceed.
        rarest = min(self.cores * self.pieces // 10, MAX_ONE_IN)
        tail = {one_in: time for one_in, time in run.exceeded.items() if one_in <= rarest}
        return [Result.scalar("work_mean", setting, mean), Result.curve("work_tail", setting, tail)]
