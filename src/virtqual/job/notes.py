"""The notes that a job writes about its nodes and tasks, read and verified."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from virtqual.files import reading
from virtqual.files.wording import pluralize
from virtqual.identity import Host, Identity, Load, cpus, fabric, gather, readers
from virtqual.identity.load import COUNTERS, between, worst
from virtqual.stack import loaded
from virtqual.stack.loaded import LoadedSoftware

#: The hardware threads of the core of each CPU, by node and CPU.  A CPU that is missing is a core by itself.
Cores = Mapping[str, Mapping[int, frozenset[int]]]

#: Largest size of a note: a node with 8192 CPUs needs 2 MiB to describe itself.
MAX_NOTE_BYTES = 4 * 2**20
#: Ticks of a second in the kernel's start times of processes, on all processors that Linux has.
TICKS_PER_S = 100
# A count of the kernel, which has 64 bits.
_COUNT = re.compile(r"[0-9]{1,20}")
_SECONDS = re.compile(r"[0-9]{1,12}([.][0-9]{1,9})?")


class NotesError(ValueError):
    """A note is missing or broken, or shows that the run was not as requested."""


@dataclass(frozen=True)
class Task:
    """A task: its rank, its node, and the CPUs that it may use there."""

    rank: int
    node: str
    cpus: frozenset[int]


@dataclass(frozen=True)
class NodeNotes:
    """The notes of a node, which ``node.sh`` wrote before and after the program."""

    begin: Mapping[str, str]
    end: Mapping[str, str]


@dataclass(frozen=True)
class Notes:
    """The notes of a run: tasks by rank, and by node its notes, its software and the files that describe it.

    The node of the job script is the first of `nodes`; the order of `software` is that of first tasks.
    """

    tasks: tuple[Task, ...]
    nodes: Mapping[str, NodeNotes]
    software: tuple[LoadedSoftware, ...]
    files: Mapping[str, gather.NodeFiles]

    @property
    def first_node(self) -> NodeNotes:
        """The notes of the node of the job script."""
        return next(iter(self.nodes.values()))

    @property
    def cores(self) -> Cores:
        """The cores of each node."""
        return {node: readers.cores(files) for node, files in self.files.items()}

    @property
    def node_seconds(self) -> float:
        """Seconds between both notes, by the clock of the first node.

        Raises
        ------
        NotesError
            The clock was set back, or the notes are of two runs.
        """
        seconds = float(self.first_node.end["time"]) - float(self.first_node.begin["time"])
        if seconds < 0:
            raise NotesError(f"the program ended {-seconds:.3g} s before it began, by its node's clock")
        return seconds

    @property
    def shell_seconds(self) -> float:
        """Seconds from the start of the job script's shell to the first note; 0 if the note lacks them."""
        begin = self.first_node.begin
        if not {"uptime", "shell_ticks"} <= begin.keys():
            return 0.0
        return round(max(float(begin["uptime"]) - int(begin["shell_ticks"]) / TICKS_PER_S, 0.0), 2)

    def compute_load(self, identities: Mapping[str, Identity]) -> Load:
        """Return the worst load of any node during the run, given the identity of each node."""
        loads = []
        for name, notes in self.nodes.items():
            machine = identities[name].boot if name in identities else name
            # Several nodes can be one machine in network namespaces: they share its counters.
            own_cpus = [
                task.cpus for task in self.tasks if task.node == name or identities[task.node].boot == machine
            ]
            loads.append(between(notes.begin, notes.end, len(frozenset[int]().union(*own_cpus))))
        return worst(loads)


def parse_cpu_list(text: str) -> frozenset[int]:
    """Return the CPUs of a kernel's list in a note."""
    try:
        return cpus.cpu_list(text)
    except ValueError as error:
        raise NotesError(str(error)) from None


def read_note_text(path: Path, absence: str) -> str:
    """Return the text of a note.

    Raises
    ------
    NotesError
        There is no such note, which `absence` explains; or it cannot be read, is no regular file or is larger
        than `MAX_NOTE_BYTES`.
    """
    if not path.exists():
        raise NotesError(f"{absence} (no {path.name})")
    try:
        return reading.read_bytes(path, MAX_NOTE_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        raise NotesError(f"{path.name} cannot be read: {error.strerror}") from None


def read(stage: Path, tasks: int, job: str) -> Notes:
    """Read the notes of a finished run of a number of tasks in a job, by Slurm's id.

    Raises
    ------
    NotesError
        A note is missing, broken, or of another job.
    """
    tasks_by_rank = read_tasks(stage, tasks, job)
    names = list(dict.fromkeys(task.node for task in tasks_by_rank))
    first_node = _read_node_notes(stage, "", "the job script", job)
    # The job script runs on the first node, and cannot always note its name.
    nodes = {first_node.begin.get("node", names[0]): first_node}
    for name in names:
        if name not in nodes:
            nodes[name] = _read_node_notes(stage, f".{name}", f"the first task on {name}", job)
    software, files = [], {}
    for name in names:
        seen = read_note_text(stage / f"virtqual.seen.{name}", f"node {name} did not note its software")
        node = read_note_text(stage / f"virtqual.node.{name}", f"node {name} did not note its identity")
        try:
            software.append(loaded.parse(seen, name))
            files[name] = gather.parse(node)
        except loaded.IncompleteRecordError as error:
            raise NotesError(str(error)) from error
        except gather.GatherError as error:
            raise NotesError(f"virtqual.node.{name}: {error}") from None
    return Notes(tasks=tasks_by_rank, nodes=nodes, software=tuple(software), files=files)


def _read_node_notes(stage: Path, suffix: str, writer: str, job: str) -> NodeNotes:
    notes = []
    for moment in ("begin", "end"):
        path = stage / f"virtqual.{moment}{suffix}"
        text = read_note_text(path, f"{writer} did not reach its {moment}")
        note = dict(line.partition("=")[::2] for line in text.splitlines())
        _check_note(path, note, job)
        notes.append(note)
    return NodeNotes(*notes)


def _check_note(path: Path, note: Mapping[str, str], job: str) -> None:
    """Refuse a note that is not complete, is of another job, or has a value that is no number."""
    if not {"time", "cpu_ticks"} <= note.keys():
        raise NotesError(f"{path.name} is not whole")
    counts = {"cpu_ticks": note["cpu_ticks"].split()[:8]}
    counts |= {key: [note[key]] for key in (*COUNTERS, "shell_ticks") if key in note}
    for key, numbers in counts.items():
        if not numbers or not all(map(_COUNT.fullmatch, numbers)):
            raise NotesError(f"{path.name}: {key}={note[key][:60]!r} is no count")
    for key in {"time", "uptime"} & note.keys():
        if not _SECONDS.fullmatch(note[key]):
            raise NotesError(f"{path.name}: {key}={note[key][:60]!r} is no time")
    parse_cpu_list(note.get("cpus_online", ""))
    _check_job(path, note.get("job", ""), job)


def _check_job(path: Path, writer: str, job: str) -> None:
    """Refuse the note of another job, which had the same directory."""
    if writer != job:
        raise NotesError(f"{path.name} was written by job {writer or 'none'}, and this run is job {job}")


def read_tasks(stage: Path, tasks: int, job: str) -> tuple[Task, ...]:
    """Return the tasks of a step by rank; see `read`."""
    tasks_by_rank: dict[int, Task] = {}
    for path in stage.glob("virtqual.task.*"):
        text = read_note_text(path, "a task lost its note")
        match = re.fullmatch(r"\s*([0-9]{1,9})\s+([^\s/]+)\s+(\S+)\s+(\S+)(?:\s+\S+)?\s*", text)
        if not match:
            raise NotesError(f"{path.name} is broken: {text[:60]!r}")
        rank, node, bound_cpus, writer = int(match[1]), *match.groups()[1:]
        _check_job(path, writer, job)
        # The CPUs of a surplus task are of no interest: it is refused below.
        tasks_by_rank[rank] = Task(rank, node, parse_cpu_list(bound_cpus if rank < tasks else ""))
    if sorted(tasks_by_rank) != list(range(tasks)):
        raise NotesError(
            f"{tasks} tasks were asked for, those that started have the ranks "
            f"{sorted(tasks_by_rank) or 'none'}; is the MPI library's launch option of srun right?"
        )
    return tuple(tasks_by_rank[rank] for rank in range(tasks))


def read_program_seconds(directory: Path) -> float:
    """Return the run time of a program without its launch, in seconds by the node of its first task.

    The clock has a resolution of 0.01 s, which is the least that is returned.

    Raises
    ------
    NotesError
        The first task did not note the time.
    """
    path, absence = directory / "virtqual.took.0", "the first task did not note how long its program took"
    spans = re.findall(r"^(\d+\.\d+) (\d+\.\d+)$", read_note_text(path, absence), re.M)
    if not spans:
        raise NotesError(f"{absence}: {path.name} has no time")
    return max(sum(float(end) - float(begin) for begin, end in spans), 0.01)


def identify_nodes(notes: Notes, host: Host | None, rdma_options: Sequence[str] = ()) -> dict[str, Identity]:
    """Return the identity of each node by name, with the CPUs of the run and the facts of a VM's host.

    `rdma_options` are those of the partition, which name the port that messages take.
    """
    identities = {}
    for node in dict.fromkeys(task.node for task in notes.tasks):
        own_cpus = frozenset[int]().union(*(task.cpus for task in notes.tasks if task.node == node))
        try:
            identity = readers.read(notes.files[node], cpus.cpu_text(own_cpus))
        except gather.GatherError as error:
            raise NotesError(f"virtqual.node.{node}: {error}") from None
        identity = fabric.use_port(identity, rdma_options)
        identities[node] = identity.on(host) if host else identity
    return identities


def check_binding(
    tasks: Sequence[Task], cpus_per_task: int, nodes: int, cores: Cores, *, whole_cores: bool = True
) -> None:
    """Verify that each task had the requested number of cores for itself, and the number of nodes.

    With `whole_cores` a task may use some or all hardware threads of a core. Without it, CPUs (hardware
    threads) are counted, not cores.

    Raises
    ------
    NotesError
        A task could use another number of cores or CPUs, or shares one, or the number of nodes is another.
    """
    unit = "cores" if whole_cores else "CPUs"
    owners: dict[tuple[str, frozenset[int]], int] = {}
    for task in tasks:
        node_cores = cores.get(task.node, {}) if whole_cores else {}
        task_cores = {node_cores.get(cpu, frozenset({cpu})) for cpu in task.cpus}
        if len(task_cores) != cpus_per_task:
            raise NotesError(
                f"task {task.rank} on {task.node} could use CPUs {sorted(task.cpus)}, which are "
                f"{len(task_cores)} {unit}, not {cpus_per_task} of its own: it was not bound as asked"
            )
        for core in task_cores:
            owner = owners.setdefault((task.node, core), task.rank)
            if owner != task.rank:
                place = f"CPU {min(core)}" if len(core) == 1 else f"the core of CPUs {sorted(core)}"
                raise NotesError(f"tasks {owner} and {task.rank} on {task.node} share {place}")
    used_nodes = {task.node for task in tasks}
    if len(used_nodes) != nodes:
        raise NotesError(
            f"the tasks ran on {pluralize(len(used_nodes), 'node')} ({', '.join(sorted(used_nodes))}), not "
            f"on {nodes}"
        )
