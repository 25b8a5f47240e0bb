"""Rules on a single run: the load on its nodes, and its share of communication."""

from __future__ import annotations

from collections.abc import Iterator

from virtqual.identity.load import Load
from virtqual.identity.record import seen, unseen
from virtqual.preflight.rules import Found, RunsOfCheck, rule
from virtqual.runs import Run
from virtqual.verdict.metric import Metrics


@rule("load", "steal")
def steal(load: Load, *, share: float) -> Iterator[str]:
    """CPU time that the hypervisor gave to other VMs or to its host."""
    if seen(load.steal) and load.steal > share:
        yield f"the hypervisor took {load.steal:.1%} of the CPU time, {share:.1%} are allowed"


@rule("load", "foreign-load")
def foreign_load(load: Load, *, cpus: float, cpu_seconds: float) -> Iterator[str]:
    """Work on the node that was not the run's: seen where the run leaves a CPU free."""
    if seen(load.foreign) and load.foreign > cpus and load.foreign * load.seconds > cpu_seconds:
        yield f"{load.foreign:.2f} CPUs were busy with other work, {cpus:g} are allowed"


@rule("load", "cpu-pressure")
def cpu_pressure(load: Load, *, share: float) -> Iterator[str]:
    """Tasks that waited for a CPU: a run with a task a CPU, alone on its node, has next to none."""
    if seen(load.waiting) and load.waiting > share:
        yield f"tasks waited for a CPU in {load.waiting:.0%} of the time, {share:.0%} are allowed"


@rule("load", "ballooning")
def ballooning(load: Load, *, pages: float, mib: float) -> Iterator[str]:
    """Memory that the hypervisor took away or gave back."""
    if seen(load.ballooned) and load.ballooned > pages:
        yield f"the balloon moved {load.ballooned} pages"
    if seen(load.memory_drift_mib) and abs(load.memory_drift_mib) > mib:
        yield f"the node's memory changed by {load.memory_drift_mib} MiB"


@rule("load", "swapping")
def swapping(load: Load, *, pages: float) -> Iterator[str]:
    """Pages that went to disk or came from it."""
    if seen(load.swapped) and load.swapped > pages:
        yield f"{load.swapped} pages were swapped"


@rule("run", "communication")
def communication(run: Run, all_runs: RunsOfCheck, metrics: Metrics, *, share: float) -> Found:
    """Little communication: a case that hardly waits for messages cannot see that they are late."""
    if run.side != "native" or run.communication is None:
        return
    if not seen(run.communication):
        yield unseen(f"{run.check}, share of communication: {run.communication.not_observable}")
    elif run.communication <= share:
        yield (
            f"{run.check} spent {run.communication:.1%} of its time in communication; more than "
            f"{share:.0%} are asked for"
        )
