"""Probe one node of a partition: before the first run, and for its system file."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence

from virtqual.errors import InfrastructureError
from virtqual.files import execute
from virtqual.identity import Identity, gather, readers
from virtqual.identity.gather import NodeFiles
from virtqual.site import held, slurm
from virtqual.site.nodes import GLANCE_INTERVAL_S, choose_glance_interval
from virtqual.site.options import list_srun_options
from virtqual.site.systems import System
from virtqual.site.waiting import WAIT_LONGER, Wait
from virtqual.verdict.pairs import SIDES

#: The probe takes less than a second, on emulated CPUs too; a prolog may take longer.
PROBE_TIME_LIMIT_MINUTES = 5


def probe_node(
    system: System,
    side: str,
    say: Callable[[str], None],
    *,
    allocation: Mapping[str, str] | None = None,
    wait_hours: float | None = None,
) -> Identity:
    """Return the identity of a node of one partition, in an allocation or in a job of its own.

    Parameters
    ----------
    say
        Shows a sentence to the person who waits for the node.
    allocation
        The ids of its components, by partition.
    wait_hours
        How long to wait for the node (default: what the system file says).

    Raises
    ------
    InfrastructureError
        The node could not be probed.
    """
    partition, wait = system.partition(side), Wait(wait_hours or system.native_extras.wait_hours, say)
    # The probe sees only the CPUs that a check on both sides would use: the same cores, with their threads.
    cpus = min(map(system.cores, SIDES)) * partition.processor["num_cpus_per_core"]
    place: Sequence[str] = partition.access
    if allocation:
        place = [*held.list_step_options(allocation, partition), "--overlap"]
    files = gather_from_node(
        partition.name,
        place,
        wait,
        cpus=cpus,
        interval=choose_glance_interval(system),
        prolog_seconds=partition.extras.timeouts.prolog,
    )
    identity = readers.read(files)
    return identity.on(system.virtual_extras.read_host()) if side == "virtual" else identity


def gather_from_node(
    partition: str,
    place: Sequence[str],
    wait: Wait,
    *,
    cpus: int = 1,
    interval: float = GLANCE_INTERVAL_S,
    prolog_seconds: float = 0,
    commands: str = "",
    more: Sequence[str] = (),
) -> NodeFiles:
    """Return the files that a node of a partition prints, in an allocation or in a short job.

    `place` are options of ``srun`` that choose it, `interval` is the time between two questions about a
    job that waits, s, `prolog_seconds` what the site's prolog may take, and `commands` and `more` files are
    those of `virtqual.identity.gather.script`.

    Raises
    ------
    InfrastructureError
        No node was free for so long, or the script failed.
    """
    timeout, name = wait.seconds, f"virtqual-probe-{os.getpid()}"
    minutes = PROBE_TIME_LIMIT_MINUTES + math.ceil(prolog_seconds / 60)
    if not any(option.startswith("--jobid=") for option in place):
        # After the timeout srun takes its job out of the queue.
        place = [*list_srun_options(place), f"--time={minutes}", f"--immediate={timeout}"]
    machine = f'echo "{gather.MACHINE}:$(uname -m)"\n'
    script = gather.guard(gather.script(more, machine + commands))
    size = ("--nodes=1", "--ntasks=1", f"--cpus-per-task={cpus}")
    command = ["srun", *place, f"--job-name={name}", *size, "sh", "-c", script]
    seconds = timeout + 2 * 60 * minutes
    failure = f"cannot examine a node of partition {partition}"
    try:
        with (
            slurm.cancelled_after_an_error(name),
            wait.following(f"1 node of {partition}", lambda: slurm.list_pending_reasons(name), interval),
        ):
            completed = execute.run(command, env=slurm.environment(), seconds=seconds)
    except InfrastructureError as error:
        raise InfrastructureError(f"{failure}: {error}") from None
    try:
        return gather.parse(completed.stdout)
    except gather.GatherError as error:
        said = execute.quote_errors("srun", completed) if completed.returncode else ""
        remedy = f"; {WAIT_LONGER}" if wait.is_over else ""
        raise InfrastructureError(f"{failure}: {f'srun: {said}' if said else error}{remedy}") from None
