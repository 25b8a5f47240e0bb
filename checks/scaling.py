"""Strong scaling: one problem on more and more processes of the same nodes, as one curve."""

import math
from pathlib import Path

import reframe as rfm

from virtqual.job import notes
from virtqual.programs.text import OutputError
from virtqual.runs import Result

from . import counts


class Scaling(rfm.RegressionTestPlugin):
    """A program run once for each number of processes, in one job; its rating over processes is the metric.

    Goes before a :class:`~checks.base.Measurement`.  The subclass sets ``nodes`` to ``counts.nodes()``, the
    most that it takes, puts the commands of `spread` before its own run, and reads a run in `rating`.  The
    run on all processes is the job's own; each of the others goes before it, in a directory of its own.
    """

    #: The metric, a curve over processes.
    metric = ""
    #: The problem, as the setting names it.
    problem = ""
    #: The most processes that the problem can be divided among, as a power of two; None for any number.
    max_processes = None
    #: Its job starts the program many times, and notes the load of the largest run alone.
    repeats = False

    def rating(self, directory, text, processes):
        """Return runs a day of a finished run, or raise an error if it does not count."""
        raise NotImplementedError

    def count_nodes(self):
        """Return the nodes that the most processes take: 4 processes take 4 of 5 nodes."""
        most = counts.processes(small="small" in counts.scales(), most=self.max_processes)[-1]
        return math.ceil(most / math.ceil(most / counts.nodes()))

    def spread(self):
        """Place all processes; return the commands that run fewer, on as many nodes as there are for them."""
        *smaller, self.num_tasks = self.points = counts.processes(small=self.small, most=self.max_processes)
        self.num_tasks_per_node = math.ceil(self.num_tasks / self.nodes)
        launch, commands = self.launch_command(), []
        for processes in smaller:
            nodes = min(processes, self.nodes)
            width = f"--nodes={nodes} --ntasks={processes} --ntasks-per-node={math.ceil(processes / nodes)}"
            if self.named_nodes:
                width += f" --nodelist={','.join(self.named_nodes[:nodes])}"
            run = " ".join([launch, width, "./task.sh", self.executable, *self.executable_opts])
            room = f"processes-{processes}"
            # The run has notes and outputs of its own; all other files are the job's.
            commands.append(f"mkdir {room} && (cd {room} && ln -s ../* . && {run} > output)")
        return commands

    def read(self):
        """Read every run, and return the curve."""
        stage, values = Path(self.stagedir), {}
        for processes in self.points:
            room, output = stage, self.job.stdout
            if processes < self.num_tasks:
                room, output = stage / f"processes-{processes}", f"processes-{processes}/output"
                tasks = notes.read_tasks(room, processes, str(self.job.jobid))
                self.check_binding(tasks, min(processes, self.nodes))
            text = self.stage_text(output)
            try:
                values[processes] = self.rating(room, text, processes)
            except OutputError as error:
                raise OutputError(self.program["name"], f"on {processes} processes: {error}") from error
        nodes = f"{self.nodes} nodes" if self.nodes > 1 else "one node"
        return [Result.curve(self.metric, f"{self.problem}, {nodes}", values)]
