"""Probe one node of each partition before anything is measured there."""

from __future__ import annotations

from virtqual.errors import InfrastructureError
from virtqual.files import execute
from virtqual.identity import Identity, gather, readers
from virtqual.site import slurm as slurm_job
from virtqual.site.systems import SIDES, System, host_of

# Seconds until a node is free, of a cluster of our own and of one that others use, too.
PATIENCE, QUEUE = 900, 24 * 3600
# Minutes that the probe may take; it takes less than a second, on emulated CPUs too.
LIMIT = 5


def probe_node(system: System, side: str, allocation: str = "") -> Identity:
    """Return what a node of one partition is, with as many CPUs as a check may use on a node of either.

    Parameters
    ----------
    system
        The system.
    side
        Of which partition.
    allocation
        The id of the job in which to look; empty to ask Slurm for a node.

    Raises
    ------
    InfrastructureError
        The node could not be probed.
    """
    partition = system.partition(side)
    # Of a node that is larger than a VM, the probe sees only as many CPUs as a check on both would use.
    cpus = min(system.partition(name).processor["num_cpus"] for name in SIDES)
    patience = PATIENCE if system.native.own_scheduler else QUEUE
    # After so long srun itself gives up waiting, and takes its job out of the queue.
    alone = [f"--time={LIMIT}", f"--immediate={patience}"]
    where = [f"--jobid={allocation}", "--overlap"] if allocation else [*partition.options, *alone]
    line = ["srun", *where, "--job-name=virtqual-probe", "--nodes=1", "--ntasks=1"]
    line.append(f"--cpus-per-task={cpus}")
    failed = f"cannot examine a node of partition {partition.name}"
    try:
        done = execute.run(
            [*line, "sh", "-c", gather.script()],
            env=slurm_job.environment(),
            seconds=patience + 2 * 60 * LIMIT,
        )
    except InfrastructureError as error:
        raise InfrastructureError(f"{failed}: {error}") from None
    try:
        identity = readers.read(gather.parse(done.stdout))
    except ValueError as error:
        # What srun says of a queue is no reason.
        said = [line for line in done.stderr.splitlines() if "error:" in line]
        raise InfrastructureError(f"{failed}: {said[-1] if said else error}") from None
    return identity.on(host_of(system.virtual)) if side == "virtual" else identity
