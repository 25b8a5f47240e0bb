"""The checks that must be judged before a build is called qualified."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Asked:
    """One check that a class asks for.

    Parameters
    ----------
    check
        A check with its parameters as sessions name them (``lammps %problem=lj``), or its name alone: then
        all its cases.
    where
        The feature of a partition where it is asked for; None: everywhere.
    """

    check: str
    where: str | None = None

    def cases(self, known: Iterable[str]) -> list[str]:
        """Return its cases among those that there are; itself, if none of them is its own."""
        name = f"{self.check} "
        return [case for case in known if f"{case} ".startswith(name)] or [self.check]


@dataclass(frozen=True)
class CheckSet:
    """What a class asks for.

    Parameters
    ----------
    scope
        The scope whose cases are meant where a check has no parameters.
    checks
        Each once.
    """

    scope: Literal["quick", "full"]
    checks: tuple[Asked, ...]

    def of(self, features: Iterable[str] | None) -> tuple[list[Asked], list[str]]:
        """Return what is asked for where partitions have these features, and the features that nobody has.

        Parameters
        ----------
        features
            Of both partitions together; None where they are not known: then everything is asked for.
        """
        conditions = {one.where for one in self.checks if one.where}
        without = conditions.difference(conditions if features is None else features)
        return [one for one in self.checks if one.where not in without], sorted(without)
