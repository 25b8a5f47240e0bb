"""Read the reviewed data of ``references/``, and report each mistake with file, line and key."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from virtqual import paths
from virtqual.files.datafile import DataModel, Problem, Text
from virtqual.files.datareader import DataFile, DataReader
from virtqual.files.wording import Key, suggest
from virtqual.references.hosts import HostSurvey
from virtqual.references.metrics import load_metrics
from virtqual.references.published import find_claim_ids
from virtqual.references.qualification import CheckSet, RequiredCheck, Scope
from virtqual.references.references import SECTIONS, References
from virtqual.verdict.budget import Gate, HypervisorClass, Term
from virtqual.verdict.metric import Metric, Metrics, Target
from virtqual.verdict.noise import Prior
from virtqual.verdict.waiver import Waiver

#: The files and directories of a site's ``references/``.
SITE_NAMES = (
    "budgets",
    "inputs",
    "marks.yaml",
    "metrics",
    "noise",
    "preflight.yaml",
    "qualifications",
    "systems",
    "waivers.yaml",
)


class _BudgetsFile(DataModel):
    """A class with the budgets of the overhead, and of its change since an earlier session.

    A site's file may name the class of a file of the project instead of describing it anew.
    """

    schema_: Annotated[Literal["virtqual-budgets/1"], Field(alias="schema")]
    class_: Annotated[HypervisorClass | Text, Field(alias="class")]
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


class _QualificationFile(DataModel):
    schema_: Annotated[Literal["virtqual-qualification/1"], Field(alias="schema")]
    classes: Annotated[list[Text], Field(min_length=1)]
    scope: Scope
    reason: Text
    checks: Annotated[list[RequiredCheck], Field(min_length=1)]


@cache
def project_metrics() -> Metrics:
    """Return the metrics of project and site alone: a ReFrame that judges nothing needs no more."""
    return load_metrics(paths.references() / "metrics", paths.site_references() / "metrics")


@cache
def project_references() -> References:
    """Return the reviewed data of project and site, read once a process."""
    return load_references(paths.references(), paths.site_references())


def load_references(directory: Path, site: Path | None = None) -> References:
    """Read ``references/``: metrics, budgets, noise, hosts, waivers, qualifications.

    ``metrics``, ``budgets`` and ``noise`` must exist; ``systems``, ``published``, ``qualifications`` and
    ``waivers.yaml`` may be missing. The site's directory may lack anything. Its budgets, noise and surveys go
    before those of the same rank, its waivers and qualifications replace the others of their classes.

    Raises
    ------
    DataError
        With file, line and key of every mistake, those of the metrics first.
    """
    reader = DataReader()
    metrics = load_metrics(directory / "metrics", site and site / "metrics")
    references = References(metrics, find_claim_ids(directory / "published"))
    _add_directory(directory, reader, references)
    if site is not None and site.is_dir():
        _report_unread_names(site, reader)
        _add_directory(site, reader, references, is_site=True)
    reader.raise_problems()
    for mapping in (references.terms, references.priors, references.surveys):
        for entries in mapping.values():
            entries.sort(key=lambda entry: entry.rank)
    return references


def _report_unread_names(site: Path, reader: DataReader) -> None:
    """Report files and directories of a site's references that are not read, such as a misspelt one."""
    for path in sorted(site.iterdir()):
        is_data = path.is_dir() or path.suffix in (".yaml", ".yml")
        if is_data and path.name not in SITE_NAMES and not path.name.startswith("."):
            message = f"is not read: {suggest(path.name, SITE_NAMES)}"
            reader.problems.append(Problem(str(path), None, "", message))


def _add_directory(
    directory: Path, reader: DataReader, references: References, *, is_site: bool = False
) -> None:
    """Add what a directory states, before what was added earlier."""
    # An entry of the site may be about the target of an entry of the project.
    reader.places.clear()
    for budgets in reader.read(reader.find_files(directory / "budgets", optional=is_site), _BudgetsFile):
        _add_budgets(budgets, references)
    for noise in reader.read(reader.find_files(directory / "noise", optional=is_site), _NoiseFile):
        _add_noise(noise, references, None)
    for noise in reader.read(sorted(directory.glob("systems/*/noise.yaml")), _NoiseFile):
        _add_noise(noise, references, noise.document.path.parent.name)
    for hosts in reader.read(sorted(directory.glob("systems/*/hosts.yaml")), _HostsFile):
        for index, survey in enumerate(hosts.content.hosts):
            _find_metrics(hosts, ("hosts", index), survey, references.metrics)
        system = hosts.document.path.parent.name
        references.surveys[system] = [*hosts.content.hosts, *references.surveys.get(system, ())]
    for waivers in reader.read(directory.glob("waivers.yaml"), _WaiversFile):
        _add_waivers(waivers, references)
    for qualification in reader.read(sorted(directory.glob("qualifications/*.yaml")), _QualificationFile):
        _add_qualification(qualification, references, is_site=is_site)


def _find_metrics(file: DataFile[Any], key: Key, target: Target, metrics: Metrics) -> list[Metric]:
    """Return the metrics that an entry is about; report a name that does not exist."""
    if target.metric is not None:
        exists = file.has_name((*key, "metric"), "metric", target.metric, metrics)
        return [metrics[target.metric]] if exists else []
    if not target.family:
        file.report(key, "name either a `metric` or a `family`.")
    for family in target.family:
        file.has_name((*key, "family"), "family", family, metrics.families)
    return [metric for metric in metrics.values() if metric.family in target.family]


# -- budgets --------------------------------------------------------------------------------------------


def _add_budgets(file: DataFile[_BudgetsFile], references: References) -> None:
    content, described = file.content, file.content.class_
    name = described if isinstance(described, str) else described.name
    if not file.is_first(("class",), ("class", name), f"class {name!r} has its budgets already in"):
        return
    if not isinstance(described, str):
        references.classes[name] = described
    elif not file.has_name(("class",), "class", name, references.classes):
        return
    entries: dict[Gate, tuple[Term, ...]] = {"overhead": content.budgets, "change": content.changes}
    for gate, terms in entries.items():
        for index, term in enumerate(terms):
            key = (SECTIONS[gate], index)
            _check_term(file, key, term, gate, references)
            for earlier_index, earlier in enumerate(terms[:index]):
                if term.contradicts(earlier):
                    place = file.document.where((SECTIONS[gate], earlier_index))
                    file.report(key, f"contradicts the budget at {place}: both hold for the same results.")
        # Within one file: a site's budget without sizes comes before the project's with sizes.
        by_sizes = sorted(terms, key=lambda term: term.sizes is None)
        references.terms[name, gate] = [*by_sizes, *references.terms.get((name, gate), ())]
    own_gate = references.classes[name].gate
    if not references.terms[name, own_gate]:
        message = f"the gate of {name!r} is {own_gate}, but `{SECTIONS[own_gate]}` is empty."
        file.report(("class", "gate"), message)


def _check_term(
    file: DataFile[_BudgetsFile], key: Key, term: Term, gate: Gate, references: References
) -> None:
    for metric in _find_metrics(file, key, term, references.metrics):
        _check_term_of_metric(file, key, term, metric, term.max_margin if gate == "change" else term.margin)
    if gate == "change" and term.absolute is not None:
        message = "a change is a ratio of two overheads and has no unit: remove it and `at_most`."
        file.report((*key, "absolute"), message)
    if gate == "overhead" and term.margin_up_to is not None:
        message = "only the margin of a change may widen: how many pairs an overhead gets is open."
        file.report((*key, "margin_up_to"), message)
    if term.reason.claim is not None and references.claims:
        file.has_name((*key, "reason", "claim"), "claim", term.reason.claim, references.claims)


def _check_term_of_metric(
    file: DataFile[_BudgetsFile], key: Key, term: Term, metric: Metric, max_margin: float
) -> None:
    if term.sizes is not None and metric.kind == "scalar":
        file.report((*key, "sizes"), f"{metric.name} is a scalar and has no sizes.")
    if term.absolute is not None and term.absolute.unit != metric.unit:
        message = f"wrong unit {term.absolute.unit!r}: {metric.name} is in {metric.unit}."
        file.report((*key, "absolute", "unit"), message)
    if metric.better == "higher" and (term.at_most or term.relative) + max_margin >= 1:
        wrong_key = "at_most" if term.at_most else "relative" if term.relative else "margin"
        message = f"impossible: budget plus margin would allow all of {metric.name} to be lost."
        file.report((*key, wrong_key), message)


# -- noise, waivers, qualifications ---------------------------------------------------------------------


def _add_noise(file: DataFile[_NoiseFile], references: References, system: str | None) -> None:
    class_name = file.content.class_
    if class_name is not None:
        file.has_name(("class",), "class", class_name, references.classes)
    for index, prior in enumerate(file.content.noise):
        key, sigma, points = ("noise", index), prior.sigma, prior.points
        for metric in _find_metrics(file, key, prior, references.metrics):
            if points is not None and metric.kind == "scalar":
                file.report((*key, "points"), f"{metric.name} is a scalar and has no points.")
        if isinstance(sigma, tuple) != (points is not None):
            file.report(key, "a list of `sigma` goes with a list of `points`.")
        elif isinstance(sigma, tuple) and points is not None and len(sigma) != len(points):
            file.report(key, f"{len(sigma)} values of `sigma` for {len(points)} `points`.")
        for target in prior.family or (prior.metric,):
            identity = ("noise", system, class_name, target, prior.setting, points)
            file.is_first(key, identity, "the same noise is stated already at")
    place = system, class_name
    references.priors[place] = [*file.content.noise, *references.priors.get(place, ())]


def _add_waivers(file: DataFile[_WaiversFile], references: References) -> None:
    classes = {waiver.hypervisor_class for waiver in file.content.waivers}
    references.waivers[:] = [w for w in references.waivers if w.hypervisor_class not in classes]
    for index, entry in enumerate(file.content.waivers):
        key = ("waivers", index)
        waiver = entry.read_from(str(file.document.path), file.document.line(key))
        references.waivers.append(waiver)
        file.is_first(key, ("waiver", waiver.subject), "the same result is waived already at")
        class_name = waiver.hypervisor_class
        if (
            file.has_name((*key, "class"), "class", class_name, references.classes)
            and waiver.gate == "overhead"
            and references.classes[class_name].gate == "change"
        ):
            message = f"class {class_name!r} judges changes only: no overhead needs a waiver."
            file.report((*key, "gate"), message)
        if not file.has_name((*key, "metric"), "metric", waiver.metric, references.metrics):
            continue
        if references.metrics[waiver.metric].better == "higher" and waiver.up_to >= 1:
            message = f"impossible: it would allow all of {waiver.metric} to be lost."
            file.report((*key, "up_to"), message)


def _add_qualification(file: DataFile[_QualificationFile], references: References, *, is_site: bool) -> None:
    checks: list[RequiredCheck] = []
    for index, required in enumerate(file.content.checks):
        if required.check in [earlier.check for earlier in checks]:
            file.report(("checks", index, "check"), f"{required.check!r} is asked for already.")
        line = file.document.line(("checks", index))
        checks.append(required.read_from(str(file.document.path), line))
    check_set = CheckSet(file.content.scope, tuple(checks), is_site)
    for index, name in enumerate(file.content.classes):
        key = ("classes", index)
        if file.has_name(key, "class", name, references.classes):
            if not references.classes[name].qualifies:
                file.report(key, f"class {name!r} qualifies no build: remove it here.")
            else:
                file.is_first(key, ("qualification", name), f"what class {name!r} asks for stands already at")
        references.qualifications[name] = check_set
