"""From the runs of a session to series of pairs, and to the cases that are judged."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from virtqual.identity import seen
from virtqual.preflight.admit import Admitted, unfit_since
from virtqual.references import References
from virtqual.runs import Result, Run
from virtqual.verdict import Case
from virtqual.verdict.budget import Budget, Gate
from virtqual.verdict.metric import Metric
from virtqual.verdict.noise import Prior
from virtqual.verdict.pairs import Sample, Series, pair_up
from virtqual.verdict.places import places_of

_NOISE_SOURCE = "stated: nothing is known of the metric"
#: Noise of a metric that no reviewed file knows, by gate: that of most families of
#: references/noise/default.yaml, and of little weight, since it may come from any machine. 1.5 % of sessions
#: have a false OVER if 11 series are all just at their budgets and pairs vary by 12 %; with six degrees of
#: freedom 7 % would have one. Boots are taken to differ where two sessions are compared.
DECLARED_NOISE: dict[Gate, Prior] = {
    "overhead": Prior(sigma=0.03, df=2, source=_NOISE_SOURCE, between=0.0),
    "change": Prior(sigma=0.03, df=2, source=_NOISE_SOURCE, between=0.003),
}


def series_of(
    runs: Iterable[Run],
    references: References,
    wanted_ids: Container[str] | None = None,
    *,
    with_reported: bool = False,
) -> dict[str, Series]:
    """Pair up the samples of runs, by series id in order of appearance; `wanted_ids` None is all.

    Values at sizes that are only reported are left out unless `with_reported` is set.

    Raises
    ------
    virtqual.verdict.pairs.PairingError
        For samples that only a bug of the harness produces, e.g. other message sizes on one side.
    virtqual.verdict.metric.UnknownMetricError
        A run names a metric that no file declares.
    """
    samples_by_series: dict[str, tuple[Result, list[Sample]]] = {}
    for run in runs:
        for result in run.results:
            if wanted_ids is None or result.series in wanted_ids:
                chosen = result
                if result.points and not with_reported:
                    chosen = result.up_to(references.metrics[result.metric].judged_up_to)
                if chosen.values:
                    _, samples = samples_by_series.setdefault(chosen.series, (chosen, []))
                    samples.append(_make_sample(run, chosen))
    series = {}
    for name, (first, samples) in samples_by_series.items():
        metric = references.metrics[first.metric] if first.declared is None else _make_metric(first)
        series[name] = pair_up(metric, first.setting, first.points, samples)
    return series


def _make_sample(run: Run, result: Result) -> Sample:
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
        host=_join_names([run.hosts.get(node) for node in run.nodes]),
        boot=_join_names(boots) if run.side == "virtual" else "",
    )


def _join_names(names: Iterable[str | None]) -> str:
    """Return the different names, joined; empty if one is None, i.e. unknown."""
    unique = set(names)
    return "" if None in unique else "+".join(sorted(name for name in unique if name))


def _make_metric(result: Result) -> Metric:
    """Return the metric that a check declares by itself."""
    assert result.declared is not None
    return Metric(
        name=result.metric,
        unit=result.declared.unit,
        better=result.declared.better,
        family="declared",
        description="declared by its check",
    )


def checks_of(runs: Iterable[Run]) -> dict[str, str]:
    """Return the name of the check that measured each series, by series id."""
    return {result.series: run.check for run in runs for result in run.results}


def cases_of(
    admitted: Admitted,
    references: References,
    hypervisor_class: str,
    *,
    system: str = "",
    earlier: Admitted | None = None,
    interrupted: Mapping[str, frozenset[int]] | None = None,
) -> list[Case]:
    """Return a case for each series of a session and each gate that the class has for it.

    Parameters
    ----------
    system
        Its own noise history counts, if it has one.
    earlier
        The earlier session; the change of a series that it did not measure is refused.
    interrupted
        Numbers of pairs by check of which a run failed, or that an interruption cut off.

    Raises
    ------
    NoReferenceError
        No budget covers a metric under this class, or nothing is known of its noise.
    """
    checks = checks_of(admitted.runs)
    earlier_checks = checks_of(earlier.runs) if earlier else {}
    earlier_series = series_of(earlier.runs, references, checks) if earlier else {}
    unfit = unfit_since(admitted, earlier) if earlier else {}
    declarations = {result.series: result.declared for run in admitted.runs for result in run.results}
    gates = list_gates(references.hypervisor_class(hypervisor_class).gate, has_earlier=earlier is not None)
    cases = []
    for name, all_pairs in series_of(admitted.runs, references).items():
        check, declared = checks[name], declarations[name]
        series = replace(all_pairs, cut_off=(interrupted or {}).get(check, frozenset()))
        for gate in gates:
            reasons, baseline = admitted.refused.get(check, ()), None
            if gate == "change" and earlier:
                baseline, mismatch = baseline_of(series, earlier_series.get(name))
                for unfit_check in dict.fromkeys((check, earlier_checks.get(name, ""))):
                    reasons += unfit.get(unfit_check, ())
                reasons += mismatch
            if declared:
                budget = Budget.build(declared.budget - 1, margin=declared.margin, gate=gate)
                prior = DECLARED_NOISE[gate]
            else:
                budget = references.budget(series, hypervisor_class, gate=gate)
                prior = references.prior(series, hypervisor_class, system)
            bounds = (_host_bound(measured, references, system) for measured in (series, baseline))
            cases.append(Case(series, budget, prior, baseline, reasons, *bounds))
    return cases


def list_gates(class_gate: Gate, *, has_earlier: bool) -> list[Gate]:
    """Return the gates of each series: with an earlier session, also the change since then."""
    if class_gate == "change":
        return ["change"]
    return ["overhead", "change"] if has_earlier else ["overhead"]


def baseline_of(series: Series, earlier: Series | None) -> tuple[Series | None, tuple[str, ...]]:
    """Return the earlier session's series, or the reason why it cannot be compared with."""
    if earlier is None:
        return None, ("the earlier session did not measure it",)
    if earlier.points != series.points:
        return None, ("the earlier session measured other sizes",)
    return earlier, ()


def _host_bound(series: Series | None, references: References, system: str) -> float:
    """Return how much the hosts of both sides differ at most, log units; infinity if no survey says."""
    if series is None or not series.valid:
        return math.inf
    places = places_of(series.chosen)
    if places.kind not in ("fixed", "rotated"):
        return math.inf
    return references.host_bound(series, system, *places.roles, rotated=places.kind == "rotated")
