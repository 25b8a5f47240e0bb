"""The reviewed data, and its answers: which budget, which noise, how far hosts differ."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import date

from virtqual.errors import UsageError
from virtqual.files.datafile import Problem
from virtqual.files.wording import suggest
from virtqual.references.hosts import HostSurvey
from virtqual.references.qualification import CheckSet
from virtqual.verdict.budget import Budget, Gate, HypervisorClass, Term
from virtqual.verdict.metric import Metrics
from virtqual.verdict.noise import Prior
from virtqual.verdict.pairs import Series
from virtqual.verdict.waiver import Waiver

SECTIONS: dict[Gate, str] = {"overhead": "budgets", "change": "changes"}


class NoReferenceError(UsageError):
    """The references have no such class, or nothing about a metric."""


@dataclass(frozen=True)
class References:
    """The reviewed data of the project and of the site.

    Attributes
    ----------
    claims
        Ids of the published claims.
    classes
        Hypervisor classes by name.
    waivers
        All, expired or not.
    qualifications
        The checks that a class requires, by its name.
    terms, priors, surveys
        Budgets by class and gate, noise by system and class (None for all), surveys by system; each by rank.
    """

    metrics: Metrics
    claims: frozenset[str] = frozenset()
    classes: dict[str, HypervisorClass] = field(default_factory=dict)
    waivers: list[Waiver] = field(default_factory=list)
    qualifications: dict[str, CheckSet] = field(default_factory=dict)
    terms: dict[tuple[str, Gate], list[Term]] = field(default_factory=dict, repr=False)
    priors: dict[tuple[str | None, str | None], list[Prior]] = field(default_factory=dict, repr=False)
    surveys: dict[str, list[HostSurvey]] = field(default_factory=dict, repr=False)

    def hypervisor_class(self, name: str) -> HypervisorClass:
        """Return a class; an unknown name is a `NoReferenceError` with similar names."""
        try:
            return self.classes[name]
        except KeyError:
            raise NoReferenceError(f"unknown class {name!r}: {suggest(name, self.classes)}") from None

    def budget(self, series: Series, hypervisor_class: str, *, gate: Gate | None = None) -> Budget:
        """Return the budget of a series under a class, of the class's own gate if none is given.

        Raises
        ------
        NoReferenceError
            The class or a budget does not exist.
        """
        own_gate = self.hypervisor_class(hypervisor_class).gate
        gate, metric = gate or own_gate, series.metric
        terms: list[Term] = []
        for term in self.terms.get((hypervisor_class, gate), ()):
            if term.applies_to(metric, series.setting):
                terms.append(term)
                if term.sizes is None:
                    break
        if not terms:
            raise NoReferenceError(
                f"class {hypervisor_class!r} has no {gate} budget for {metric.name} "
                f"(family {metric.family}): add one under `{SECTIONS[gate]}` of its file in "
                "references/budgets of the site directory."
            )
        return Budget(terms=tuple(terms), gate=gate)

    def prior(self, series: Series, hypervisor_class: str = "", system: str = "") -> Prior:
        """Return the noise of a series that is known beforehand.

        The system's own A/A history comes before the class's statement, and that before the general one;
        within each the metric's before its family's.

        Raises
        ------
        NoReferenceError
            Nothing is known of the metric or its family.
        """
        metric = series.metric
        for key in ((system, hypervisor_class), (system, None), (None, hypervisor_class), (None, None)):
            for prior in self.priors.get(key, ()):
                # Noise that is known size by size says nothing about a run with other sizes.
                if prior.applies_to(metric, series.setting) and prior.points in (None, series.points):
                    return prior
        raise NoReferenceError(
            f"nothing is known of the noise of {metric.name} (family {metric.family}): "
            "add it to references/noise of the site directory."
        )

    def host_bound(
        self,
        series: Series,
        system: str,
        native_hosts: Collection[str],
        virtual_hosts: Collection[str],
        *,
        rotated: bool = False,
    ) -> float:
        """Return the largest difference between the hosts of both sides, by the system's survey.

        The difference is in log units, and infinite if no survey covers these hosts. In a rotation the means
        of both groups are compared.
        """
        for survey in self.surveys.get(system, ()):
            if survey.applies_to(series.metric, series.setting):
                bound = survey.bound_of(native_hosts, virtual_hosts, rotated=rotated)
                if math.isfinite(bound):
                    return bound
        return math.inf

    def expired(self, today: date) -> Iterator[Problem]:
        """Yield a problem for each waiver that has expired."""
        for waiver in self.waivers:
            if not waiver.holds(today):
                message = f"expired on {waiver.expires}: renew it with a reason, or remove it."
                yield Problem(*waiver.place, "expires", message)
