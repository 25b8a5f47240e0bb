"""The allocations that a session holds, as the ReFrame that it starts is told of them.

``VIRTQUAL_ALLOCATIONS``
    JSON: ``system``; ``jobs``, the id of the allocation's job by partition, none where each run is a job of
    its own; ``round``, the number of the session's round; ``rotated``, by partition the nodes among which
    runs rotate, none where they do not; and ``of``, how many of them a side there were at its beginning.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

ALLOCATIONS = "VIRTQUAL_ALLOCATIONS"
#: The scheduler and the launcher of partitions whose allocation is held (``virtqual.harness.steps``).
STEP = "step"
#: So many cases may be given to that scheduler at once, which starts each when its nodes are free.
MOST_WAITING = 10_000

Nodes = Mapping[str, Sequence[str]]


class Rotation(NamedTuple):
    """Among how many places runs of a case rotate: a place is a node of either side, or as many as it takes.

    Attributes
    ----------
    places
        How many there are: 0 where too few nodes are left for one.
    width
        How many there were before any node was lost: so many numbers of pairs a turn has, all its session.
    """

    places: int = 1
    width: int = 1

    def divided(self, pair: int) -> tuple[int, int]:
        """Return the turn and the place of a pair."""
        return divmod(pair, self.width)


def environment(
    system: str, allocations: Mapping[str, str], number: int, rotated: Nodes | None = None, of: int = 1
) -> dict[str, str]:
    """Return the variable by which ReFrame is told of allocations, for the round of a number."""
    told: dict[str, Any] = {"system": system, "round": str(number), "jobs": dict(allocations)}
    told |= {"rotated": dict(rotated or {}), "of": of}
    return {ALLOCATIONS: json.dumps(told)} if allocations or rotated else {}


def _told() -> dict[str, Any]:
    return dict(json.loads(os.environ.get(ALLOCATIONS) or "{}"))


def number() -> str:
    """Return the number of the session's round."""
    return str(_told()["round"])


def places_among(rotated: Nodes, nodes: int) -> int:
    """Return among how many places the runs of a case that takes so many nodes rotate; 0 for too few nodes.

    Examples
    --------
    >>> rotated = {"bare": ["n1", "n2", "n3", "n4"], "vm": ["v1", "v2", "v3", "v4", "v5"]}
    >>> [places_among(rotated, nodes) for nodes in (1, 2, 3, 5)], places_among({}, 1)
    ([4, 2, 1, 0], 1)
    """
    return min((len(names) // nodes for names in rotated.values()), default=1)


def rotation_among(rotated: Nodes, of: int, nodes: int) -> Rotation:
    """Return among how many places the runs of a case that takes so many nodes rotate.

    Parameters
    ----------
    rotated
        The nodes that are left, by partition; none where runs do not rotate.
    of
        How many nodes of a side there were when the session began.
    nodes
        How many a run takes.

    Examples
    --------
    >>> rotated = {"bare": ["n1", "n2", "n3"], "vm": ["v1", "v2", "v3", "v4"]}
    >>> [tuple(rotation_among(rotated, 4, nodes)) for nodes in (1, 2, 4)]
    [(3, 4), (1, 2), (0, 1)]
    >>> tuple(rotation_among({}, 4, 2))
    (1, 1)
    """
    return Rotation(places_among(rotated, nodes), max(of // nodes, 1) if rotated else 1)


def rotation(nodes: int) -> Rotation:
    """Return the same in the ReFrame that a session started."""
    told = _told()
    return rotation_among(told.get("rotated", {}), told.get("of", 1), nodes)


def widths() -> list[int]:
    """Return all widths that a case may have in that ReFrame; see `Rotation`."""
    told = _told()
    most = told.get("of", 1) if told.get("rotated") else 1
    return sorted({most // nodes for nodes in range(1, most + 1)}, reverse=True)


def nodes_of_places(partition: str, nodes: int) -> list[list[str]]:
    """Return the nodes of each place of a partition, so many a place; none where runs do not rotate.

    Nodes that are left over, being too few for a place, are not used.
    """
    names: Sequence[str] = _told().get("rotated", {}).get(partition, ())
    return [list(names[k * nodes : (k + 1) * nodes]) for k in range(rotation(nodes).places if names else 0)]


def system() -> str:
    """Return the system of a session that says where its runs are; empty for none."""
    return str(_told().get("system", ""))


def steps() -> bool:
    """Return whether runs are steps of allocations that are held; else each is a job."""
    return bool(_told().get("jobs"))


def changes(partition: str) -> dict[str, Any]:
    """Return what of the configuration of that system's partition is otherwise."""
    if job := _told()["jobs"].get(partition):
        return {"scheduler": STEP, "launcher": STEP, "access": [f"--jobid={job}"], "max_jobs": MOST_WAITING}
    return {}
