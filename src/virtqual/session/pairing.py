"""From the runs of a session to series of pairs, and to the cases that are judged."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from virtqual.errors import UsageError
from virtqual.identity import seen
from virtqual.preflight.admit import Refused
from virtqual.references import NoReferenceError, References
from virtqual.runs import Declared, Result, Run
from virtqual.verdict import Case
from virtqual.verdict.batches import choose_pairs, places_of
from virtqual.verdict.budget import Budget, Gate
from virtqual.verdict.metric import Metric
from virtqual.verdict.noise import Prior
from virtqual.verdict.pairs import Sample, Series, pair_up

#: Noise of a metric that no reviewed file knows: that of most families of references/noise/default.yaml, and
#: of little weight, since it may come from any machine. 1.5 % of sessions have a false OVER if 11 series are
#: all just at their budgets and pairs vary by 12 %; with six degrees of freedom 7 % would have one.
DECLARED_NOISE = Prior(sigma=0.03, df=2, source="stated: nothing is known of the metric", between=0.003)


@dataclass(frozen=True)
class Before:
    """The earlier session, as far as changes since then are judged.

    Attributes
    ----------
    runs
        Its runs, after admission.
    unfit
        Reasons by name of check for which the change may not be judged.
    """

    runs: Sequence[Run]
    unfit: Refused


def series_of(
    runs: Iterable[Run], references: References, only: Container[str] | None = None
) -> dict[str, Series]:
    """Pair up the samples of runs, by series id in order of appearance.

    Parameters
    ----------
    runs
        Of one session.
    references
        Metrics.
    only
        Ids of the series that are wanted; all if not given.

    Raises
    ------
    virtqual.verdict.pairs.PairingError
        For what only a bug of the harness produces, e.g. other message sizes on one side.
    virtqual.references.metrics.UnknownMetricError
        A run names a metric that no file declares.
    """
    samples_by_series: dict[str, tuple[Result, list[Sample]]] = {}
    for run in runs:
        for result in run.results:
            if only is not None and result.series not in only:
                continue
            _, samples = samples_by_series.setdefault(result.series, (result, []))
            samples.append(_sample(run, result))
    series = {}
    for name, (first, samples) in samples_by_series.items():
        metric = _declared(first) if first.declared else references.metrics[first.metric]
        series[name] = pair_up(metric, first.setting, first.points, samples)
    return series


def checks_of(runs: Iterable[Run]) -> dict[str, str]:
    """Return the name of the check that measured each series, by series id."""
    return {result.series: run.check for run in runs for result in run.results}


def cases_of(
    runs: Sequence[Run],
    references: References,
    hypervisor_class: str,
    *,
    system: str = "",
    refused: Refused | None = None,
    before: Before | None = None,
    interrupted: Mapping[str, frozenset[int]] | None = None,
) -> list[Case]:
    """Return what the verdict needs to judge every series of some runs.

    A class whose gate is the overhead gets two cases a series when there is an earlier session: the overhead,
    and its change since then.

    Parameters
    ----------
    runs
        Of this session, after admission.
    references
        Budgets and noise.
    hypervisor_class
        The class of budgets.
    system
        Whose own noise history counts, where it has one.
    refused
        Reasons by name of check for which nothing of it may be judged.
    before
        The earlier session; of a series that it does not have the change is refused.
    interrupted
        Numbers of pairs by check that an interruption cut off.

    Raises
    ------
    UsageError
        No budget covers a metric under this class.
    """
    checks = checks_of(runs)
    earlier = series_of(before.runs if before else (), references, checks)
    was = checks_of(before.runs if before else ())
    gates: list[Gate] = ["change"]
    if references.hypervisor_class(hypervisor_class).gate == "overhead":
        # Over budget, and worse than before: two answers, and either may be the bad one.
        gates = ["overhead", "change"] if before else ["overhead"]
    declarations = {result.series: result.declared for run in runs for result in run.results}
    cases = []
    for name, uncut in series_of(runs, references).items():
        series = replace(uncut, cut_off=(interrupted or {}).get(checks[name], frozenset()))
        for gate in gates:
            reasons = (refused or {}).get(checks[name], ())
            baseline = None
            if gate == "change" and before:
                baseline, more = baseline_of(series, earlier.get(name))
                for check in dict.fromkeys((checks[name], was.get(name, ""))):
                    reasons = (*reasons, *before.unfit.get(check, ()))
                reasons = (*reasons, *more)
            declared = declarations.get(name)
            budget, prior = (
                _make_declared_limits(declared, hypervisor_class, gate)
                if declared
                else _find_reviewed_limits(series, references, hypervisor_class, gate, system)
            )
            bounds = (_host_bound(measured, references, system) for measured in (series, baseline))
            cases.append(Case(series, budget, prior, baseline, reasons, *bounds))
    return cases


def _host_bound(series: Series | None, references: References, system: str) -> float:
    """Return how much the hosts of both sides differ at most, log units; infinity if no survey says."""
    if series is None or not series.valid:
        return math.inf
    places = places_of(series, choose_pairs(series))
    if places.kind not in ("fixed", "rotated"):
        return math.inf
    return references.host_bound(series, system, *places.roles, rotated=places.kind == "rotated")


def _find_reviewed_limits(
    series: Series, references: References, hypervisor_class: str, gate: Gate, system: str
) -> tuple[Budget, Prior]:
    try:
        budget = references.budget(series, hypervisor_class, gate=gate)
        return budget, references.prior(series, hypervisor_class=hypervisor_class, system=system)
    except NoReferenceError as error:
        raise UsageError(str(error)) from error


def declared_noise(gate: Gate) -> Prior:
    """Return the noise of a metric that no reviewed file knows.

    Boots are taken to differ where two sessions are compared: there are two of them at least.
    """
    return DECLARED_NOISE if gate == "change" else DECLARED_NOISE.model_copy(update={"between": 0.0})


def _make_declared_limits(declared: Declared, hypervisor_class: str, gate: Gate) -> tuple[Budget, Prior]:
    """Return budget and noise of a metric that its check declares by itself."""
    budget = Budget.of(
        declared.budget - 1,
        margin=declared.margin,
        reason="declared by its check",
        hypervisor_class=hypervisor_class,
        gate=gate,
    )
    return budget, declared_noise(gate)


def _declared(result: Result) -> Metric:
    """Return the metric that a check declares by itself."""
    assert result.declared is not None
    return Metric(
        name=result.metric,
        unit=result.declared.unit,
        better=result.declared.better,
        family="declared",
        description="declared by its check",
    )


def baseline_of(series: Series, earlier: Series | None) -> tuple[Series | None, tuple[str, ...]]:
    """Return the earlier session's series, or why it is none to compare with."""
    if earlier is None:
        return None, ("the earlier session did not measure it",)
    if earlier.points != series.points:
        return None, ("the earlier session measured other sizes",)
    return earlier, ()


def _sample(run: Run, result: Result) -> Sample:
    boots = [
        node.boot if (node := run.identity.get(name)) and seen(node.boot) else None for name in run.nodes
    ]
    return Sample(
        side=run.side,
        number=run.pair,
        values=result.values,
        start=run.start,
        end=run.end,
        invalid=result.invalid,
        points=result.points,
        node="+".join(sorted(run.nodes)),
        turn=run.turn,
        host=_together([run.hosts.get(node) for node in run.nodes]),
        boot=_together(boots) if run.side == "virtual" else "",
    )


def _together(names: Iterable[str | None]) -> str:
    """Return names joined, each once: a machine with two nodes is one. Empty where one is not known."""
    unique = set(names)
    return "" if None in unique else "+".join(sorted(name for name in unique if name))
