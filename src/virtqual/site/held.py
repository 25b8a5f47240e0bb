"""The allocations that a session holds, as the ReFrame that it starts is told of them.

``VIRTQUAL_ALLOCATIONS``
    JSON: ``system``, ``jobs`` (the id of the allocation's job by partition), and ``round``, the number of the
    session's round.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

ALLOCATIONS = "VIRTQUAL_ALLOCATIONS"
#: The scheduler and the launcher of partitions whose allocation is held (``virtqual.harness.steps``).
STEP = "step"


def environment(system: str, allocations: Mapping[str, str], number: int) -> dict[str, str]:
    """Return the variable by which ReFrame is told of allocations, for the round of a number."""
    told = {"system": system, "round": str(number), "jobs": dict(allocations)}
    return {ALLOCATIONS: json.dumps(told)} if allocations else {}


def _told() -> dict[str, Any]:
    return dict(json.loads(os.environ.get(ALLOCATIONS) or "{}"))


def number() -> str:
    """Return the number of the session's round."""
    return str(_told()["round"])


def system() -> str:
    """Return the system whose allocations are held; empty for none."""
    return str(_told().get("system", ""))


def changes(partition: str) -> dict[str, Any]:
    """Return what of the configuration of that system's partition is otherwise."""
    if job := _told()["jobs"].get(partition):
        return {"scheduler": STEP, "launcher": STEP, "access": [f"--jobid={job}"]}
    return {}
