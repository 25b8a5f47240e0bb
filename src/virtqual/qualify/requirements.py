"""The conditions of the answer "qualified" that are known before a session runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from virtqual import paths
from virtqual.files.wording import list_names
from virtqual.harness import catalogue
from virtqual.harness.catalogue import Entry
from virtqual.references import project_references
from virtqual.session.session import Request
from virtqual.session.summary import summaries_of
from virtqual.site.systems import System
from virtqual.stack.manifest import load_recipe
from virtqual.stack.spack import FILE as SPACK_PROGRAMS
from virtqual.verdict.budget import HypervisorClass
from virtqual.verdict.pairs import SIDES

#: A sentence names so many missing checks.
MAX_CHECKS_SHOWN = 6


def foresee_answer(
    request: Request,
    system: System,
    chosen: HypervisorClass,
    entries: Sequence[Entry],
    planned: Sequence[Entry],
    features: Set[str],
    *,
    rotates: bool,
) -> str:
    """Return whether a session could be called qualified, or what forbids it and how to get it.

    `entries` are all checks, and `planned` those that the session would run. `features` are those of the
    stack. All nodes work at once if it `rotates`.
    """
    check_set = project_references().qualifications.get(chosen.name)
    absent: list[str] = []
    if chosen.unqualified:
        obstacles = [f"class {chosen.name} qualifies no build ({chosen.unqualified})"]
    elif check_set is None:
        obstacles = [f"no file in references/qualifications/ says what class {chosen.name} asks for"]
    else:
        of_system = (system.partition(side).all_features for side in SIDES)
        cases, planned_cases = catalogue.cases_of(entries, check_set.scope), {entry.case for entry in planned}
        missing, absent = check_set.find_missing(
            cases, set().union(features, *of_system), planned_cases.__contains__
        )
        obstacles = list(_list_other_obstacles(request, system, planned, rotates=rotates))
        if names := [check for check, of_check in missing.items() if of_check]:
            # A check without a case in the scope of the class is missing by its own name.
            all_missing = set().union(*missing.values())
            lacking = [entry for entry in entries if {entry.case, entry.check} & all_missing]
            remedies = "; ".join(_list_remedies(request, lacking, features)) or "see `Not run here`"
            shown = list_names(names, MAX_CHECKS_SHOWN)
            obstacles.insert(0, f"class {chosen.name} also asks for {shown} ({remedies})")
    if obstacles:
        return f"This session cannot be called qualified: {'; '.join(obstacles)}."
    without = f" (without {', '.join(absent)})" if absent else ""
    return f"This session can be called qualified{without} if every metric is within its budget."


def _list_remedies(request: Request, lacking: Sequence[Entry], features: Set[str]) -> Iterator[str]:
    """Yield how a session gets checks that it would not run."""
    if not request.full and any("quick" not in entry.tags for entry in lacking):
        yield "--full"
    if len(catalogue.select(lacking, request.names, request.tags)) < len(lacking):
        yield "no -n and no -t"
    if absent := {entry.feature for entry in lacking if entry.feature} - features:
        packages = {
            feature: program["package"]
            for program in load_recipe(SPACK_PROGRAMS)["programs"].values()
            for feature in program["features"]
        }
        yield f"ci/build-stack {' '.join(sorted({packages.get(name, name) for name in absent}))}"


def _list_other_obstacles(
    request: Request, system: System, planned: Sequence[Entry], *, rotates: bool
) -> Iterator[str]:
    """Yield what forbids the answer besides missing checks."""
    virtual = system.virtual_extras
    if request.fast:
        yield "--fast takes two pairs, which can lack rare slow runs"
    if virtual.numa_hidden:
        yield "the VMs hide NUMA nodes on purpose (extras.numa_hidden)"
    if not virtual.nodes_of_hosts:
        yield "the hosts of the VMs are not stated (extras.nodes_of_hosts)"
    elif rotates and (names := _find_unsurveyed_checks(system.name, planned)):
        checks = list_names(names, MAX_CHECKS_SHOWN)
        yield f"no survey says how far hosts differ in {checks} (docs/system-file.md, A survey of hosts)"
    # The runs of a check that takes more than half of the nodes rotate over the same VMs.
    of_one_boot = list(dict.fromkeys(entry.check for entry in planned if 2 * entry.nodes > virtual.nodes))
    if not virtual.recreate_vms and (of_one_boot or not rotates):
        vms = f"the VMs of {list_names(of_one_boot, MAX_CHECKS_SHOWN)} have" if rotates else "the VM has"
        yield f"{vms} one boot (extras.recreate_vms creates VMs anew)"


def _find_unsurveyed_checks(system: str, planned: Sequence[Entry]) -> list[str]:
    """Return the checks with a metric that no survey of a system bounds, or whose metrics are not known.

    The metrics of a case are those that it had in its latest session.
    """
    references = project_references()
    surveys, cases = references.surveys.get(system, ()), {entry.case for entry in planned}
    metrics: dict[str, tuple[tuple[str, str], ...]] = {}
    for _, summary in summaries_of(system, paths.sessions()) if surveys else ():
        metrics = {**summary.metrics, **metrics}
        if metrics.keys() >= cases:
            break
    surveyed = {
        case
        for case, names in metrics.items()
        if names
        and all(
            name not in references.metrics
            or any(survey.applies_to(references.metrics[name], setting) for survey in surveys)
            for name, setting in names
        )
    }
    return list(dict.fromkeys(entry.check for entry in planned if entry.case not in surveyed))
