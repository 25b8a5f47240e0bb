"""Read the reviewed data, and answer: which budget, which noise, which waiver."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypeVar

from pydantic import Field

from virtqual import paths
from virtqual.errors import UsageError
from virtqual.files.datafile import (
    DataError,
    DataModel,
    DataModelT,
    Document,
    Problem,
    find_yaml_files,
    parse,
)
from virtqual.files.wording import Key, suggest
from virtqual.references.hosts import HostSurvey
from virtqual.references.metrics import load_metrics
from virtqual.references.qualification import CheckSet
from virtqual.verdict.budget import Budget, Gate, HypervisorClass, Quantity, Term
from virtqual.verdict.metric import Metric, Metrics, Target, Text
from virtqual.verdict.noise import Prior
from virtqual.verdict.waiver import Waiver

T = TypeVar("T")
SECTIONS: Mapping[Gate, str] = {"overhead": "budgets", "change": "changes"}


class _BudgetsFile(DataModel):
    """A class with the budgets of the overhead, and of its change since an earlier session."""

    schema_: Annotated[Literal["virtqual-budgets/1"], Field(alias="schema")]
    class_: Annotated[HypervisorClass, Field(alias="class")]
    budgets: tuple[Term, ...] = Field((), strict=False)
    changes: tuple[Term, ...] = Field((), strict=False)


class _NoiseFile(DataModel):
    schema_: Annotated[Literal["virtqual-noise/1"], Field(alias="schema")]
    class_: Annotated[Text | None, Field(alias="class")] = None
    noise: list[Prior]


class _SurveyedSessions(DataModel):
    """The origin of a survey, for its reviewer."""

    sessions: Annotated[list[Text], Field(min_length=1)]
    date: Text
    cpu: Text
    stack: Text


class _HostsFile(DataModel):
    schema_: Annotated[Literal["virtqual-hosts/1"], Field(alias="schema")]
    made_of: _SurveyedSessions
    hosts: list[HostSurvey]


class _WaiversFile(DataModel):
    schema_: Annotated[Literal["virtqual-waivers/1"], Field(alias="schema")]
    waivers: list[Waiver]


class _QualificationFile(CheckSet):
    schema_: Annotated[Literal["virtqual-qualification/1"], Field(alias="schema")]
    classes: Annotated[list[Text], Field(min_length=1)]
    reason: Text


class Measurable(Protocol):
    """A series before or after it was run."""

    @property
    def metric(self) -> Metric:
        """The metric that is measured."""

    @property
    def setting(self) -> str:
        """The setting under which it is measured."""

    @property
    def points(self) -> tuple[float, ...]:
        """Sizes of a curve; empty for a scalar."""


class NoReferenceError(UsageError, LookupError):
    """The references have no such class, or nothing about a metric."""


@dataclass(frozen=True)
class References:
    """The reviewed data of a directory.

    Attributes
    ----------
    classes
        Hypervisor classes by name.
    claims
        Ids of the published claims.
    waivers
        All, expired or not.
    qualifications
        The checks that a class requires, by its name.
    terms
        By class and gate, sorted by rank.
    priors
        By system and class, None for all, sorted by rank.
    surveys
        By system, sorted by rank.
    """

    metrics: Metrics
    classes: Mapping[str, HypervisorClass]
    claims: frozenset[str] = frozenset()
    waivers: tuple[Waiver, ...] = ()
    qualifications: Mapping[str, CheckSet] = field(default_factory=dict)
    terms: Mapping[tuple[str, Gate], list[Term]] = field(default_factory=dict, repr=False)
    priors: Mapping[tuple[str | None, str | None], list[Prior]] = field(default_factory=dict, repr=False)
    surveys: Mapping[str, list[HostSurvey]] = field(default_factory=dict, repr=False)

    def hypervisor_class(self, name: str) -> HypervisorClass:
        """Return a class; an unknown name is a `NoReferenceError` with similar names."""
        try:
            return self.classes[name]
        except KeyError:
            raise NoReferenceError(f"unknown class {name!r}: {suggest(name, self.classes)}") from None

    def budget(
        self,
        measured: Measurable | str,
        hypervisor_class: str,
        setting: str | None = None,
        *,
        gate: Gate | None = None,
    ) -> Budget:
        """Return the budget of a series, or of a metric by name, under a class.

        Parameters
        ----------
        setting
            With the name of a metric: its setting.
        gate
            The class's own gate if not given.

        Raises
        ------
        NoReferenceError
            The class or a budget does not exist; says where to add it.
        UnknownMetricError
            The metric does not exist.
        """
        own_gate = self.hypervisor_class(hypervisor_class).gate
        gate = gate or own_gate
        metric, setting = self._metric_and_setting(measured, setting)
        terms: list[Term] = []
        for term in self.terms.get((hypervisor_class, gate), ()):
            if term.applies_to(metric, setting):
                terms.append(term)
                if term.sizes is None:
                    break
        if not terms:
            raise NoReferenceError(
                f"class {hypervisor_class!r} has no {gate} budget for {metric.name} "
                f"(family {metric.family}): add one under `{SECTIONS[gate]}` of its file in "
                "references/budgets."
            )
        return Budget(terms=tuple(terms), hypervisor_class=hypervisor_class, gate=gate)

    def prior(
        self,
        measured: Measurable | str,
        hypervisor_class: str = "",
        system: str = "",
        setting: str | None = None,
    ) -> Prior:
        """Return the noise of a series, or of a metric by name, that is known beforehand.

        The system's own A/A history comes before the class's statement, and that before the general one;
        within each the metric's before its family's.

        Raises
        ------
        NoReferenceError
            Nothing is known of the metric or its family.
        """
        metric, setting = self._metric_and_setting(measured, setting)
        points = () if isinstance(measured, str) else measured.points
        for key in ((system, hypervisor_class), (system, None), (None, hypervisor_class), (None, None)):
            for prior in self.priors.get(key, ()):
                # Noise that is known size by size says nothing about a run with other sizes.
                if prior.applies_to(metric, setting) and prior.points in (None, points):
                    return prior
        raise NoReferenceError(
            f"nothing is known of the noise of {metric.name} (family {metric.family}): "
            "add it to references/noise."
        )

    def host_bound(
        self,
        measured: Measurable,
        system: str,
        native_hosts: Collection[str],
        virtual_hosts: Collection[str],
        *,
        rotated: bool = False,
    ) -> float:
        """Return the largest difference between hosts in fixed roles, by the system's survey.

        Parameters
        ----------
        native_hosts, virtual_hosts
            Hosts of the runs of either side as their samples name them, in any order.
        rotated
            The session rotates over the hosts: then the means of both groups are compared.

        Returns
        -------
        float
            In log units; infinite if no survey covers these hosts.
        """
        for survey in self.surveys.get(system, ()):
            if survey.applies_to(measured.metric, measured.setting):
                bound = survey.bound_of(native_hosts, virtual_hosts, rotated=rotated)
                if math.isfinite(bound):
                    return bound
        return math.inf

    def expired(self, today: date) -> Iterator[Problem]:
        """Yield a problem for each waiver that has expired."""
        for waiver in self.waivers:
            if not waiver.holds(today):
                message = f"expired on {waiver.expires}: renew it with a reason, or remove it."
                yield Problem(waiver.file, waiver.line, "expires", message)

    def _metric_and_setting(
        self, measured: Measurable | str, setting: str | None
    ) -> tuple[Metric, str | None]:
        if isinstance(measured, str):
            return self.metrics[measured], setting
        return measured.metric, measured.setting


@cache
def project_references() -> References:
    """Return the reviewed data of the project or site, read once a process."""
    return load_references(paths.references())


def load_references(directory: Path) -> References:
    """Read ``references/``: metrics, budgets, noise, hosts, waivers, qualifications.

    Parameters
    ----------
    directory
        Holds ``metrics``, ``budgets`` and ``noise``; ``systems``, ``published``, ``qualifications`` and
        ``waivers.yaml`` may be missing.

    Raises
    ------
    DataError
        With file, line and key of every mistake in every file.
    """
    problems: list[Problem] = []
    metrics = _collect(problems, lambda: load_metrics(directory / "metrics")) or Metrics([])
    claims = _collect(problems, lambda: _read_claim_ids(directory / "published")) or frozenset()
    loader = _Loader(metrics, claims, problems)
    if not problems or metrics:
        for path in _collect(problems, lambda: find_yaml_files(directory / "budgets")) or []:
            loader.read_budgets(path)
        for path in _collect(problems, lambda: find_yaml_files(directory / "noise")) or []:
            loader.read_noise(path, None)
        for path in sorted(directory.glob("systems/*/noise.yaml")):
            loader.read_noise(path, path.parent.name)
        for path in sorted(directory.glob("systems/*/hosts.yaml")):
            loader.read_hosts(path, path.parent.name)
        if (directory / "waivers.yaml").exists():
            loader.read_waivers(directory / "waivers.yaml")
        for path in sorted(directory.glob("qualifications/*.yaml")):
            loader.read_qualification(path)
    if problems:
        raise DataError(problems)
    return loader.references()


def _collect(problems: list[Problem], read: Callable[[], T]) -> T | None:
    """Return what `read` returns; None after its problems were added."""
    try:
        return read()
    except DataError as error:
        problems.extend(error.problems)
        return None


def _read_claim_ids(directory: Path) -> frozenset[str]:
    """Return the ids of the published claims, which budgets may give as their reason."""
    if not directory.is_dir():
        return frozenset()
    return frozenset(
        str(claim["id"])
        for path in find_yaml_files(directory)
        for claim in parse(path).content.get("claims", [])
        if "id" in claim
    )


class _Loader:
    """Reads files one by one, and collects the problems of all."""

    def __init__(self, metrics: Metrics, claims: frozenset[str], problems: list[Problem]) -> None:
        self._metrics = metrics
        self._claims = claims
        self._problems = problems
        self._classes: dict[str, HypervisorClass] = {}
        self._class_places: dict[str, str] = {}
        self._terms: dict[tuple[str, Gate], list[Term]] = {}
        self._priors: dict[tuple[str | None, str | None], list[Prior]] = {}
        self._prior_places: dict[tuple[object, ...], str] = {}
        self._surveys: dict[str, list[HostSurvey]] = {}
        self._waivers: list[Waiver] = []
        self._qualifications: dict[str, CheckSet] = {}

    def references(self) -> References:
        """Return what was read."""
        for mapping in (self._terms, self._priors, self._surveys):
            for entries in mapping.values():
                entries.sort(key=lambda entry: entry.rank)
        return References(
            self._metrics,
            self._classes,
            self._claims,
            tuple(self._waivers),
            self._qualifications,
            self._terms,
            self._priors,
            self._surveys,
        )

    def _read(self, path: Path, model: type[DataModelT]) -> tuple[Document, DataModelT] | None:
        def read() -> tuple[Document, DataModelT]:
            document = parse(path)
            return document, document.read(model)

        return _collect(self._problems, read)

    def _report(self, document: Document, key: Key, message: str) -> None:
        self._problems.append(document.problem(key, message))

    def _has_name(self, document: Document, key: Key, kind: str, name: str, names: Collection[str]) -> bool:
        """Return whether a name exists; report one that does not."""
        if name not in names:
            self._report(document, key, f"unknown {kind} {name!r}: {suggest(name, names)}")
        return name in names

    def _find_metrics(self, document: Document, key: Key, target: Target) -> list[Metric]:
        """Return the metrics that an entry is about."""
        if target.metric is not None:
            exists = self._has_name(document, (*key, "metric"), "metric", target.metric, self._metrics)
            return [self._metrics[target.metric]] if exists else []
        if target.family is None:
            self._report(document, key, "name either a `metric` or a `family`.")
            return []
        self._has_name(document, (*key, "family"), "family", target.family, self._metrics.families)
        return [metric for metric in self._metrics.values() if metric.family == target.family]

    # -- budgets ------------------------------------------------------------------------------------

    def read_budgets(self, path: Path) -> None:
        read = self._read(path, _BudgetsFile)
        if read is None:
            return
        document, content = read
        name, own_gate = content.class_.name, content.class_.gate
        if name in self._classes:
            message = f"class {name!r} has its budgets already in {self._class_places[name]}."
            self._report(document, ("class", "name"), message)
            return
        self._class_places[name] = document.where(("class", "name"))
        self._classes[name] = content.class_
        entries: dict[Gate, tuple[Term, ...]] = {"overhead": content.budgets, "change": content.changes}
        for gate, terms in entries.items():
            for index, term in enumerate(terms):
                key = (SECTIONS[gate], index)
                self._check_term(document, key, term, gate)
                for earlier_index, earlier in enumerate(terms[:index]):
                    if term.contradicts(earlier):
                        place = document.where((SECTIONS[gate], earlier_index))
                        message = f"contradicts the budget at {place}: both hold for the same results."
                        self._report(document, key, message)
            self._terms[name, gate] = list(terms)
        if not entries[own_gate]:
            message = f"the gate of {name!r} is {own_gate}, but `{SECTIONS[own_gate]}` is empty."
            self._report(document, ("class", "gate"), message)

    def _check_term(self, document: Document, key: Key, term: Term, gate: Gate) -> None:
        for metric in self._find_metrics(document, key, term):
            self._check_term_of_metric(document, key, term, metric)
        self._check_numbers_with_unit(document, key, term, gate)
        if gate == "overhead" and term.margin_up_to is not None:
            message = "only the margin of a change may widen: how many pairs an overhead gets is open."
            self._report(document, (*key, "margin_up_to"), message)
        if term.reason.claim is not None and self._claims:
            self._has_name(document, (*key, "reason", "claim"), "claim", term.reason.claim, self._claims)

    def _check_numbers_with_unit(self, document: Document, key: Key, term: Term, gate: Gate) -> None:
        """Report numbers with a unit that are not bounded: they would allow anything if native is small."""
        parts = {"absolute": term.absolute, "margin": term.margin}
        names = [name for name, part in parts.items() if isinstance(part, Quantity)]
        if gate == "change":
            for name in names:
                message = "a change is a ratio of two overheads and has no unit: give it as a fraction."
                self._report(document, (*key, name), message)
            names = []
        if term.both == "smaller" and "absolute" in names:
            names.remove("absolute")
        at_most = (*key, "at_most")
        if names and term.at_most is None:
            message = (
                f"is missing: which fraction may `{names[0]}` come to at most where native is small? "
                "Without it, it would allow anything there."
            )
            self._report(document, at_most, message)
        elif not names and term.at_most is not None:
            self._report(
                document, at_most, "bounds nothing here: remove it. It goes with a number with a unit."
            )
        elif "absolute" in names and term.at_most is not None and term.at_most <= (term.relative or 0.0):
            self._report(document, at_most, "must be larger than `relative`, or `absolute` never counts.")

    def _check_term_of_metric(self, document: Document, key: Key, term: Term, metric: Metric) -> None:
        if term.sizes is not None and metric.kind == "scalar":
            self._report(document, (*key, "sizes"), f"{metric.name} is a scalar and has no sizes.")
        for name, part in (("absolute", term.absolute), ("margin", term.margin)):
            if isinstance(part, Quantity) and part.unit != metric.unit:
                message = f"wrong unit {part.unit!r}: {metric.name} is in {metric.unit}."
                self._report(document, (*key, name, "unit"), message)
        bound = term.at_most or 0.0
        margin = term.margin_up_to or (bound if isinstance(term.margin, Quantity) else term.margin)
        budget = bound if term.absolute is not None and term.both != "smaller" else term.relative or 0.0
        if metric.better == "higher" and budget + margin >= 1:
            message = f"impossible: budget plus margin would allow all of {metric.name} to be lost."
            wrong_key = "at_most" if bound else "relative" if term.relative else "margin"
            self._report(document, (*key, wrong_key), message)

    # -- noise, hosts, waivers, qualifications ------------------------------------------------------

    def read_noise(self, path: Path, system: str | None) -> None:
        read = self._read(path, _NoiseFile)
        if read is None:
            return
        document, content = read
        if content.class_ is not None:
            self._has_name(document, ("class",), "class", content.class_, self._classes)
        for index, prior in enumerate(content.noise):
            key = ("noise", index)
            for metric in self._find_metrics(document, key, prior):
                if prior.points is not None and metric.kind == "scalar":
                    self._report(document, (*key, "points"), f"{metric.name} is a scalar and has no points.")
            sigma, points = prior.sigma, prior.points
            if isinstance(sigma, tuple) != (points is not None):
                self._report(document, key, "a list of `sigma` goes with a list of `points`.")
            elif isinstance(sigma, tuple) and points is not None and len(sigma) != len(points):
                self._report(document, key, f"{len(sigma)} values of `sigma` for {len(points)} `points`.")
            identity = (system, content.class_, prior.metric, prior.family, prior.setting, points)
            if identity in self._prior_places:
                message = f"the same noise is stated already at {self._prior_places[identity]}."
                self._report(document, key, message)
            self._prior_places[identity] = document.where(key)
        self._priors.setdefault((system, content.class_), []).extend(content.noise)

    def read_hosts(self, path: Path, system: str) -> None:
        read = self._read(path, _HostsFile)
        if read is None:
            return
        document, content = read
        for index, survey in enumerate(content.hosts):
            self._find_metrics(document, ("hosts", index), survey)
        self._surveys[system] = list(content.hosts)

    def read_waivers(self, path: Path) -> None:
        read = self._read(path, _WaiversFile)
        if read is None:
            return
        document, content = read
        for index, entry in enumerate(content.waivers):
            key = ("waivers", index)
            waiver = entry.read_from(str(document.path), document.line(key))
            class_name = waiver.hypervisor_class
            self._has_name(document, (*key, "metric"), "metric", waiver.metric, self._metrics)
            if (
                self._has_name(document, (*key, "class"), "class", class_name, self._classes)
                and waiver.gate == "overhead"
                and self._classes[class_name].gate == "change"
            ):
                message = f"class {class_name!r} judges changes only: no overhead needs a waiver."
                self._report(document, (*key, "gate"), message)
            metric = self._metrics.get(waiver.metric)
            if metric and (waiver.up_to <= 1 if metric.better == "lower" else waiver.up_to >= 1):
                side = "above" if metric.better == "lower" else "below"
                message = f"{waiver.up_to:g}x is no worse than native: for {metric.name} that is {side} 1."
                self._report(document, (*key, "up_to"), message)
            for earlier in self._waivers:
                if earlier.subject == waiver.subject:
                    message = f"the same result is waived already at {earlier.file}:{earlier.line}."
                    self._report(document, key, message)
            self._waivers.append(waiver)

    def read_qualification(self, path: Path) -> None:
        read = self._read(path, _QualificationFile)
        if read is None:
            return
        document, content = read
        names = [required.check for required in content.checks]
        for index, name in enumerate(names):
            if name in names[:index]:
                self._report(document, ("checks", index, "check"), f"{name!r} is asked for already.")
        for index, name in enumerate(content.classes):
            key = ("classes", index)
            if self._has_name(document, key, "class", name, self._classes):
                if not self._classes[name].qualifies:
                    self._report(document, key, f"class {name!r} qualifies no build: remove it here.")
                elif name in self._qualifications:
                    message = f"what class {name!r} asks for stands in another file already."
                    self._report(document, key, message)
            self._qualifications[name] = content
