"""What must hold whatever was measured."""

import math
from dataclasses import replace
from itertools import pairwise, permutations, product

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from made_series import REFERENCES, alone, judge_session, samples_of

from virtqual.references.metrics import load_metrics
from virtqual.verdict import Case, Outcome, Prior, Verdict, judge_sessions
from virtqual.verdict.budget import Budget, Sizes
from virtqual.verdict.notation import describe_slowdown, format_size
from virtqual.verdict.pairs import SIDES, Machines, Pair, Sample, Series, pair_up
from virtqual.verdict.rule import LOOKS
from virtqual.verdict.texts import TOO_GOOD

METRICS = load_metrics(REFERENCES / "metrics")
SCALARS = [METRICS["hpl"], METRICS["lammps_loop_time"]]
SIZES = (2.0, 8.0, 64.0, 1024.0)

level = st.floats(-0.5, 0.5)
noise = st.floats(-0.08, 0.08)
counts = st.sampled_from((*LOOKS, 3, 5, 10, 20))
metrics = st.sampled_from(SCALARS)
priors = st.builds(Prior, sigma=st.floats(0.003, 0.1), df=st.floats(2, 50), source=st.just("drawn"))
budgets = st.builds(lambda b, m: Budget.build(b, margin=m), st.floats(0, 0.2), st.floats(0.01, 0.3))


@st.composite
def differences(draw, pairs=None, base=level):
    count = draw(counts) if pairs is None else pairs
    middle = draw(base)
    return [middle + value for value in draw(st.lists(noise, min_size=count, max_size=count))]


def series_of(metric, values, **how):
    return pair_up(metric, "here", (), samples_of(metric, [[value] for value in values], **how))


def same(one, other, shown=0.0):
    """Two verdicts are the same; bounds may differ by `shown`, estimates by a unit of their seventh digit."""
    assert one.outcome is other.outcome
    assert one.overhead.log == pytest.approx(other.overhead.log, abs=2e-7 if shown else 1e-9)
    for end in ("lower", "upper"):
        bound, other_bound = getattr(one.overhead, end), getattr(other.overhead, end)
        assert bound == pytest.approx(other_bound, abs=1e-9 + shown, rel=1e-6 if shown else 0)


@given(metrics, differences(), budgets, priors, st.randoms())
def test_the_order_of_pairs_between_two_looks_does_not_matter(metric, values, budget, prior, random):
    """The first four pairs are one part, since their answer decides which pairs convict; and so on."""
    shuffled = []
    for first, last in pairwise((0, *LOOKS, len(values))):
        part = values[first:last]
        random.shuffle(part)
        shuffled += part
    same(alone(series_of(metric, values), budget, prior), alone(series_of(metric, shuffled), budget, prior))


@given(metrics, differences(), budgets, priors, st.floats(1e-6, 1e6))
def test_the_unit_does_not_matter(metric, values, budget, prior, factor):
    same(
        # With all digits that count: a round number shows a coarser step in one unit than in another.
        alone(series_of(metric, values, native=10.123457), budget, prior),
        alone(series_of(metric, values, native=10.123457 * factor), budget, prior),
        # Seven digits of a value count: the last one of another unit is another share of it, on each side.
        shown=2e-6,
    )


@given(metrics, differences(), priors)
def test_swapping_native_and_virtual_turns_the_sign(metric, values, prior):
    there = series_of(metric, values)
    swapped = Series(
        metric,
        "here",
        (),
        tuple(
            Pair(p.number, replace(p.virtual, side="native"), replace(p.native, side="virtual"))
            for p in there.pairs
        ),
    )
    assert swapped.differences == pytest.approx(-there.differences)
    budget = Budget.build(0.0, margin=0.1)
    one, other = alone(there, budget, prior), alone(swapped, budget, prior)
    assert {one.outcome, other.outcome} != {Outcome.OVER}
    # What speaks for the guest is pulled in and what speaks against it is not: both look the worse for it.
    assert one.overhead.log + other.overhead.log >= -1e-9
    wide = prior.model_copy(update={"sigma": 0.1})  # wide enough for nothing to be pulled in
    one, other = alone(there, budget, wide), alone(swapped, budget, wide)
    assert one.overhead.log == pytest.approx(-other.overhead.log, abs=1e-9)


@given(differences(), priors)
def test_direction_only_changes_words(values, prior):
    lower = Budget.build(0.0, margin=0.1)
    one = alone(series_of(METRICS["hpl"], values), lower, prior)
    other = alone(series_of(METRICS["lammps_loop_time"], values), lower, prior)
    ratio, low, high = one.overhead.ratio, one.overhead.low, one.overhead.high
    assert low <= ratio <= (math.inf if high is None else high)
    if one.pairs == other.pairs:
        assert one.overhead.log == pytest.approx(other.overhead.log, rel=1e-6, abs=1e-9)
        assert ratio == pytest.approx(1 / other.overhead.ratio)


@given(metrics, differences(base=st.floats(0.0, 1.0)), budgets, priors, st.floats(0, 2))
def test_adding_a_worse_pair_never_turns_over_into_within(metric, values, budget, prior, extra):
    before = alone(series_of(metric, values), budget, prior)
    event(before.outcome.value)
    worse = max(values) + extra
    for more in range(1, 8) if before.outcome is Outcome.OVER else ():
        after = alone(series_of(metric, [*values, *[worse] * more]), budget, prior)
        assert after.outcome is not Outcome.WITHIN


@given(metrics, differences(), budgets, priors, st.floats(0.001, 1))
def test_making_every_pair_worse_never_makes_it_pass(metric, values, budget, prior, extra):
    before = alone(series_of(metric, values), budget, prior)
    after = alone(series_of(metric, [value + extra for value in values]), budget, prior)
    if after.outcome is Outcome.WITHIN:
        # A guest that was too good to be true is a good one if it is slower.
        assert before.outcome is Outcome.WITHIN or before.reasons == (TOO_GOOD,)


@given(metrics, differences(), st.floats(0, 0.2), st.floats(0, 0.2), priors)
def test_a_larger_budget_never_turns_within_into_over(metric, values, small, more, prior):
    tight = alone(series_of(metric, values), Budget.build(small, margin=0.1), prior)
    loose = alone(series_of(metric, values), Budget.build(small + more, margin=0.1), prior)
    assert (tight.outcome, loose.outcome) != (Outcome.WITHIN, Outcome.OVER)
    if tight.outcome is Outcome.WITHIN:
        assert loose.outcome is Outcome.WITHIN


@given(metrics, differences(), budgets, priors)
def test_the_interval_and_the_outcome_say_the_same(metric, values, budget, prior):
    verdict = alone(series_of(metric, values), budget, prior)
    assert verdict.overhead.lower <= verdict.overhead.log < verdict.overhead.upper
    if verdict.outcome is Outcome.WITHIN:
        assert verdict.pairs == len(values)
        assert verdict.overhead.upper < verdict.limit + verdict.margin
        assert verdict.overhead.lower <= verdict.limit
    # A conviction stands, whatever the pairs that are run afterwards look like.
    if verdict.outcome is Outcome.OVER and verdict.pairs == len(values):
        assert verdict.overhead.lower > verdict.limit
    is_open = verdict.outcome is Outcome.UNDECIDED and verdict.pairs < LOOKS[-1]
    is_too_noisy = is_open and verdict.reasons[0].startswith("noise too high")
    assert (verdict.next_pairs is not None) == (is_open and not is_too_noisy)


@given(metrics, differences(), budgets, priors)
def test_a_record_says_the_same_after_json_and_its_message_is_short(metric, values, budget, prior):
    record = alone(series_of(metric, values), budget, prior)
    assert Verdict.model_validate_json(record.model_dump_json()) == record
    text = record.message
    assert len(text.splitlines()) <= 2
    assert "nan" not in text
    assert "inf" not in text.replace("infinite", "")
    assert metric.unit in text


def cases_of(rows, budget, prior):
    """Return a case for each row of differences."""
    return [
        Case(pair_up(SCALARS[0], str(i), (), samples_of(SCALARS[0], [[v] for v in row])), budget, prior)
        for i, row in enumerate(rows)
    ]


@given(st.lists(differences(pairs=4), min_size=1, max_size=5), budgets, priors)
def test_the_order_of_cases_does_not_matter(rows, budget, prior):
    cases = cases_of(rows, budget, prior)
    first = {v.series: v.outcome for v in judge_session(cases).verdicts}
    for order in list(permutations(cases))[:6]:
        assert {v.series: v.outcome for v in judge_session(order).verdicts} == first


# -- many sessions at once -----------------------------------------------------------------------------

HOSTS = {
    "together": ("a", "a"),
    "nobody says": ("", ""),
    "half": ("a", ""),
    "fixed": ("a", "b"),
    "exchanged": ("abba", "baab"),
    "rotated": ("abab", "xyyx"),
}
PRIORS = [
    Prior(sigma=sigma, df=df, source="drawn", common=common, between=between, between_df=between_df)
    for sigma, df in ((0.01, 6), (0.03, 20))
    for common in (0.0, 0.02)
    for between, between_df in ((0.0, 4.0), (0.02, 4.0), (0.02, math.inf))
]


def drawn_series(rng, name, setting, pairs, kind, boots, level, refused=0.0):
    """Return a series of random values, some of them refused, at hosts and boots of this kind."""
    metric = METRICS[name]
    points = SIZES if metric.kind == "curve" else ()
    rows = rng.normal(level, rng.choice([0.002, 0.02, 0.2]), (pairs, len(points) or 1))
    hosts = {
        side: list(np.resize(list(names) or [""], pairs))
        for side, names in zip(("native", "virtual"), HOSTS[kind], strict=True)
    }
    runs = samples_of(metric, rows, hosts=hosts, boots=[str(i * boots // pairs) for i in range(pairs)])
    runs = [replace(run, invalid=("loud",)) if rng.random() < refused else run for run in runs]
    return pair_up(metric, setting, points, runs)


def drawn_case(rng, setting):
    name = str(rng.choice(["hpl", "lammps_loop_time", "mpi_latency"]))
    kind = str(rng.choice(list(HOSTS)))
    level = rng.choice([0.0, 0.0, 0.06, 0.3, -0.3])
    how = {"boots": int(rng.choice([1, 2, 6]))}
    pairs = int(rng.choice([0, 1, 3, 4, 4, 4, 6, 8, 8, 12, 18]))
    series = drawn_series(rng, name, setting, pairs, kind, level=level, refused=rng.choice([0, 0.15]), **how)
    gate, baseline = str(rng.choice(["overhead", "change"])), None
    if rng.random() < 0.4:
        earlier = kind if rng.random() < 0.7 else str(rng.choice(list(HOSTS)))
        pairs = int(rng.choice([1, 4, 12, 12]))
        baseline = drawn_series(rng, name, setting, pairs, earlier, level=0.0, **how)
    return Case(
        series,
        Budget.build(rng.choice([0.02, 0.05]), margin=rng.choice([0.03, 0.1]), gate=gate),
        PRIORS[rng.integers(len(PRIORS))],
        baseline=baseline,
        refused=("because",) if rng.random() < 0.05 else (),
        bound=float(rng.choice([0.01, math.inf])),
        earlier_bound=float(rng.choice([0.01, math.inf])),
    )


@given(st.integers(0, 2**32))
@settings(max_examples=150)
def test_the_values_that_are_shown_have_the_ratio_that_is_shown(seed):
    """In all designs of hosts, with outliers and refused runs; of curves at each size and over each range."""
    case = drawn_case(np.random.default_rng(seed), "s")
    (verdict,) = judge_session([case]).verdicts
    event(f"{case.runs.places.kind if case.series.valid else 'no pair'}, {verdict.outcome.value}")
    if verdict.native is None:
        return
    shown = [(part.native, part.virtual, part.overhead) for part in (verdict, *verdict.points)]
    if verdict.gate == "overhead":
        shown += [(finding.native, finding.virtual, finding.judged) for finding in verdict.findings]
    for native, virtual, interval in shown:
        if not math.isnan(interval.log):
            assert virtual / native == pytest.approx(interval.ratio, rel=1e-6)
    # Weights are those of a mean: it lies among the values.
    values = case.series.values["native"]
    for column, (native, _, _) in enumerate(shown[1:] if verdict.points else shown[:1]):
        if column < case.series.width:
            assert values[:, column].min() * (1 - 1e-8) <= native <= values[:, column].max() * (1 + 1e-8)


@given(st.integers(0, 2**32))
@settings(max_examples=100)
def test_the_size_of_a_message_is_what_the_message_calls_it(seed):
    rng = np.random.default_rng(seed)
    how = {"kind": "together", "boots": 1, "level": rng.choice([0.0, 0.06])}
    series = drawn_series(rng, "mpi_latency", "s", int(rng.choice([2, 4, 8])), **how)
    budgets = (
        Budget.build(fraction, margin=0.3).terms[0].model_copy(update={"sizes": sizes})
        for fraction, sizes in ((rng.uniform(0, 0.5), Sizes(low=0, high=8)), (rng.uniform(0, 0.5), None))
    )
    verdict = alone(series, Budget(terms=tuple(budgets)), Prior(sigma=0.02, df=20, source="drawn"))
    event(verdict.outcome.value)
    if verdict.findings or not verdict.points:
        return
    of_size = {point.size: point.judged.log for point in verdict.points}
    largest = max(of_size, key=of_size.get)
    nearest = max(verdict.points, key=lambda point: point.judged.log - point.limit).size
    shown, text = verdict.deciding, verdict.message.splitlines()[0]
    assert (shown.low, shown.judged.log) == (nearest, of_size[nearest])
    if nearest == largest:
        assert f" at {format_size(nearest, 'B')}, the largest of 4 sizes" in text
    else:
        assert (
            f" at {format_size(nearest, 'B')}, the nearest to its limit of 4 sizes, the largest is " in text
        )
        slowdown = describe_slowdown(of_size[largest], "lower")
        assert f"the largest is {slowdown} at {format_size(largest, 'B')}, the mean " in text
    means = [np.mean([getattr(point, key) for point in verdict.points]) for key in ("limit", "margin")]
    assert verdict.mean[1:3] == pytest.approx(means, abs=1e-6)


def alike(one, other, where=""):
    """Assert that two records say the same, but for the last digits of numbers."""
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            alike(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), where
        for index, (mine, yours) in enumerate(zip(one, other, strict=True)):
            alike(mine, yours, f"{where}[{index}]")
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-9), where
    else:
        assert one == other, where


def alike_sessions(one, other):
    for name in ("needs", "outcome", "qualified", "confounded"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.slow_runs == other.slow_runs
    for mine, yours in zip(one.verdicts, other.verdicts, strict=True):
        alike(mine.model_dump(mode="json"), yours.model_dump(mode="json"), mine.series)


@given(st.integers(0, 2**32), st.integers(1, 6), st.sampled_from([LOOKS, (4,), (4, 8)]), st.integers(1, 3))
@settings(max_examples=60)
def test_many_sessions_at_once_are_judged_as_each_alone(seed, count, looks, share):
    """Their series stand in common arrays; nothing of one may reach another."""
    rng = np.random.default_rng(seed)
    cases = [drawn_case(rng, str(index)) for index in range(int(rng.integers(1, 9)))]
    # Some cases stand in several sessions, in other company in each.
    sessions = [
        [case for case in cases if rng.random() < 0.7]
        + [drawn_case(rng, f"own {index}") for index in range(int(rng.integers(0, 3)))]
        for _ in range(count)
    ]
    together = judge_sessions(sessions, looks=looks, share=share)
    assert len(together) == count
    for cases, session in zip(sessions, together, strict=True):
        for verdict in session.verdicts:
            event(verdict.outcome.value)
        alike_sessions(session, judge_session(cases, looks=looks, share=share))


@given(st.integers(0, 2**32))
@settings(max_examples=40)
def test_what_stands_beside_a_series_never_makes_it_pass(seed):
    """Company shares the error rate of OVER; what is WITHIN is so by its own pairs."""
    rng = np.random.default_rng(seed)
    cases = [drawn_case(rng, str(index)) for index in range(6)]
    for case, verdict in zip(cases, judge_session(cases).verdicts, strict=True):
        (lonely,) = judge_session([case]).verdicts
        if verdict.outcome is not lonely.outcome:
            assert lonely.outcome is Outcome.OVER


@given(st.lists(st.lists(noise, min_size=4, max_size=4), min_size=2, max_size=6), level, budgets, priors)
def test_findings_are_ranges_of_the_curve_that_do_not_touch(rows, base, budget, prior):
    metric = METRICS["mpi_latency"]
    curve = [[base + value for value in row] for row in rows]
    verdict = alone(pair_up(metric, "here", SIZES, samples_of(metric, curve)), budget, prior)
    assert bool(verdict.findings) == (verdict.outcome is Outcome.OVER)
    ranges = sorted((SIZES.index(f.low), SIZES.index(f.high)) for f in verdict.findings)
    assert all(a <= b for a, b in ranges)
    assert all(after[0] - before[1] > 1 for before, after in pairwise(ranges))


@given(st.floats(0.01, 0.9), st.floats(0.001, 0.09), st.floats(0.1, 100))
def test_budget_and_margin_mean_what_they_say(relative, margin, native):
    for metric, sign in ((METRICS["hpl"], -1), (METRICS["lammps_loop_time"], 1)):
        limit, extra, _ = Budget.build(relative, margin=margin).limits(metric, (), np.array([native]))
        assert math.exp(sign * limit[0]) == pytest.approx(1 + sign * relative)
        assert math.exp(sign * (limit[0] + extra[0])) == pytest.approx(1 + sign * (relative + margin))


def list_machines(runs):
    """Return labels of each run, as `Machines` says: runs that may have been on one machine share one."""
    if all(run.host for run in runs):
        return [set(run.host.split("+")) for run in runs]
    nodes = [{(run.side, name) for name in run.node.split("+")} for run in runs]
    everywhere = set().union(*nodes)
    hostless = set().union(*(names for run, names in zip(runs, nodes, strict=True) if not run.host))
    machines = []
    for run, names in zip(runs, nodes, strict=True):
        couples = product(names, hostless if run.host else everywhere)
        labels = {frozenset((a, b)) for a, b in couples if a == b or a[0] != b[0]}
        machines.append(labels | set(run.host.split("+")) - {""})
    return machines


def find_disturbances(runs):
    """Return by pair number why pairs do not count: each machine's runs are compared one after the other."""
    runs = sorted(runs, key=lambda run: (run.start, run.end, run.number, run.side))
    lines, reasons = {}, {}
    for run, labels in zip(runs, list_machines(runs), strict=True):
        for label in labels:
            lines.setdefault(label, []).append(run)
    times = {number: [(r.start, r.end) for r in runs if r.number == number] for number in range(9)}
    for latest, *later in lines.values():
        for before, run in pairwise([latest, *later]):
            if run.start < latest.end:
                for a, b in ((latest, run), (run, latest)):
                    text = f"its {a.side} run overlaps the {b.side} run of pair {b.number}"
                    reasons.setdefault(a.number, set()).add(text)
            for a, b in ((before, run), (run, before)):
                if a.number != b.number and times[a.number][0] < (b.start, b.end) < times[a.number][-1]:
                    text = f"a run of pair {b.number} lies between its two runs"
                    reasons.setdefault(a.number, set()).add(text)
            latest = max(latest, run, key=lambda run: run.end)
    return reasons


names = st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True).map(
    lambda n: "+".join(sorted(n))
)
hosts = st.sampled_from((st.just(""), names, st.one_of(st.just(""), names))).flatmap(
    lambda of_a_run: st.lists(of_a_run, min_size=12, max_size=12)
)


@st.composite
def runs_in_disorder(draw):
    """Return runs on nodes and hosts that meet by chance, most of them in their turns."""
    runs = []
    for place, host in enumerate(draw(hosts)):
        start = float(draw(st.one_of(st.just(2 * place), st.integers(0, 24))))
        end = start + draw(st.sampled_from((2, 2, 2, 1, 3, 9, 0, -1)))
        side = SIDES[(place + place // 2) % 2]
        runs.append(Sample(side, place // 2, (1.0,), start, end, node=draw(names), host=host))
    return draw(st.lists(st.sampled_from(runs), unique_by=lambda run: (run.side, run.number), min_size=2))


@given(runs_in_disorder())
def test_machines_are_found_without_a_look_at_each_two_nodes(runs):
    series = pair_up(METRICS["hpl"], "here", (), runs)
    expected = find_disturbances(runs)
    for pair in series.pairs:
        found = {reason for reason in pair.invalid if "overlaps" in reason or "lies between" in reason}
        assert found == expected.get(pair.number, set())
    machines = Machines(runs)
    for (run, labels), (other, other_labels) in permutations(zip(runs, list_machines(runs), strict=True), 2):
        assert machines.meet(run, other) == bool(labels & other_labels)
