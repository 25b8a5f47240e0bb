"""How much the hosts of both sides differ at most, by a survey with native runs on all of them."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class HostBound:
    """Bound on the difference between hosts in fixed roles, in log units (0.01 is 1 %).

    Parameters
    ----------
    native, virtual
        Hosts of both groups as runs name them; nodes of one run joined by ``+``.
    bound
        The most that any host of one group differs by from any of the other.
    means
        The most that the means of both groups differ by; None if nobody says.
    """

    native: frozenset[str]
    virtual: frozenset[str]
    bound: float
    means: float | None = None

    def of(self, native: Collection[str], virtual: Collection[str], *, rotated: bool = False) -> float:
        """Return the bound for hosts in these roles; infinite where not all of them were surveyed.

        What bounds a difference bounds it in both directions, so the groups may also have changed roles. Only
        a rotation over both whole groups uses all hosts alike after each round, and has the bound of `means`.

        Examples
        --------
        >>> survey = HostBound(frozenset("ab"), frozenset("cd"), bound=0.03, means=0.01)
        >>> survey.of({"a"}, {"c"}), survey.of({"c", "d"}, {"a", "b"}, rotated=True), survey.of({"a"}, {"e"})
        (0.03, 0.01, inf)
        """
        one, other = frozenset(native), frozenset(virtual)
        for group, opposite in ((self.native, self.virtual), (self.virtual, self.native)):
            if rotated and (one, other) == (group, opposite) and self.means is not None:
                return min(self.bound, self.means)
            if one <= group and other <= opposite:
                return self.bound
        return math.inf
