"""Read what a job wrote down about itself, and refuse what does not hold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from virtqual.files import reading
from virtqual.identity import Host, Identity, Load, cpus, gather, readers
from virtqual.identity.load import COUNTERS, between, worst
from virtqual.stack import loaded
from virtqual.stack.loaded import LoadedSoftware

# By node and CPU: the hardware threads of its core.  A CPU that is not there is a core by itself.
Cores = Mapping[str, Mapping[int, frozenset[int]]]


#: Size of a note at most, B: a node with 8192 CPUs needs 2 MiB to say what it is.
MAX_NOTE_BYTES = 4 * 2**20
#: Digits of a count of the kernel at most: it has 64 bits.
_COUNT = re.compile(r"[0-9]{1,20}")


class NotesError(ValueError):
    """A note is missing or broken, or says that the run was not what was asked for."""


@dataclass(frozen=True)
class Task:
    """The place where a task ran: its rank, its node, and the CPUs that it could use there."""

    rank: int
    node: str
    cpus: frozenset[int]


@dataclass(frozen=True)
class Notes:
    """The notes of a run.

    Attributes
    ----------
    tasks
        The tasks, ordered by rank.
    begin, end
        Values that ``node.sh`` noted on the job's first node before and after the program.
    others
        The same for the other nodes, by the name of the node.
    seen
        The software that each node loaded, in the order of the nodes' first tasks.
    files
        Files that say what each node is, by the name of the node.
    """

    tasks: tuple[Task, ...]
    begin: dict[str, str]
    end: dict[str, str]
    seen: tuple[LoadedSoftware, ...] = ()
    others: Mapping[str, tuple[dict[str, str], dict[str, str]]] = field(default_factory=dict)
    files: Mapping[str, gather.NodeFiles] = field(default_factory=dict)

    @property
    def cores(self) -> Cores:
        """The cores of each node."""
        return {node: readers.cores(found) for node, found in self.files.items()}

    def load(self, nodes: Mapping[str, Identity]) -> Load:
        """Return the worst that any node had to bear during the run, given what each node was."""
        noted = {self.begin.get("node", ""): (self.begin, self.end), **self.others}
        return worst([self._of(name, *both, nodes) for name, both in noted.items()])

    def _of(
        self, name: str, begin: dict[str, str], end: dict[str, str], nodes: Mapping[str, Identity]
    ) -> Load:
        machine = nodes[name].boot if name in nodes else name
        # Nodes may be one machine in several network namespaces: its counters are theirs together.
        own = [task.cpus for task in self.tasks if nodes[task.node].boot == machine or task.node == name]
        return between(begin, end, len(frozenset[int]().union(*own)))

    @property
    def node_seconds(self) -> float:
        """Seconds between both notes, by the first node's clock.

        Raises
        ------
        NotesError
            The second note was written before the first: the clock was set back, or they are of two runs.
        """
        seconds = float(self.end["time"]) - float(self.begin["time"])
        if seconds < 0:
            raise NotesError(f"the program ended {-seconds:.3g} s before it began, by its node's clock")
        return seconds


def cpu_list(text: str) -> frozenset[int]:
    """Read a kernel CPU list of a note."""
    try:
        return cpus.cpu_list(text)
    except ValueError as error:
        raise NotesError(str(error)) from None


def text_of(path: Path) -> str:
    """Return the text of a note, which a virtual machine may have written.

    Raises
    ------
    NotesError
        The note cannot be read, is no regular file or is larger than `MAX_NOTE_BYTES`.
    """
    try:
        return reading.read_bytes(path, MAX_NOTE_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        raise NotesError(f"{path.name} cannot be read: {error.strerror}") from None


def read(stage: Path, tasks: int, job: str) -> Notes:
    """Read the notes of a finished run.

    Parameters
    ----------
    stage
        Stage directory of the run.
    tasks
        Number of tasks that were asked for.
    job
        The scheduler's id of the run's job.

    Raises
    ------
    NotesError
        A note is missing or broken, or another job's: the program did not run as asked.
    """
    started = read_tasks(stage, tasks, job)
    begin, end = (_note(stage / f"virtqual.{name}", "the job script", job) for name in ("begin", "end"))
    nodes = dict.fromkeys(task.node for task in started)
    seen = [_seen(stage, node) for node in nodes]
    # Its first node's name is that of the job script, where that could say it.
    others = [node for node in nodes if node != begin.get("node", next(iter(nodes)))]
    return Notes(
        started,
        begin,
        end,
        tuple(seen),
        {node: _both(stage, node, job) for node in others},
        {node: _files(stage, node) for node in nodes},
    )


def program_seconds(room: Path) -> float:
    """Return how long a warm-up's program ran in a directory, s, by the node of its first task.

    Without what the scheduler takes to launch it.  The clock has hundredths of a second: one is the least.

    Raises
    ------
    NotesError
        The first task did not note it.
    """
    file = room / "virtqual.took.0"
    text = text_of(file) if file.is_file() else ""
    if not (spans := re.findall(r"^(\d+\.\d+) (\d+\.\d+)$", text, re.M)):
        raise NotesError(f"the first task did not note how long its program took (no {file.name})")
    return max(sum(float(end) - float(begin) for begin, end in spans), 0.01)


def _both(stage: Path, node: str, job: str) -> tuple[dict[str, str], dict[str, str]]:
    what = f"the first task on {node}"
    begin, end = (_note(stage / f"virtqual.{name}.{node}", what, job) for name in ("begin", "end"))
    return begin, end


def _note(path: Path, what: str, job: str) -> dict[str, str]:
    if not path.is_file():
        name = path.name.split(".")[1]
        raise NotesError(f"{what} did not reach its {name} (no {path.name})")
    pairs = (line.partition("=") for line in text_of(path).splitlines())
    note = {key: value for key, _, value in pairs}
    if not {"time", "cpu_ticks"} <= note.keys():
        raise NotesError(f"{path.name} is not whole")
    _check_numbers(path, note)
    _of_job(path, note.get("job", ""), job)
    return note


def _check_numbers(path: Path, note: Mapping[str, str]) -> None:
    """Refuse a note whose numbers are none: the run's load is computed from them."""
    counts = [
        ("cpu_ticks", note["cpu_ticks"].split()[:8]),
        *((key, [note[key]]) for key in COUNTERS if key in note),
    ]
    for key, numbers in counts:
        if not numbers or not all(map(_COUNT.fullmatch, numbers)):
            raise NotesError(f"{path.name}: {key}={note[key][:60]!r} is no count")
    if not re.fullmatch(r"[0-9]{1,12}([.][0-9]{1,9})?", note["time"]):
        raise NotesError(f"{path.name}: time={note['time'][:60]!r} is no time")
    cpu_list(note.get("cpus_online", ""))


def _of_job(path: Path, noted: str, job: str) -> None:
    """Refuse the note of another job: two that shared a directory would be taken for each other."""
    if noted != job:
        raise NotesError(f"{path.name} was written by job {noted or 'none'}, and this run is job {job}")


def read_tasks(stage: Path, tasks: int, job: str) -> tuple[Task, ...]:
    """Read where the tasks of a step ran, by rank (parameters and errors as `read`)."""
    found: dict[int, Task] = {}
    for path in stage.glob("virtqual.task.*"):
        text = text_of(path)
        match = re.fullmatch(r"\s*([0-9]{1,9})\s+([^\s/]+)\s+(\S+)\s+(\S+)\s*", text)
        if not match:
            raise NotesError(f"{path.name} is broken: {text[:60]!r}")
        rank, node, bound, noted = match.groups()
        _of_job(path, noted, job)
        # A task that was not asked for is refused below.
        found[int(rank)] = Task(int(rank), node, cpu_list(bound if int(rank) < tasks else ""))
    if sorted(found) != list(range(tasks)):
        raise NotesError(
            f"{tasks} tasks were asked for, those that started have the ranks {sorted(found) or 'none'}; "
            "is the MPI library's launch option of srun right?"
        )
    return tuple(found[rank] for rank in range(tasks))


def _seen(stage: Path, node: str) -> LoadedSoftware:
    path = stage / f"virtqual.seen.{node}"
    if not path.is_file():
        raise NotesError(f"node {node} did not write which libraries it loads (no {path.name})")
    try:
        return loaded.parse(text_of(path), node)
    except loaded.IncompleteRecordError as error:
        raise NotesError(str(error)) from error


def _files(stage: Path, node: str) -> gather.NodeFiles:
    path = stage / f"virtqual.node.{node}"
    if not path.is_file():
        raise NotesError(f"node {node} did not write down what it is (no {path.name})")
    try:
        return gather.parse(text_of(path))
    except gather.GatherError as error:
        raise NotesError(f"{path.name}: {error}") from None


def identities(notes: Notes, host: Host | None) -> dict[str, Identity]:
    """Return what each node of a finished run was, by name, with the CPUs that the run used there.

    Parameters
    ----------
    notes
        Notes of the run.
    host
        Facts that only the hypervisor's host can tell, for virtual nodes.
    """
    used: dict[str, frozenset[int]] = {}
    for task in notes.tasks:
        used[task.node] = used.get(task.node, frozenset()) | task.cpus
    found = {}
    for node, own in used.items():
        try:
            identity = readers.read(notes.files[node], cpus.cpu_text(own))
        except ValueError as error:
            raise NotesError(f"virtqual.node.{node}: {error}") from None
        found[node] = identity.on(host) if host else identity
    return found


def check_binding(
    tasks: Sequence[Task], cpus_per_task: int, nodes: int, cores: Cores, *, whole_cores: bool = True
) -> None:
    """Verify that every task had CPUs of its own, as many as were asked for.

    Parameters
    ----------
    tasks
        The tasks of the run.
    cpus_per_task
        Cores that each task was to be bound to; CPUs, which are hardware threads, without `whole_cores`.
    nodes
        Nodes that the tasks were to be spread over.
    cores
        The cores of each node.
    whole_cores
        Whether a task may use one hardware thread of a core or all, and shares the core with no other.

    Raises
    ------
    NotesError
        A task may use another number of cores or CPUs, or shares one with another task of its node.
    """
    what = "cores" if whole_cores else "CPUs"
    taken: dict[tuple[str, frozenset[int]], int] = {}
    for task in tasks:
        of = cores.get(task.node, {}) if whole_cores else {}
        own = {of.get(cpu, frozenset({cpu})) for cpu in task.cpus}
        if len(own) != cpus_per_task:
            raise NotesError(
                f"task {task.rank} on {task.node} could use CPUs {sorted(task.cpus)}, which are {len(own)} "
                f"{what}, not {cpus_per_task} of its own: it was not bound as asked"
            )
        for core in own:
            other = taken.setdefault((task.node, core), task.rank)
            if other != task.rank:
                where = f"CPU {min(core)}" if len(core) == 1 else f"the core of CPUs {sorted(core)}"
                raise NotesError(f"tasks {other} and {task.rank} on {task.node} share {where}")
    used = {task.node for task in tasks}
    if len(used) != nodes:
        raise NotesError(f"the tasks ran on {len(used)} nodes ({', '.join(sorted(used))}), not on {nodes}")
