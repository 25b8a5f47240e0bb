"""Look at one node of each partition before anything is measured there."""

from __future__ import annotations

import subprocess

from virtqual.errors import InfrastructureError
from virtqual.identity import Identity, look, readers
from virtqual.site import slurm as slurm_job
from virtqual.site.systems import SIDES, System, host_of

# Until a node is free; a look itself takes less than a second, on emulated CPUs too.
PATIENCE = 900


def look_at(system: System, side: str) -> Identity:
    """Return what a node of one partition is, with as many CPUs as a check may use on a node of either.

    Raises
    ------
    InfrastructureError
        The node could not be looked at.
    """
    partition = system.partition(side)
    # Of a node that is larger than a VM no more: what is looked at is what a check on one of each would use.
    cpus = min(system.partition(one).processor["num_cpus"] for one in SIDES)
    line = ["srun", *partition.options, "--job-name=virtqual-look", "--nodes=1", "--ntasks=1"]
    line.append(f"--cpus-per-task={cpus}")
    try:
        done = subprocess.run(
            [*line, "sh", "-c", look.script()],
            capture_output=True,
            timeout=PATIENCE,
            check=False,
            env=slurm_job.environment(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfrastructureError(f"cannot look at a node of partition {partition.name}: {error}") from None
    text = done.stdout.decode(errors="replace")
    try:
        identity = readers.read(look.parse(text))
    except look.LookError as error:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise InfrastructureError(
            f"cannot look at a node of partition {partition.name}: {said[-1] if said else error}"
        ) from None
    return identity.on(host_of(system.virtual)) if side == "virtual" else identity
