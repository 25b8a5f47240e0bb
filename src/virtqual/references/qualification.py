"""The checks that must be judged before a build is called qualified: ``references/qualifications/*.yaml``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from virtqual.files.datafile import PlacedModel, Problem
from virtqual.files.wording import suggest

Scope = Literal["quick", "full"]


class RequiredCheck(PlacedModel):
    """A check that must be judged, by name or with its parameters (``lammps %problem=lj``).

    With `where` it is required only if a partition, or the stack, has this feature.
    """

    check: Annotated[str, Field(pattern=r"^\w+( %\w+=\S+)*$")]
    where: Annotated[str, Field(pattern=r"^[\w-]+$")] | None = None

    def match_cases(self, cases: Iterable[str]) -> list[str]:
        """Return the cases of the check; the check itself if none is among them."""
        prefix = f"{self.check} "
        return [case for case in cases if f"{case} ".startswith(prefix)] or [self.check]

    def explain_unknown_check(self, cases: Iterable[str]) -> str | None:
        """Return which name of the check or its parameters no case has; None if all have one.

        Numbers of threads, ranks and nodes follow from the system at hand, so that no number is unknown.
        """
        name, *parameters = self.check.split(" %")
        parameters_by_check: dict[str, dict[str, set[str]]] = {}
        for case in cases:
            check, *its_parameters = case.split(" %")
            values = parameters_by_check.setdefault(check, defaultdict(set))
            for parameter in its_parameters:
                key, _, value = parameter.partition("=")
                values[key].add(value)
        if name not in parameters_by_check:
            return f"unknown check {name!r}: {suggest(name, parameters_by_check)}"
        values = parameters_by_check[name]
        for key, _, value in (parameter.partition("=") for parameter in parameters):
            if key not in values:
                return f"{name} has no parameter {key!r}: {suggest(key, values)}"
            if value not in values[key] and not value[0].isdigit():
                return f"{name} has no case with {key}={value}: {suggest(value, values[key])}"
        return None


@dataclass(frozen=True)
class CheckSet:
    """The checks that a class requires; `scope` selects the cases of a check without parameters."""

    scope: Scope
    checks: tuple[RequiredCheck, ...]
    #: The checks are the site's own, in place of the project's.
    is_of_site: bool = False

    def find_missing(
        self, cases: Iterable[str], features: Iterable[str] | None, is_there: Callable[[str], bool]
    ) -> tuple[dict[str, list[str]], list[str]]:
        """Return the missing cases of each check that a system must pass, and the features that it lacks.

        `cases` are all cases in the scope; `features` are those of the system and its stack. If they are
        unknown (None), all checks are required.
        """
        cases, conditions = tuple(cases), {check.where for check in self.checks if check.where}
        absent = set() if features is None else conditions.difference(features)
        missing = {
            required.check: [case for case in required.match_cases(cases) if not is_there(case)]
            for required in self.checks
            if required.where not in absent
        }
        return missing, sorted(absent)

    def find_unknown(self, cases: Iterable[str], features: Iterable[str]) -> Iterator[Problem]:
        """Yield the checks, parameters and features that no check has; `cases` are those of all checks.

        A misspelt check would always be missing, and a check with a misspelt feature would never be.
        """
        cases, features = tuple(cases), frozenset(features)
        for index, required in enumerate(self.checks):
            key = f"checks[{index}]"
            if message := required.explain_unknown_check(cases):
                yield Problem(*required.place, f"{key}.check", message)
            if required.where not in (None, *features):
                message = f"unknown feature {required.where!r}: {suggest(str(required.where), features)}"
                yield Problem(*required.place, f"{key}.where", message)
