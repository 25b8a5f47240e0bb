"""The questions and orders to Slurm that do not pass through ReFrame."""

from __future__ import annotations

import datetime
import itertools
import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from virtqual.errors import InfrastructureError
from virtqual.files import execute
from virtqual.site.systems import Partition

#: Where the cluster is, which jobs need to know as everybody does.
KEPT = {"SLURM_CONF"}
#: Settings of a shell that make Slurm's commands answer otherwise: filters, columns, forms of times.
_OTHERWISE = ("SQUEUE_", "SINFO_", "SACCT_", "SLURM_TIME_FORMAT")
#: Times as numbers: in the night when clocks go back an hour comes twice.
TIMES = {"SLURM_TIME_FORMAT": "%s"}
#: What any program may need, whoever starts it.
EVERYBODY_S = {"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TZ", "USER"}


Answer = TypeVar("Answer")


class SilentError(InfrastructureError):
    """Slurm has not answered, or not what it was asked: asked again it may."""


def patiently(ask: Callable[[], Answer], seconds: float, pause: float) -> Answer:
    """Return what Slurm answers to a question, or order, that is put again while its controller is silent.

    Parameters
    ----------
    ask
        The question.
    seconds
        After how long silence is an error.
    pause
        Seconds between two attempts.

    Raises
    ------
    SilentError
        Slurm was silent for that long.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except SilentError:
            if time.monotonic() >= end:
                raise
        time.sleep(pause)


def environment(*, bare: bool = False) -> dict[str, str]:
    """Return this process's environment without the Slurm job that it runs in, or how Slurm is to answer.

    Parameters
    ----------
    bare
        Without all else that a person's shell has set, too, such as loaded modules: no run depends on it.

    Notes
    -----
    Within a job ``srun`` starts a step on that job's nodes, and ``sbatch`` hands that job's sizes on.
    """
    if bare:
        return {name: value for name, value in os.environ.items() if name in KEPT | EVERYBODY_S}
    left_out = _OTHERWISE + (("SLURM_",) if "SLURM_JOB_ID" in os.environ else ())
    return {
        name: value for name, value in os.environ.items() if not name.startswith(left_out) or name in KEPT
    }


def partition_option(partition: Partition) -> str | None:
    """Return the name of Slurm's partition from the options that jobs ask with."""
    return next(_values(partition, "-p", "--partition"), None)


def chosen(partition: Partition, nodes: Iterable[str]) -> set[str]:
    """Return those of a partition's nodes that jobs may get, by the names that they ask for.

    Raises
    ------
    SilentError
        Slurm does not answer which nodes a list of names means.
    """
    found = set(nodes)
    for option, taken in (("-w", "--nodelist"), ("-x", "--exclude")):
        for names in _values(partition, option, taken):
            listed = set(_ask(["scontrol", "show", "hostnames", names]).split())
            found = found & listed if option == "-w" else found - listed
    return found


def _values(partition: Partition, short: str, long: str) -> Iterator[str]:
    """Yield the values of an option that jobs ask with."""
    words = _words(partition)
    yield from (value for option, value in itertools.pairwise(words) if option in (short, long))
    yield from (word[2:] for word in words if re.match(rf"{short}\w", word))


def asks_for_reservation(partition: Partition) -> bool:
    """Return whether jobs ask for a reservation."""
    return "--reservation" in _words(partition)


def names_nodes(partition: Partition) -> bool:
    """Return whether jobs ask for some of the partition's nodes only, by their names or their features."""
    options = ("-w", "--nodelist", "-x", "--exclude", "-C", "--constraint", "-F", "--nodefile")
    return any(word in options or re.match(r"-[wxCF]\w", word) for word in _words(partition))


def _words(partition: Partition) -> list[str]:
    """Return the options that a session's jobs ask with, names and values apart."""
    asked = partition.session_options or partition.options
    return [
        word for option in asked for word in (option.split("=", 1) if option.startswith("-") else [option])
    ]


@dataclass(frozen=True)
class NodeState:
    """The state of a node with Slurm's marks, and the reason that somebody gave for it."""

    state: str
    reason: str

    def __str__(self) -> str:
        return f"{self.state.rstrip('*')}{f': {self.reason}' if self.reason else ''}"


def states(*partitions: str) -> dict[str, NodeState]:
    """Return what Slurm says of every node of some partitions, in one question.

    Raises
    ------
    InfrastructureError
        Slurm does not answer.
    """
    line = ["sinfo", "--noheader", "--Node", "-p", ",".join(partitions), "-o", "%N|%T|%E"]
    rows = _ask(line).splitlines()
    found = (row.split("|", 2) for row in rows if row.count("|") >= 2)
    return {node: NodeState(state, "" if reason == "none" else reason) for node, state, reason in found}


#: The script of an allocation's job.  Whoever holds it writes something new into a file every minute; where
#: nothing new comes, because its machine was booted or Slurm's answer did not reach it, the nodes are given
#: back.
_HELD = """file={file} quiet=0
[ -e "$file" ] || exec sleep infinity
while [ $quiet -lt {minutes} ]; do
    sleep {seconds}
    now=$(cat "$file" 2> /dev/null)
    if [ "$now" = "$before" ]; then quiet=$((quiet + 1)); else quiet=0; fi
    before=$now
done
"""
#: Minutes without a sign of life after which an allocation ends.
ABANDONED = 20
#: Seconds for an order to a controller that is busy: if it is given up, the job may be queued all the same.
ORDERED = 300


def allocate(partition: Partition, name: str, nodes: int, alive: Path) -> str:
    """Ask for so many nodes of a partition, for a whole session; return the job's id.

    Parameters
    ----------
    partition
        Of which partition.
    name
        Of the job.
    nodes
        How many.
    alive
        A file whose content changes as long as the session lives; see `ABANDONED`.

    Raises
    ------
    InfrastructureError
        Slurm refused it.
    """
    line = [
        "sbatch",
        "--parsable",
        f"--job-name={name}",
        *partition.session_options,
        f"--nodes={nodes}",
    ]
    # A node that dies must not take those that are left with it, and nobody asks for it a second time.
    line += ["--exclusive", "--mem=0", "--no-kill", "--no-requeue", "--output=/dev/null", "--error=/dev/null"]
    script = _HELD.format(file=shlex.quote(str(alive)), minutes=ABANDONED, seconds=60)
    try:
        said = _ask([*line, f"--wrap={script}"], ORDERED)
    except SilentError as error:
        asked = " ".join(partition.extras.session_access)
        raise InfrastructureError(
            f"partition {partition.name}: {error} (asked with extras.session_access: {asked})"
        ) from error
    # Before it a site's own sbatch may say what it likes.
    if number := re.search(r"^(\d+)(;.*)?$", said.strip(), re.MULTILINE):
        return number[1]
    raise InfrastructureError(f"sbatch: said no number of a job: {said.strip()[-200:]!r}")


#: Options of ``squeue``: ids of jobs, also of those that have ended not long ago.
_IDS = ("--states=all", "--format=%i")


class EndedError(InfrastructureError):
    """An allocation has ended.

    Parameters
    ----------
    job
        Its id.
    state
        Its state in Slurm's word.
    """

    def __init__(self, job: str, state: str) -> None:
        super().__init__(f"Slurm says that allocation {job} is {state}")
        self.state = state


def waiting(jobs: Iterable[str]) -> dict[str, str]:
    """Return those of some jobs that do not run yet, and why in Slurm's own word, such as ``Priority``.

    Raises
    ------
    EndedError
        One of them has ended.
    SilentError
        Slurm does not answer.
    """
    if not (asked := list(jobs)):
        return {}
    said = _ask(["squeue", "--noheader", f"--jobs={','.join(asked)}", "--states=all", "--format=%i|%T|%r"])
    rows = (row.split("|", 2) for row in said.splitlines() if row.count("|") >= 2)
    known = {job: (state, why) for job, state, why in rows}
    found = {}
    for job in asked:
        state, why = known.get(job, ("unknown to it", ""))
        if state not in ("PENDING", "CONFIGURING", "RUNNING"):
            raise EndedError(job, state)
        if state != "RUNNING":
            found[job] = why
    return found


def nodes_of(job: str) -> list[str]:
    """Return the names of a running job's nodes, in Slurm's order.

    Raises
    ------
    InfrastructureError
        Slurm does not answer, or knows no nodes of the job.
    """
    listed = _ask(["squeue", "--noheader", f"--jobs={job}", "--format=%N"]).strip()
    if not listed:
        raise InfrastructureError(f"Slurm says of no node that allocation {job} has it")
    return _ask(["scontrol", "show", "hostnames", listed]).split()


#: Seconds by which Slurm's time of submission and ours may differ; numbers of jobs may begin anew.
SAME_TIME = 300


def cancel(jobs: Mapping[str, float]) -> list[str]:
    """Cancel those of some jobs that Slurm still knows as waiting or running, and return them.

    Parameters
    ----------
    jobs
        By id: when the job was submitted, seconds since the epoch.

    Raises
    ------
    InfrastructureError
        Slurm does not answer.
    """
    if not jobs:
        return []
    # `--all`: a partition may be hidden.
    line = ["squeue", "--noheader", "--all", "--me", "--format=%i %V"]
    rows = (row.split() for row in _ask(line).splitlines())
    active = [
        job
        for job, submitted in (row for row in rows if len(row) == 2)
        if job in jobs and _about(submitted, jobs[job])
    ]
    if active:
        _ask(["scancel", *active])
    return active


def end_steps(allocation: str, name: str = "") -> list[str]:
    """End the steps of an allocation that still run, or those of one name; return which they were.

    Slurm's own (``batch``, ``extern``) are none of them.

    Raises
    ------
    SilentError
        Slurm does not answer.
    """
    line = ["squeue", "--noheader", "--all", "--steps", f"--jobs={allocation}", "--format=%i|%j"]
    rows = (row.partition("|") for row in _ask(line).splitlines())
    steps = [step for step, _, called in rows if re.search(r"\.\d+$", step) and name in ("", called)]
    if steps:
        _ask(["scancel", *steps])
    return steps


def seconds(text: str) -> float:
    """Return one of Slurm's times in seconds since the epoch; ``ValueError`` for ``Unknown`` and the like."""
    return float(text) if text.isdigit() else datetime.datetime.fromisoformat(text).timestamp()


def _about(submitted: str, ours: float) -> bool:
    try:
        return abs(seconds(submitted) - ours) < SAME_TIME
    except ValueError:
        return False


def forgotten(jobs: Iterable[str]) -> set[str]:
    """Return those of some jobs, or of the jobs that steps are of, that Slurm answers not to know.

    A controller may lose what it had not saved.
    """
    asked = {job.partition(".")[0] for job in jobs}
    if not asked:
        return set()
    # Of a single job that it does not know, squeue ends with an error; of several it leaves that one out.
    try:
        line = ["squeue", "--noheader", f"--jobs={','.join(sorted(asked))}", *_IDS]
        done = execute.run(line, env=environment(), seconds=20)
    except InfrastructureError:
        return set()
    if done.returncode and "Invalid job id" not in done.stdout + done.stderr:
        return set()
    return asked - set(done.stdout.split())


def _ask(command: Sequence[str], seconds: float = 20) -> str:
    """Return what a command of Slurm printed; one that waits for a controller gives up by itself.

    Raises
    ------
    SilentError
        The command failed; the message holds its last words.
    """
    try:
        done = execute.run(command, env=environment() | TIMES, seconds=seconds)
    except InfrastructureError as error:
        raise SilentError(str(error)) from error
    if done.returncode:
        why = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        raise SilentError(f"{command[0]}: {why[-1]}")
    return done.stdout
