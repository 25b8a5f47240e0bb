"""The allocations that a session holds, as the ReFrame that it starts is told of them.

``VIRTQUAL_ALLOCATIONS``
    JSON: ``system``; ``jobs``, the id of the allocation's job by partition; ``round``, the number of the
    session's round; and ``rotated``, by partition the nodes among which runs rotate, none where they do not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

ALLOCATIONS = "VIRTQUAL_ALLOCATIONS"
#: The scheduler and the launcher of partitions whose allocation is held (``virtqual.harness.steps``).
STEP = "step"
#: So many cases may be given to that scheduler at once, which starts each when its nodes are free.
MOST_WAITING = 10_000

Nodes = Mapping[str, Sequence[str]]


def environment(
    system: str, allocations: Mapping[str, str], number: int, rotated: Nodes | None = None
) -> dict[str, str]:
    """Return the variable by which ReFrame is told of allocations, for the round of a number."""
    told = {"system": system, "round": str(number), "jobs": dict(allocations), "rotated": dict(rotated or {})}
    return {ALLOCATIONS: json.dumps(told)} if allocations else {}


def _told() -> dict[str, Any]:
    return dict(json.loads(os.environ.get(ALLOCATIONS) or "{}"))


def number() -> str:
    """Return the number of the session's round."""
    return str(_told()["round"])


def places_among(rotated: Nodes, nodes: int) -> int:
    """Return among how many places the runs of a case that takes so many nodes rotate.

    Examples
    --------
    >>> rotated = {"bare": ["n1", "n2", "n3", "n4"], "vm": ["v1", "v2", "v3", "v4", "v5"]}
    >>> places_among(rotated, 1), places_among(rotated, 2), places_among(rotated, 3), places_among({}, 1)
    (4, 2, 1, 1)
    """
    return max(min((len(names) // nodes for names in rotated.values()), default=1), 1)


def places(nodes: int) -> int:
    """Return the same in the ReFrame that a session started."""
    return places_among(_told().get("rotated", {}), nodes)


def nodes_of_places(partition: str, nodes: int) -> list[list[str]]:
    """Return the nodes of each place of a partition, so many a place; none where runs do not rotate.

    Nodes that are left over, being too few for a place, are not used.
    """
    names: Sequence[str] = _told().get("rotated", {}).get(partition, ())
    return [list(names[k * nodes : (k + 1) * nodes]) for k in range(places(nodes) if names else 0)]


def system() -> str:
    """Return the system whose allocations are held; empty for none."""
    return str(_told().get("system", ""))


def changes(partition: str) -> dict[str, Any]:
    """Return what of the configuration of that system's partition is otherwise."""
    if job := _told()["jobs"].get(partition):
        return {"scheduler": STEP, "launcher": STEP, "access": [f"--jobid={job}"], "max_jobs": MOST_WAITING}
    return {}
