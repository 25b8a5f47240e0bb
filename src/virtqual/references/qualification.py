"""The checks that must be judged before a build is called qualified: ``references/qualifications/*.yaml``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from virtqual.files.datafile import DataModel


class RequiredCheck(DataModel):
    """A check that must be judged.

    Attributes
    ----------
    check
        A check with its parameters as sessions name them (``lammps %problem=lj``), or its name for all cases.
    where
        Only on systems with a partition that has this feature; None for all systems.
    """

    check: Annotated[str, Field(pattern=r"^\w+( %\w+=\S+)*$")]
    # A misspelt feature would not be noticed: its check would never be missed.
    where: Literal["multinode", "numa", "rdma"] | None = None

    def match_cases(self, cases: Iterable[str]) -> list[str]:
        """Return the cases of the check; the check itself if none is among them."""
        prefix = f"{self.check} "
        return [case for case in cases if f"{case} ".startswith(prefix)] or [self.check]


class CheckSet(DataModel):
    """The checks that a class requires.

    Attributes
    ----------
    scope
        The scope whose cases are meant if a check has no parameters.
    """

    scope: Literal["quick", "full"]
    checks: Annotated[tuple[RequiredCheck, ...], Field(min_length=1, strict=False)]

    def select(self, features: Iterable[str] | None) -> tuple[list[RequiredCheck], list[str]]:
        """Return the checks that a system must pass, and the features that it lacks.

        Parameters
        ----------
        features
            Of both partitions together; None if unknown: then every check is required.
        """
        conditions = {check.where for check in self.checks if check.where}
        missing = conditions.difference(conditions if features is None else features)
        return [check for check in self.checks if check.where not in missing], sorted(missing)
