"""A session that is itself a batch job: what it starts must not take itself for a part of that job."""

from __future__ import annotations

import os

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
