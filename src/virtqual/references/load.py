"""Read ``references/`` and answer: which budget, which noise, which waiver."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

from virtqual import paths
from virtqual.errors import UsageError
from virtqual.files.datafile import DataError, DataModelT, Document, Problem, find_yaml_files, parse
from virtqual.files.wording import Key, dotted, suggest
from virtqual.references.budgets import Budget, Gate, HypervisorClass, Quantity, Reason, Term
from virtqual.references.hosts import HostBound
from virtqual.references.metrics import Metric, Metrics, load_metrics
from virtqual.references.noise import Prior
from virtqual.references.qualifications import Asked, CheckSet
from virtqual.references.schemas import (
    BudgetEntry,
    BudgetsFile,
    HostsFile,
    NoiseEntry,
    NoiseFile,
    QualificationFile,
    QuantityEntry,
    TargetEntry,
    WaiversFile,
)
from virtqual.references.waivers import Waiver

T = TypeVar("T")


class Measured(Protocol):
    """A series before or after it was run: it has a metric, a setting and sizes."""

    @property
    def metric(self) -> Metric:
        """The metric that is measured."""

    @property
    def setting(self) -> str:
        """The setting under which it is measured."""

    @property
    def points(self) -> tuple[float, ...]:
        """Sizes of a curve; empty for a scalar."""


@cache
def known() -> References:
    """Return the reviewed data of this project or site, read once a process."""
    return load_references(paths.references())


class NoReferenceError(UsageError, LookupError):
    """A metric, class or system for which the references say nothing."""


@dataclass(frozen=True)
class _Rule:
    """One entry of a budgets file."""

    target: TargetEntry
    gate: Gate
    term: Term

    @property
    def sized(self) -> bool:
        return not (math.isinf(self.term.low) and math.isinf(self.term.high))

    def rank(self) -> tuple[bool, bool, bool]:
        """Order of precedence: metric before family, a setting before none, sizes before none."""
        return (self.target.metric is None, self.target.setting is None, not self.sized)


@dataclass(frozen=True)
class _Noise:
    """One entry of a noise file."""

    target: TargetEntry
    hypervisor_class: str | None
    system: str | None
    prior: Prior
    points: tuple[float, ...] | None

    def rank(self) -> tuple[bool, bool, bool, bool]:
        return (
            self.system is None,
            self.hypervisor_class is None,
            self.target.metric is None,
            self.target.setting is None,
        )


@dataclass(frozen=True)
class _Survey:
    """One entry of a system's file of hosts."""

    target: TargetEntry
    system: str
    bound: HostBound

    def rank(self) -> tuple[bool, bool]:
        return (self.target.metric is None, self.target.setting is None)


@dataclass(frozen=True)
class References:
    """Everything under ``references/`` that judging needs.

    Parameters
    ----------
    metrics
        The catalogue.
    classes
        Hypervisor classes by name.
    waivers
        All, expired or not.
    qualifications
        The checks that a class asks for, by its name.
    """

    metrics: Metrics
    classes: Mapping[str, HypervisorClass]
    waivers: tuple[Waiver, ...] = ()
    qualifications: Mapping[str, CheckSet] = field(default_factory=dict)
    _rules: Mapping[str, tuple[_Rule, ...]] = field(default_factory=dict, repr=False)
    _noise: tuple[_Noise, ...] = field(default=(), repr=False)
    _surveys: tuple[_Survey, ...] = field(default=(), repr=False)

    def hypervisor_class(self, name: str) -> HypervisorClass:
        """Return a class by name.

        Raises
        ------
        NoReferenceError
            Naming near matches, if there is no such class.
        """
        try:
            return self.classes[name]
        except KeyError:
            raise NoReferenceError(f"unknown class {name!r}: {suggest(name, self.classes)}") from None

    def budget(
        self,
        measured: Measured | str,
        hypervisor_class: str,
        setting: str | None = None,
        *,
        gate: Gate | None = None,
    ) -> Budget:
        """Return the budget of a series under a class.

        Parameters
        ----------
        measured
            A series, or the name of a metric.
        hypervisor_class
            Name of the class.
        setting
            With the name of a metric: its setting.
        gate
            ``overhead`` or ``change``; the class's own gate if not given.

        Raises
        ------
        NoReferenceError
            If the class or a budget does not exist; says where to add it.
        UnknownMetricError
            If the metric does not exist.
        """
        found = self.hypervisor_class(hypervisor_class)
        metric, setting = self._named(measured, setting)
        gate = gate or found.gate
        terms: list[Term] = []
        for rule in self._rules[hypervisor_class]:
            if rule.gate == gate and _applies(rule.target, metric, setting):
                terms.append(rule.term)
                if not rule.sized:
                    break
        if not terms:
            section = "budgets" if gate == "overhead" else "changes"
            raise NoReferenceError(
                f"class {hypervisor_class!r} has no {gate} budget for {metric.name} "
                f"(family {metric.family}): add one under `{section}` of its file in references/budgets."
            )
        return Budget(tuple(terms), hypervisor_class, gate)

    def prior(
        self,
        measured: Measured | str,
        hypervisor_class: str = "",
        system: str = "",
        setting: str | None = None,
    ) -> Prior:
        """Return the noise of a series known beforehand.

        The system's own A/A history comes before the class's statement, that before the general one;
        within each the metric's before its family's.

        Raises
        ------
        NoReferenceError
            If nothing is known of the metric or its family.
        """
        metric, setting = self._named(measured, setting)
        points = () if isinstance(measured, str) else measured.points
        for noise in self._noise:
            if noise.hypervisor_class not in (None, hypervisor_class) or noise.system not in (None, system):
                continue
            # Noise known size by size says nothing about a run with other sizes.
            if _applies(noise.target, metric, setting) and noise.points in (None, points):
                return noise.prior
        raise NoReferenceError(
            f"nothing is known of the noise of {metric.name} (family {metric.family}): "
            "add it to references/noise."
        )

    def host_bound(
        self,
        measured: Measured,
        system: str,
        native_hosts: Collection[str],
        virtual_hosts: Collection[str],
        *,
        rotated: bool = False,
    ) -> float:
        """Return how much hosts in fixed roles differ at most, by the system's survey.

        Parameters
        ----------
        measured
            A series.
        system
            Name of the system.
        native_hosts, virtual_hosts
            Hosts of the runs of either side as their samples name them, in any order.
        rotated
            Whether the session rotates over them: then the means of both groups are what may differ.

        Returns
        -------
        float
            In log units; infinite where no survey covers these hosts.
        """
        for survey in self._surveys:
            if survey.system == system and _applies(survey.target, measured.metric, measured.setting):
                bound = survey.bound.of(native_hosts, virtual_hosts, rotated=rotated)
                if math.isfinite(bound):
                    return bound
        return math.inf

    def expired(self, today: date) -> tuple[Waiver, ...]:
        """Return the waivers that no longer hold."""
        return tuple(waiver for waiver in self.waivers if not waiver.holds(today))

    def _named(self, measured: Measured | str, setting: str | None) -> tuple[Metric, str | None]:
        if isinstance(measured, str):
            return self.metrics[measured], setting
        return measured.metric, measured.setting


def _applies(target: TargetEntry, metric: Metric, setting: str | None) -> bool:
    named = metric.name == target.metric if target.metric is not None else metric.family == target.family
    return named and target.setting in (None, setting)


def load_references(directory: Path | str) -> References:
    """Read ``references/``: metrics, budgets, noise, hosts, waivers, qualifications.

    Parameters
    ----------
    directory
        A directory that holds ``metrics``, ``budgets`` and ``noise``; ``systems``, ``published``,
        ``qualifications`` and ``waivers.yaml`` may be missing.

    Raises
    ------
    DataError
        With every mistake in every file, each naming file, line and key.
    """
    directory = Path(directory)
    problems: list[Problem] = []
    metrics = _collect(problems, lambda: load_metrics(directory / "metrics")) or Metrics([])
    claims = _collect(problems, lambda: claim_ids(directory / "published")) or frozenset()
    loader = _Loader(metrics, claims, problems)
    if not problems or metrics:
        for path in _collect(problems, lambda: find_yaml_files(directory / "budgets")) or []:
            loader.budgets(path)
        for path in _collect(problems, lambda: find_yaml_files(directory / "noise")) or []:
            loader.noise(path, None)
        for path in sorted(directory.glob("systems/*/noise.yaml")):
            loader.noise(path, path.parent.name)
        for path in sorted(directory.glob("systems/*/hosts.yaml")):
            loader.hosts(path, path.parent.name)
        if (directory / "waivers.yaml").exists():
            loader.waivers(directory / "waivers.yaml")
        for path in sorted(directory.glob("qualifications/*.yaml")):
            loader.qualification(path)
    if problems:
        raise DataError(problems)
    return loader.references()


def _collect(problems: list[Problem], read: Callable[[], T]) -> T | None:
    try:
        return read()
    except DataError as error:
        problems.extend(error.problems)
        return None


def claim_ids(directory: Path) -> frozenset[str]:
    """Return the ids of the published claims, which budgets may give as their reason."""
    if not directory.is_dir():
        return frozenset()
    found: set[str] = set()
    for path in find_yaml_files(directory):
        content = parse(path).content
        found |= {str(claim["id"]) for claim in content.get("claims", []) if "id" in claim}
    return frozenset(found)


class _Loader:
    """Reads files one by one, collecting problems in place of stopping at the first."""

    def __init__(self, metrics: Metrics, claims: frozenset[str], problems: list[Problem]) -> None:
        self._metrics = metrics
        self._claims = claims
        self._problems = problems
        self._classes: dict[str, HypervisorClass] = {}
        self._class_where: dict[str, str] = {}
        self._rules: dict[str, tuple[_Rule, ...]] = {}
        self._noise: list[_Noise] = []
        self._noise_where: dict[tuple[object, ...], str] = {}
        self._surveys: list[_Survey] = []
        self._waivers: list[Waiver] = []
        self._qualifications: dict[str, CheckSet] = {}

    def references(self) -> References:
        return References(
            self._metrics,
            dict(self._classes),
            tuple(self._waivers),
            self._qualifications,
            self._rules,
            tuple(sorted(self._noise, key=_Noise.rank)),
            tuple(sorted(self._surveys, key=_Survey.rank)),
        )

    def _read(self, path: Path, model: type[DataModelT]) -> tuple[Document, DataModelT] | None:
        def read() -> tuple[Document, DataModelT]:
            document = parse(path)
            return document, document.read(model)

        return _collect(self._problems, read)

    def _problem(self, document: Document, key: Key, message: str) -> None:
        self._problems.append(document.problem(key, message))

    def _members(self, document: Document, key: Key, target: TargetEntry) -> list[Metric]:
        """Return the metrics an entry is about, reporting a name that does not exist."""
        if target.metric is not None:
            if target.metric in self._metrics:
                return [self._metrics[target.metric]]
            known = suggest(target.metric, self._metrics)
            self._problem(document, (*key, "metric"), f"unknown metric {target.metric!r}: {known}")
            return []
        members = [metric for metric in self._metrics.values() if metric.family == target.family]
        if not members:
            known = suggest(str(target.family), self._metrics.families)
            self._problem(document, (*key, "family"), f"unknown family {target.family!r}: {known}")
        return members

    # -- budgets ------------------------------------------------------------------------------------

    def budgets(self, path: Path) -> None:
        read = self._read(path, BudgetsFile)
        if read is None:
            return
        document, content = read
        name = content.class_.name
        if name in self._classes:
            message = f"class {name!r} has its budgets already in {self._class_where[name]}."
            self._problem(document, ("class", "name"), message)
            return
        self._class_where[name] = document.where(("class", "name"))
        self._classes[name] = HypervisorClass(
            name,
            content.class_.gate,
            content.class_.qualifies,
            content.class_.description,
            content.class_.reason,
            tuple(content.class_.accelerators),
            content.class_.because or "",
        )
        section: tuple[tuple[str, Gate, list[BudgetEntry]], ...] = (
            ("budgets", "overhead", content.budgets),
            ("changes", "change", content.changes),
        )
        rules: list[_Rule] = []
        for title, gate, entries in section:
            for index, entry in enumerate(entries):
                rule = self._rule(document, (title, index), entry, gate)
                for other in rules:
                    if _contradict(rule, other):
                        message = (
                            f"contradicts the budget at {other.term.where}: both hold for the same results."
                        )
                        self._problem(document, (title, index), message)
                rules.append(rule)
        if not any(rule.gate == content.class_.gate for rule in rules):
            section_name = "budgets" if content.class_.gate == "overhead" else "changes"
            message = f"the gate of {name!r} is {content.class_.gate}, but `{section_name}` is empty."
            self._problem(document, ("class", "gate"), message)
        self._rules[name] = tuple(sorted(rules, key=_Rule.rank))

    def _rule(self, document: Document, key: Key, entry: BudgetEntry, gate: Gate) -> _Rule:
        for metric in self._members(document, key, entry):
            self._check_budget(document, key, entry, metric)
        self._check_numbers_with_unit(document, key, entry, gate)
        if gate == "overhead" and entry.margin_up_to is not None:
            message = "only the margin of a change may widen: how many pairs an overhead gets is open."
            self._problem(document, (*key, "margin_up_to"), message)
        if entry.reason.claim is not None and self._claims and entry.reason.claim not in self._claims:
            message = f"unknown claim {entry.reason.claim!r}: {suggest(entry.reason.claim, self._claims)}"
            self._problem(document, (*key, "reason", "claim"), message)
        reason = (
            Reason("claim", entry.reason.claim)
            if entry.reason.claim is not None
            else Reason("policy", str(entry.reason.policy))
        )
        margin = entry.margin
        term = Term(
            relative=entry.relative,
            absolute=None if entry.absolute is None else Quantity(entry.absolute.value, entry.absolute.unit),
            margin=Quantity(margin.value, margin.unit) if isinstance(margin, QuantityEntry) else margin,
            reason=reason,
            both=entry.both or "larger",
            low=-math.inf if entry.sizes is None else entry.sizes.low,
            high=math.inf if entry.sizes is None else entry.sizes.high,
            where=document.where(key),
            margin_up_to=entry.margin_up_to,
            at_most=entry.at_most,
        )
        return _Rule(entry, gate, term)

    def _check_numbers_with_unit(self, document: Document, key: Key, entry: BudgetEntry, gate: Gate) -> None:
        """Report what a small native value would let allow anything."""
        absolute, margin = entry.absolute is not None, isinstance(entry.margin, QuantityEntry)
        if gate == "change":
            for name, has_unit in (("absolute", absolute), ("margin", margin)):
                if has_unit:
                    message = "a change is a ratio of two overheads and has no unit: give it as a fraction."
                    self._problem(document, (*key, name), message)
            absolute = margin = False
        absolute = absolute and entry.both != "smaller"
        if (absolute or margin) and entry.at_most is None:
            message = (
                f"is missing: which fraction may {'`absolute`' if absolute else '`margin`'} come to at most "
                "where native is small? Without it, it would allow anything there."
            )
            self._problem(document, (*key, "at_most"), message)
        elif not (absolute or margin) and entry.at_most is not None:
            message = "bounds nothing here: remove it. It goes with a number with a unit."
            self._problem(document, (*key, "at_most"), message)
        elif absolute and entry.at_most is not None and entry.at_most <= (entry.relative or 0.0):
            message = "must be larger than `relative`, or `absolute` never counts."
            self._problem(document, (*key, "at_most"), message)

    def _check_budget(self, document: Document, key: Key, entry: BudgetEntry, metric: Metric) -> None:
        if entry.sizes is not None and metric.kind == "scalar":
            self._problem(document, (*key, "sizes"), f"{metric.name} is a scalar and has no sizes.")
        parts: tuple[tuple[str, object], ...] = (("absolute", entry.absolute), ("margin", entry.margin))
        for name, part in parts:
            if isinstance(part, QuantityEntry) and part.unit != metric.unit:
                message = f"wrong unit {part.unit!r}: {metric.name} is in {metric.unit}."
                self._problem(document, (*key, name, "unit"), message)
        most = entry.at_most or 0.0
        margin = entry.margin_up_to or (most if isinstance(entry.margin, QuantityEntry) else entry.margin)
        budget = most if entry.absolute is not None and entry.both != "smaller" else entry.relative or 0.0
        if metric.better == "higher" and budget + margin >= 1:
            message = f"impossible: budget plus margin would allow all of {metric.name} to be lost."
            blamed = "at_most" if most else "relative" if entry.relative else "margin"
            self._problem(document, (*key, blamed), message)

    # -- noise --------------------------------------------------------------------------------------

    def noise(self, path: Path, system: str | None) -> None:
        read = self._read(path, NoiseFile)
        if read is None:
            return
        document, content = read
        if content.class_ is not None and content.class_ not in self._classes:
            known = suggest(content.class_, self._classes)
            self._problem(document, ("class",), f"unknown class {content.class_!r}: {known}")
        for index, entry in enumerate(content.noise):
            key = ("noise", index)
            for metric in self._members(document, key, entry):
                if entry.points is not None and metric.kind == "scalar":
                    self._problem(document, (*key, "points"), f"{metric.name} is a scalar and has no points.")
            self._add_noise(document, key, entry, content.class_, system)

    def _add_noise(
        self, document: Document, key: Key, entry: NoiseEntry, class_name: str | None, system: str | None
    ) -> None:
        points = None if entry.points is None else tuple(entry.points)
        same = (system, class_name, entry.metric, entry.family, entry.setting, points)
        if same in self._noise_where:
            self._problem(document, key, f"the same noise is stated already at {self._noise_where[same]}.")
        self._noise_where[same] = document.where(key)
        prior = Prior(
            sigma=tuple(entry.sigma) if isinstance(entry.sigma, list) else entry.sigma,
            df=entry.df,
            source=entry.source,
            correlation=entry.correlation,
            common=entry.common,
            between=entry.between,
            between_df=math.inf if entry.between_df == "bound" else entry.between_df,
        )
        self._noise.append(_Noise(entry, class_name, system, prior, points))

    # -- hosts --------------------------------------------------------------------------------------

    def hosts(self, path: Path, system: str) -> None:
        read = self._read(path, HostsFile)
        if read is None:
            return
        document, content = read
        for index, entry in enumerate(content.hosts):
            self._members(document, ("hosts", index), entry)
            native, virtual = frozenset(entry.native), frozenset(entry.virtual)
            bound = HostBound(native, virtual, entry.bound, entry.means)
            self._surveys.append(_Survey(entry, system, bound))

    # -- waivers ------------------------------------------------------------------------------------

    def waivers(self, path: Path) -> None:
        read = self._read(path, WaiversFile)
        if read is None:
            return
        document, content = read
        for index, entry in enumerate(content.waivers):
            key = ("waivers", index)
            if entry.metric not in self._metrics:
                known = suggest(entry.metric, self._metrics)
                self._problem(document, (*key, "metric"), f"unknown metric {entry.metric!r}: {known}")
            if entry.class_ not in self._classes:
                known = suggest(entry.class_, self._classes)
                self._problem(document, (*key, "class"), f"unknown class {entry.class_!r}: {known}")
            elif entry.gate == "overhead" and self._classes[entry.class_].gate == "change":
                text = f"class {entry.class_!r} judges changes only: no overhead needs a waiver."
                self._problem(document, (*key, "gate"), text)
            metric = self._metrics.get(entry.metric)
            if metric and (entry.up_to <= 1 if metric.better == "lower" else entry.up_to >= 1):
                side = "above" if metric.better == "lower" else "below"
                text = f"{entry.up_to:g}x is no worse than native: for {metric.name} that is {side} 1."
                self._problem(document, (*key, "up_to"), text)
            waiver = Waiver(
                metric=entry.metric,
                setting=entry.setting,
                gate=entry.gate,
                up_to=entry.up_to,
                hypervisor_class=entry.class_,
                build=entry.build,
                owner=entry.owner,
                reason=entry.reason,
                expires=entry.expires,
                where=document.where(key),
            )
            for other in self._waivers:
                if (other.metric, other.setting, other.gate, other.hypervisor_class, other.build) == (
                    waiver.metric,
                    waiver.setting,
                    waiver.gate,
                    waiver.hypervisor_class,
                    waiver.build,
                ):
                    self._problem(document, key, f"the same result is waived already at {other.where}.")
            self._waivers.append(waiver)

    # -- qualifications -----------------------------------------------------------------------------

    def qualification(self, path: Path) -> None:
        read = self._read(path, QualificationFile)
        if read is None:
            return
        document, content = read
        checks: list[Asked] = []
        for index, entry in enumerate(content.checks):
            asked = Asked(entry.check, entry.where)
            if any(other.check == asked.check for other in checks):
                self._problem(document, ("checks", index, "check"), f"{asked.check!r} is asked for already.")
            checks.append(asked)
        for index, name in enumerate(content.classes):
            key = ("classes", index)
            if name not in self._classes:
                self._problem(document, key, f"unknown class {name!r}: {suggest(name, self._classes)}")
            elif not self._classes[name].qualifies:
                self._problem(document, key, f"class {name!r} qualifies no build: remove it here.")
            elif name in self._qualifications:
                self._problem(document, key, f"what class {name!r} asks for stands in another file already.")
            self._qualifications[name] = CheckSet(content.scope, tuple(checks))


def _contradict(rule: _Rule, other: _Rule) -> bool:
    """Return whether two entries of one rank hold for the same results."""

    def about(rule: _Rule) -> tuple[object, ...]:
        return rule.gate, rule.target.metric, rule.target.family, rule.target.setting, rule.sized

    overlap = rule.term.low <= other.term.high and other.term.low <= rule.term.high
    return about(rule) == about(other) and overlap


def expiry_problems(references: References, today: date) -> Iterator[Problem]:
    """Yield one problem for each waiver that has expired, for whoever reviews the data."""
    for waiver in references.expired(today):
        file, _, line = waiver.where.rpartition(":")
        key = dotted(("expires",))
        yield Problem(
            file, int(line), key, f"expired on {waiver.expires}: renew it with a reason, or remove it."
        )
