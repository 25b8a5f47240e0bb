"""Questions and orders to Slurm outside ReFrame; each raises `SilentError` if Slurm does not answer."""

from __future__ import annotations

import datetime
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from virtqual.errors import InfrastructureError, UsageError
from virtqual.files import execute
from virtqual.site.options import list_added_options
from virtqual.site.systems import Partition

#: Variables that say which cluster is asked: where it is, and its name if there are several.
_CLUSTER_VARIABLES = {"SLURM_CONF", "SLURM_CLUSTERS"}
#: Variables of a shell that change the filters, columns and times that Slurm's commands print, or that put
#: labels before the lines of tasks and send them elsewhere.
_OUTPUT_VARIABLES = (
    *("SQUEUE_", "SINFO_", "SACCT_", "SLURM_TIME_FORMAT", "SLURM_LABELIO", "SLURM_UNBUFFEREDIO"),
    *("SLURM_STDINMODE", "SLURM_STDOUTMODE", "SLURM_STDERRMODE"),
)
#: Times as numbers: when clocks go back, an hour comes twice.
_NUMERIC_TIMES = {"SLURM_TIME_FORMAT": "%s"}
#: Time for an order to a busy controller. An order that is given up may be carried out all the same.
_ORDER_TIMEOUT_S = 300
_QUESTION_TIMEOUT_S = 20
#: Slurm's time of submission may differ by so much from ours; numbers of jobs may begin anew.
_SUBMISSION_TOLERANCE_S = 300
#: The script of an allocation's job. It ends after so many minutes without `send_heartbeat`: the session's
#: machine was booted, or Slurm's answer did not reach it. A signal is used, since nodes may cache files.
_ALLOCATION_SCRIPT = """trap silent=0 CONT
silent=0
while [ $silent -lt {minutes} ]; do
    sleep {seconds}
    silent=$((silent + 1))
done
"""
_ABANDONED_MINUTES = 20

#: Fields in a line of ``scontrol -o``, and values of those that are not set.
_FIELD = re.compile(r"(?:^|\s)([A-Za-z][\w/:]*)=(\S*)")
_UNSET = {"(null)", "N/A", "None", ""}

Answer = TypeVar("Answer")


class SilentError(InfrastructureError):
    """Slurm does not answer, or its command failed; a later attempt may succeed."""


class EndedError(InfrastructureError):
    """An allocation has ended, with a state in Slurm's word."""

    def __init__(self, job: str, state: str) -> None:
        super().__init__(f"Slurm says that allocation {job} is {state}")
        self.state = state


def retry_while_silent(ask: Callable[[], Answer], seconds: float, interval: float) -> Answer:
    """Return the answer to a question; ask every `interval` s, for `seconds`, while Slurm is silent."""
    end = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except SilentError:
            if time.monotonic() >= end:
                raise
        time.sleep(interval)


def environment(*, bare: bool = False) -> dict[str, str]:
    """Return this process's environment without its Slurm job and without settings of Slurm's output.

    Within a job `srun` would start a step on that job's nodes, and `sbatch` would hand the job's sizes on. A
    `bare` environment has no other settings of a shell either, such as loaded modules.
    """
    if bare:
        names = _CLUSTER_VARIABLES | execute.BASE_VARIABLES
        return {name: value for name, value in os.environ.items() if name in names}
    prefixes = _OUTPUT_VARIABLES + (("SLURM_",) if "SLURM_JOB_ID" in os.environ else ())
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(prefixes) or name in _CLUSTER_VARIABLES
    }


@dataclass(frozen=True)
class NodeState:
    """The state of a node with Slurm's marks, and the reason that Slurm keeps for it."""

    state: str
    reason: str | None = None

    def __str__(self) -> str:
        silent = " and does not answer" if self.state.endswith("*") else ""
        return f"{self.state.rstrip('*')}{silent}{f' ({self.reason})' if self.reason else ''}"


def choose_cluster(name: str) -> None:
    """Have every question of this process, and of those that it starts, go to a cluster by its name."""
    if name:
        os.environ["SLURM_CLUSTERS"] = name


def list_node_states(*partitions: str) -> dict[str, NodeState]:
    """Return the state of every node of Slurm's partitions; an empty name is that of the default."""
    names = ",".join(name or find_default_partition() for name in partitions)
    rows = list_rows("sinfo", "%N|%T|%E", "--Node", "-p", names)
    return {node: NodeState(state, None if reason == "none" else reason) for node, state, reason in rows}


def find_default_partition() -> str:
    """Return Slurm's default partition; raise `UsageError` if there is none."""
    lines = ask(["scontrol", "--all", "-o", "show", "partition"]).splitlines()
    for settings in map(parse_fields, lines):
        if settings.get("Default") == "YES":
            return settings["PartitionName"]
    raise UsageError("Slurm has no default partition: name one by --partition")


def list_licenses() -> list[str]:
    """Return the names of all licences."""
    return re.findall(r"\bLicenseName=(\S+)", ask(["scontrol", "-o", "show", "licenses"]))


def has_accounting() -> bool:
    """Return whether an accounting database keeps the jobs, so that `sacct` answers."""
    return read_setting("AccountingStorageType") not in (None, "accounting_storage/none")


def read_setting(name: str) -> str | None:
    """Return a setting of Slurm's configuration; None if Slurm has none of this name, or it is not set."""
    config = ask(["scontrol", "show", "config"])
    match = re.search(rf"^{name}[ \t]*=[ \t]*(\S+)", config, re.MULTILINE)
    return match[1] if match and match[1] != "(null)" else None


def check_scheduler() -> None:
    """Refuse a scheduler that never begins a job of two partitions."""
    scheduler = read_setting("SchedulerType")
    if scheduler not in (None, "sched/backfill"):
        raise InfrastructureError(
            f"Slurm begins no job of two partitions: its SchedulerType is {scheduler}, not sched/backfill. "
            "Leave extras.session_access out of the system file: each run is then a job"
        )


def allocate(partitions: Sequence[tuple[Partition, Sequence[str]]], session: str) -> str:
    """Ask for as many nodes of each partition as are named, for a whole session, and return the job's id.

    It is a heterogeneous job with a component for each partition: all begin together. It ends by itself if
    the session does not call `send_heartbeat` every few minutes.

    Raises
    ------
    InfrastructureError
        Slurm refused the job.
    """
    script = _ALLOCATION_SCRIPT.format(minutes=_ABANDONED_MINUTES, seconds=60)
    command = ["sbatch", "--parsable", f"--job-name=virtqual-{session}", f"--wrap={script}"]
    for number, (partition, nodes) in enumerate(partitions):
        command += [
            *([":"] if number else []),
            *partition.extras.session_access,
            *(f"--nodes={len(nodes)}", "--exclusive", *_list_added_options(partition)),
            # Slurm refuses a list of more nodes than it is asked for.
            *([f"--nodelist={','.join(nodes)}"] if "--nodelist" in partition.job_options else []),
            # The other nodes stay if one dies, and no second job is asked for.
            *("--no-kill", "--output=/dev/null", "--error=/dev/null"),
        ]
    try:
        output = ask(command, _ORDER_TIMEOUT_S)
    except SilentError as error:
        access = " : ".join(" ".join(partition.extras.session_access) for partition, _ in partitions)
        raise InfrastructureError(
            f"{error} (asked for the nodes of both partitions with extras.session_access: {access})"
        ) from error
    # A site's own sbatch may print notices first.
    if match := re.search(r"^(\d+)(;.*)?$", output.strip(), re.MULTILINE):
        return match[1]
    raise InfrastructureError(f"sbatch printed no number of a job: {output.strip()[-200:]!r}")


def _list_added_options(partition: Partition) -> list[str]:
    """Return the options that virtqual adds to the job of a session, whose script needs no variables."""
    return list_added_options(partition.job_options.keys(), {"--export", *partition.extras.omitted_options})


def send_heartbeat(allocation: str) -> None:
    """Tell a running allocation that its session lives, so that it does not end."""
    with suppress(SilentError):
        # Its steps, one of which may have stopped, get no signal.
        ask(["scancel", "--batch", "--signal=CONT", allocation])


def list_components(job: str) -> list[str]:
    """Return the components of a job in their order; raise `InfrastructureError` if Slurm names none."""
    rows = list_rows("squeue", "%i|%A", f"--jobs={job}", "--states=all")
    offsets = {component: int(name.partition("+")[2]) for name, component in rows if "+" in name}
    if not offsets:
        raise InfrastructureError(f"Slurm names no component of job {job}: has it ended?")
    return sorted(offsets, key=offsets.__getitem__)


def list_waiting_jobs(jobs: Collection[str]) -> dict[str, str]:
    """Return Slurm's reason for each job that does not run yet; raise `EndedError` if one has ended."""
    states, waiting = read_job_states(jobs), {}
    for job in jobs:
        state, reason = states.get(job, ("unknown to it", ""))
        if state not in ("PENDING", "CONFIGURING", "RUNNING"):
            raise EndedError(job, state)
        if state != "RUNNING":
            waiting[job] = reason
    return waiting


def list_pending_reasons(name: str) -> list[str]:
    """Return why this user's jobs of a name have not begun yet, in Slurm's words."""
    rows = list_rows("squeue", "%T|%r", "--me", f"--name={name}", "--states=PENDING,CONFIGURING")
    return [reason for state, reason in rows if state in ("PENDING", "CONFIGURING")]


def list_job_nodes(job: str) -> list[str]:
    """Return a running job's nodes in Slurm's order; raise `InfrastructureError` if there are none."""
    # By the id of the first component Slurm lists all.
    nodes = dict(list_rows("squeue", "%A|%N", f"--jobs={job}")).get(job)
    if not nodes:
        raise InfrastructureError(f"Slurm names no node of allocation {job}")
    return expand_nodes(nodes)


def cancel_jobs(submission_times: Mapping[str, float]) -> list[str]:
    """Cancel those of some jobs that wait or run, and return them; times are seconds since the epoch."""
    if not submission_times:
        return []
    # `--all` includes hidden partitions.
    active = [
        job
        for job, submitted in list_rows("squeue", "%A|%V", "--all", "--me")
        if job in submission_times
        and abs((_parse_time(submitted) or 0) - submission_times[job]) < _SUBMISSION_TOLERANCE_S
    ]
    if active:
        ask(["scancel", *active])
    return active


@contextmanager
def cancelled_after_an_error(name: str) -> Iterator[None]:
    """Cancel this user's jobs of a name if the code within ends with an error.

    An srun that is killed leaves its job in the queue.
    """
    try:
        yield
    except BaseException:
        with suppress(SilentError):
            ask(["scancel", f"--user={os.getuid()}", f"--name={name}"])
        raise


def end_steps(allocation: str, name: str | None = None) -> list[str]:
    """End the steps of an allocation that still run, or those of one name, and return them.

    Slurm's own steps (``batch``, ``extern``) stay.
    """
    rows = list_rows("squeue", "%i|%j", "--all", "--steps", f"--jobs={allocation}")
    steps = [step for step, step_name in rows if re.search(r"\.\d+$", step) and name in (None, step_name)]
    if steps:
        ask(["scancel", *steps])
    return steps


def read_job_states(jobs: Collection[str]) -> dict[str, tuple[str, str]]:
    """Return state and reason of those of some jobs that Slurm knows.

    A controller may lose what it had not saved.
    """
    if not jobs:
        return {}
    try:
        rows = list_rows("squeue", "%A|%T|%r", f"--jobs={','.join(jobs)}", "--states=all")
    except SilentError as error:
        # squeue fails on a single unknown job, and leaves an unknown job out of several.
        if "Invalid job id" in str(error):
            return {}
        raise
    return {job: (state, reason) for job, state, reason in rows}


@dataclass(frozen=True)
class Span:
    """Start and end of a job, seconds since the epoch, and the clock that measured them."""

    start: float
    end: float
    clock: str


def read_job_span(job: str, submitted: float, seen_done: float) -> Span:
    """Return start and end of a finished job by the clock of Slurm's controller, in whole seconds.

    Clocks of nodes are not comparable: a VM's may be seconds off. The times at which the caller submitted the
    job and saw it done sharpen Slurm's whole seconds, and replace them if Slurm does not answer.
    """
    try:
        description = ask(["scontrol", "-o", "show", "job", job])
    except SilentError:
        description = ""
    times = parse_fields(description)
    start, end = (_parse_time(times.get(key, "")) for key in ("StartTime", "EndTime"))
    if start is None or end is None:
        return Span(submitted, seen_done, "submission")
    # A busy controller may answer seconds after the job has started.
    start = min(max(start, submitted), start + 1)
    return Span(start, max(start, min(end + 1, seen_done)), "slurmctld")


def _parse_time(text: str) -> float | None:
    """Return one of Slurm's times in seconds since the epoch; None for ``Unknown`` and the like."""
    try:
        return float(text) if text.isdigit() else datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def expand_nodes(names: str) -> list[str]:
    """Return the nodes of a list such as ``vm[1-4]``."""
    return ask(["scontrol", "show", "hostnames", names]).split()


def parse_fields(line: str) -> dict[str, str]:
    """Return the fields of a line of ``scontrol -o`` that are set.

    The first field of a name counts: free text, such as a `Reason`, comes last and may look like fields.

    Examples
    --------
    >>> parse_fields("NodeName=n1 Gres=(null) RealMemory=8000 Reason=low RealMemory=7000 AllocTRES=")
    {'NodeName': 'n1', 'RealMemory': '8000', 'Reason': 'low'}
    """
    fields: dict[str, str] = {}
    for key, value in _FIELD.findall(line):
        fields.setdefault(key, value)
    return {key: value for key, value in fields.items() if value not in _UNSET}


def list_rows(command: str, columns: str, *options: str) -> list[list[str]]:
    """Return the rows of `squeue` or `sinfo`.

    A line without all columns is no row, nor is one whose first column has a blank: a site may print notices.
    """
    output = ask([command, "--noheader", *options, f"--format={columns}"])
    count = columns.count("|") + 1
    rows = [line.split("|", count - 1) for line in output.splitlines()]
    return [row for row in rows if len(row) == count and not re.search(r"\s", row[0].strip())]


def ask(command: Sequence[str], seconds: float = _QUESTION_TIMEOUT_S) -> str:
    """Return the output of a command of Slurm; raise `SilentError` with all that it said if it failed."""
    try:
        completed = execute.run(command, env=environment() | _NUMERIC_TIMES, seconds=seconds)
    except InfrastructureError as error:
        raise SilentError(str(error)) from error
    if completed.returncode:
        reason = execute.quote_errors(command[0], completed) or f"exit code {completed.returncode}"
        if "configuration source" in reason:
            reason += "; run this on a machine of the cluster"
        raise SilentError(f"{command[0]}: {reason}")
    return completed.stdout
