"""The largest difference between the hosts of both sides, by a survey with native runs on all of them."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Annotated, Self

from pydantic import Field, model_validator

from virtqual.files.datafile import Text
from virtqual.verdict.metric import Positive, Target

Hosts = Annotated[frozenset[Text], Field(min_length=1, strict=False)]


class HostSurvey(Target):
    """The largest difference between two groups of hosts, in log units (0.01 is 1 %).

    Hosts are named as runs name them; nodes of one run are joined by ``+``. `bound` is between any host of
    one group and any of the other, `means` between the means of both groups.
    """

    native: Hosts
    virtual: Hosts
    bound: Positive
    means: Positive | None = None
    source: Text

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        if shared := sorted(self.native & self.virtual):
            raise ValueError(f"{', '.join(shared)} of both groups: hosts in both roles need no bound.")
        return self

    def bound_of(self, native: Collection[str], virtual: Collection[str], *, rotated: bool = False) -> float:
        """Return the bound for hosts in these roles; infinite unless all of them were surveyed.

        A bound holds in both directions, so the groups may also have exchanged their roles. Only a rotation
        over both whole groups uses all hosts alike after each round, and has the bound of `means`.

        Examples
        --------
        >>> survey = HostSurvey(
        ...     family="memory", native=["a", "b"], virtual=["c", "d"], bound=0.03, means=0.01, source="s"
        ... )
        >>> survey.bound_of({"a"}, {"c"}), survey.bound_of({"c", "d"}, {"a", "b"}, rotated=True)
        (0.03, 0.01)
        >>> survey.bound_of({"a"}, {"e"})
        inf
        """
        native, virtual = frozenset(native), frozenset(virtual)
        for group, opposite in ((self.native, self.virtual), (self.virtual, self.native)):
            if rotated and (native, virtual) == (group, opposite) and self.means is not None:
                return min(self.bound, self.means)
            if native <= group and virtual <= opposite:
                return self.bound
        return math.inf
