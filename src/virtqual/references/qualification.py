"""The checks that must be judged before a build is called qualified: ``references/qualifications/*.yaml``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from virtqual.files.datafile import DataModel


class RequiredCheck(DataModel):
    """A check that must be judged, by name or with its parameters (``lammps %problem=lj``).

    With `where` it is required only on systems with a partition that has this feature.
    """

    check: Annotated[str, Field(pattern=r"^\w+( %\w+=\S+)*$")]
    # A misspelt feature would not be noticed: its check would never be missed.
    where: Literal["multinode", "numa", "rdma"] | None = None

    def match_cases(self, cases: Iterable[str]) -> list[str]:
        """Return the cases of the check; the check itself if none is among them."""
        prefix = f"{self.check} "
        return [case for case in cases if f"{case} ".startswith(prefix)] or [self.check]


class CheckSet(DataModel):
    """The checks that a class requires; `scope` selects the cases of a check without parameters."""

    scope: Literal["quick", "full"]
    checks: Annotated[tuple[RequiredCheck, ...], Field(min_length=1, strict=False)]

    def select(self, features: Iterable[str] | None) -> tuple[list[RequiredCheck], list[str]]:
        """Return the checks that a system must pass, and the features that both its partitions lack.

        If the features are unknown (None), all checks are required.
        """
        conditions = {check.where for check in self.checks if check.where}
        missing = conditions.difference(conditions if features is None else features)
        return [check for check in self.checks if check.where not in missing], sorted(missing)
