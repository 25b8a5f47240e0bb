"""What is asked of Slurm, and told it, outside of ReFrame."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from dataclasses import dataclass

from virtqual.errors import InfrastructureError
from virtqual.site.systems import Partition
from virtqual.stack import machine

#: Where the cluster is, which jobs need to know as everybody does.
KEPT = {"SLURM_CONF"}


def environment() -> dict[str, str]:
    """Return this process's environment without the Slurm job that it runs in.

    Within a job ``srun`` starts a step on that job's nodes, and ``sbatch`` hands that job's sizes on.
    """
    if "SLURM_JOB_ID" not in os.environ:
        return dict(os.environ)
    return {
        name: value for name, value in os.environ.items() if not name.startswith("SLURM_") or name in KEPT
    }


def partition_option(partition: Partition) -> str | None:
    """Return the name of Slurm's partition from the options that jobs ask with."""
    access = list((partition.model_extra or {}).get("access", ()))
    words: list[str] = [word for option in access for word in str(option).replace("=", " ").split()]
    for option, value in itertools.pairwise(words):
        if option in ("-p", "--partition"):
            return value
    return None


@dataclass(frozen=True)
class NodeState:
    """What Slurm says of a node: its state with Slurm's marks, and the reason that somebody gave."""

    state: str
    reason: str

    def __str__(self) -> str:
        return f"{self.state.rstrip('*')}{f': {self.reason}' if self.reason else ''}"


def states(partition: str) -> dict[str, NodeState]:
    """Return what Slurm says of every node of a partition.

    Raises
    ------
    InfrastructureError
        Slurm does not answer.
    """
    line = ["sinfo", "--noheader", "--Node", "-p", partition, "-o", "%N|%T|%E"]
    rows = machine.run(line, "sinfo failed", seconds=20).splitlines()
    found = (row.split("|", 2) for row in rows if row.count("|") >= 2)
    return {node: NodeState(state, "" if reason == "none" else reason) for node, state, reason in found}


def cancel(jobs: Iterable[str]) -> list[str]:
    """Cancel those of some jobs that Slurm still knows as waiting or running, and return them."""
    wanted = sorted(set(jobs), key=lambda job: (len(job), job))
    if not wanted:
        return []
    try:
        line = ["squeue", "--noheader", f"--jobs={','.join(wanted)}", "--format=%i"]
        active = machine.run(line, "squeue failed", seconds=30).split()
        if active:
            machine.run(["scancel", *active], "scancel failed", seconds=30)
    except InfrastructureError:
        # A job that Slurm has forgotten is an error of squeue's; one that runs is asked for again next time.
        return []
    return active
