"""Rules on a single run: the load on its nodes, and its share of communication."""

from __future__ import annotations

from collections.abc import Iterator

from virtqual.identity.load import Load
from virtqual.identity.record import NotObservable, seen
from virtqual.preflight.rules import Found, Limits, rule
from virtqual.runs import Run


@rule("load", "steal", "share")
def steal(load: Load, limits: Limits) -> Iterator[str]:
    """CPU time that the hypervisor gave to other VMs or to its host."""
    if seen(load.steal) and load.steal > limits["share"]:
        yield f"the hypervisor took {load.steal:.1%} of the CPU time, {limits['share']:.1%} are allowed"


@rule("load", "foreign-load", "cpus", "cpu_seconds")
def foreign_load(load: Load, limits: Limits) -> Iterator[str]:
    """Work on the node that was not the run's: seen where the run leaves a CPU free."""
    if not seen(load.foreign) or load.foreign * load.seconds <= limits["cpu_seconds"]:
        return
    if load.foreign > limits["cpus"]:
        yield f"{load.foreign:.2f} CPUs were busy with other work, {limits['cpus']:g} are allowed"


@rule("load", "cpu-pressure", "share")
def cpu_pressure(load: Load, limits: Limits) -> Iterator[str]:
    """Tasks that waited for a CPU: a run with a task a CPU, alone on its node, has next to none."""
    if seen(load.waiting) and load.waiting > limits["share"]:
        yield f"tasks waited for a CPU in {load.waiting:.0%} of the time, {limits['share']:.0%} are allowed"


@rule("load", "ballooning", "pages", "mib")
def ballooning(load: Load, limits: Limits) -> Iterator[str]:
    """Memory that the hypervisor took away or gave back."""
    if seen(load.ballooned) and load.ballooned > limits["pages"]:
        yield f"the balloon moved {load.ballooned} pages"
    if seen(load.memory_drift_mib) and abs(load.memory_drift_mib) > limits["mib"]:
        yield f"the node's memory changed by {load.memory_drift_mib} MiB"


@rule("load", "swapping", "pages")
def swapping(load: Load, limits: Limits) -> Iterator[str]:
    """Pages that went to disk or came from it."""
    if seen(load.swapped) and load.swapped > limits["pages"]:
        yield f"{load.swapped} pages were swapped"


@rule("run", "communication", "share")
def communication(run: Run, limits: Limits) -> Found:
    """Little communication: a case that hardly waits for messages cannot see that they are late."""
    if run.side != "native" or run.communication is None:
        return
    if not seen(run.communication):
        why = run.communication.not_observable
        yield NotObservable(not_observable=f"{run.check}, share of communication: {why}")
    elif run.communication <= limits["share"]:
        yield (
            f"{run.check} spent {run.communication:.1%} of its time in communication; more than "
            f"{limits['share']:.0%} are asked for"
        )
