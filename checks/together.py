"""Tasks that begin at the same time, each with an output of its own."""

import reframe as rfm

from virtqual.job import together

# Tasks that ran together for a smaller share of their time hardly show how they slow each other.
MIN_OVERLAP = 0.8


class Together(rfm.RegressionTestPlugin):
    """A program that all tasks start at once. Goes before a :class:`~checks.base.Measurement`."""

    scripts = ("together.sh",)

    @run_after("setup")
    def run_together(self):
        """Begin together; one output of all tasks would mix their tables."""
        self.job.launcher.options.append("--output=task.%t.out")
        # They meet after their nodes were recorded, which takes as long as a short program.
        command = self.env_vars.get("VIRTQUAL_WITHIN", "")
        # ReFrame writes values into the job script as they are.
        self.env_vars["VIRTQUAL_WITHIN"] = f"'./together.sh {command}'"

    def outputs(self):
        """Return the output of each task."""
        return [self.stage_text(f"task.{rank}.out") for rank in range(self.num_tasks)]


def find_gaps(room, tasks):
    """Return why values of tasks that are added do not count; `room` has the notes of ``together.sh``."""
    overlap = together.compute_overlap(together.read(room, tasks))
    if overlap >= MIN_OVERLAP:
        return ()
    return (f"the tasks ran at the same time for {overlap:.0%} of the time, {MIN_OVERLAP:.0%} are needed",)
