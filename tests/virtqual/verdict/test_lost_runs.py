"""Lost runs: counted by side over the session, they keep it from being WITHIN until they say nothing."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from made_series import FIVE, PRIOR, judge_session, samples_of, steady

from virtqual.verdict import Case, Outcome, texts
from virtqual.verdict.pairs import pair_up
from virtqual.verdict.slow_runs import LostRun, SlowRuns, count_runs_to_clear


@pytest.fixture
def session_of(metrics):
    """Return a function that makes a session of many metrics, each in runs of its own, without some runs."""

    def build(count, pairs, lost=(), how="missing"):
        cases = []
        for number in range(count):
            runs = [
                replace(run, start=run.start + 1e5 * number, end=run.end + 1e5 * number)
                for run in samples_of(metrics["hpl"], [[value] for value in steady(0.0, pairs, 0.002)])
            ]
            cases.append(_case(metrics, str(number), [_lose(run, number, lost, how) for run in runs]))
        return cases

    return build


def _lose(run, metric, lost, how):
    if (metric, run.side, run.number) not in lost:
        return run
    return {
        "missing": None,
        "refused": replace(run, invalid=("loud",)),
        "no number": replace(run, values=(float("nan"),)),
    }[how]


def _case(metrics, setting, runs):
    return Case(pair_up(metrics["hpl"], setting, (), filter(None, runs)), FIVE, PRIOR)


@pytest.mark.parametrize("how", ["missing", "refused", "no number"])
def test_a_session_that_lost_virtual_runs_alone_is_undecided(session_of, how):
    """A build that hangs now and then passed by the metrics that lost at most one run each."""
    lost = {(metric, "virtual", 1 + metric % 3) for metric in range(11)}
    session = judge_session(session_of(11, 5, lost, how), min_pairs=4)
    assert {verdict.outcome for verdict in session.verdicts} == {Outcome.WITHIN}
    assert (session.outcome, session.slow_runs.found) == (Outcome.UNDECIDED, False)
    assert (session.slow_runs.virtual_lost, session.slow_runs.native_lost) == (11, 0)
    assert (session.slow_runs.virtual_runs, session.slow_runs.native_runs) == (55, 55)
    # All metrics get the pairs of the next look.
    assert [(need.first, need.last) for need in session.needs] == [(5, 8)] * 11
    assert {verdict.next_pairs for verdict in session.verdicts} == {8}


def test_as_many_native_runs_excuse_them(session_of):
    for native, outcome in ((0, Outcome.UNDECIDED), (1, Outcome.UNDECIDED), (2, Outcome.WITHIN)):
        lost = {(0, "virtual", 2), (1, "virtual", 2)} | {(2 + n, "native", 2) for n in range(native)}
        session = judge_session(session_of(6, 5, lost))
        assert (session.outcome, session.slow_runs.native_lost) == (outcome, native)


def test_losses_are_cleared_by_so_many_runs_that_a_bad_build_would_have_lost_more(session_of):
    # One of 132 runs may be chance, and one of 88 may be the first of a build that loses one in twenty.
    for pairs, outcome, more in ((9, Outcome.UNDECIDED, 31), (13, Outcome.WITHIN, 0)):
        session = judge_session(session_of(11, pairs, {(3, "virtual", 2)}))
        assert (session.outcome, session.slow_runs.more_runs) == (outcome, more)
        assert bool(session.needs) == bool(more)
    assert [count_runs_to_clear(lost) for lost in (-1, 0, 1, 2, 3)] == [0, 0, 130, 165, 198]
    assert 20 * 1000 < count_runs_to_clear(1000) < 25 * 1000


def test_a_session_that_is_too_short_says_how_many_runs_decide(session_of):
    session = judge_session(session_of(1, 19, {(0, "virtual", 7)}))
    assert (session.outcome, session.needs) == (Outcome.UNDECIDED, ())
    assert session.slow_runs.lost_text == (
        "1 of 19 virtual runs was lost, and no native one: a build that loses one run in twenty looks the "
        "same; 111 more virtual runs without a loss decide"
    )


def test_earlier_sessions_of_the_build_add_up(session_of):
    """A session may be repeated: its losses stay, and so do its runs."""
    clean, before = session_of(1, 18), SlowRuns(virtual_runs=40, native_runs=40, virtual_lost=1)
    session = judge_session(clean, slow_before=before)
    assert (session.outcome, session.slow_runs.more_runs) == (Outcome.UNDECIDED, 130 - 58)
    assert session.slow_runs.lost_text.endswith(", with earlier sessions of this build")
    # What is stored is of this session alone.
    assert session.slow_runs.virtual_lost == 0
    enough = SlowRuns(virtual_runs=112, native_runs=112, virtual_lost=1)
    assert judge_session(clean, slow_before=enough).outcome is Outcome.WITHIN


def test_losses_are_found_together_with_slow_runs_when_no_pairs_follow(session_of, metrics):
    lost = {(metric, "virtual", 2 + 3 * time) for metric in range(9) for time in range(1 + metric % 2)}
    session = judge_session(session_of(9, 20, lost))
    assert (session.outcome, session.needs, session.slow_runs.found) == (Outcome.OVER, (), True)
    assert session.slow_runs.text == (
        "virtual runs were lost 13 times in 180 runs, native runs lost 0 times in 180"
    )
    # Six slow runs or six lost ones are too few, and twelve are enough.
    slow = SlowRuns(virtual=6, factor=2.0, boots=1, virtual_runs=132, native_runs=132)
    both = slow.model_copy(update={"virtual_lost": 6})
    assert [one.judge(SlowRuns(), 0.002, 1).found for one in (slow, both)] == [False, True]
    assert both.judge(SlowRuns(), 0.002, 1).text == (
        "virtual runs were slow (2.0x) 6 times and lost 6 times in 132 runs, native runs lost 0 times in 132"
    )


def test_a_run_is_lost_once_however_many_of_its_metrics_lack_a_value(metrics):
    runs = samples_of(metrics["hpl"], [[value] for value in steady(0.0, 6, 0.002)])
    silent = [run for run in runs if (run.side, run.number) != ("virtual", 3)]
    cases = [_case(metrics, name, silent) for name in "ab"]
    session = judge_session([*cases, _case(metrics, "c", runs)])
    slow = session.slow_runs
    assert (slow.virtual_lost, slow.virtual_runs, slow.native_runs) == (1, 6, 6)
    (lost,) = slow.lost
    assert (lost.side, lost.pair, lost.of, lost.reason) == ("virtual", 3, "hpl@a and 1 more", "left no value")


def test_runs_that_are_lost_one_after_the_other_are_one_event(metrics):
    runs = samples_of(metrics["hpl"], [[value] for value in steady(0.0, 8, 0.002)])
    order = [(run.side, run.number) for run in sorted(runs, key=lambda run: run.start)]
    neighbours = next({one, other} for one, other in pairwise(order) if one[0] == other[0] == "virtual")
    for lost, events in ((neighbours, 1), ({("virtual", 0), ("virtual", 5)}, 2)):
        bad = [replace(run, invalid=("no",)) if (run.side, run.number) in lost else run for run in runs]
        assert judge_session([_case(metrics, "a", bad)]).slow_runs.virtual_lost == events
    # Of both sides at once it is the machine's.
    both = [replace(run, invalid=("no",)) if run.number == 4 else run for run in runs]
    slow = judge_session([_case(metrics, "a", both)]).slow_runs
    assert (slow.virtual_lost, slow.native_lost, len(slow.lost)) == (0, 0, 2)


def test_pairs_that_were_cut_off_are_no_losses(session_of):
    (case,) = session_of(1, 8, {(0, "virtual", 5)})
    assert judge_session([case]).slow_runs.virtual_lost == 1
    case = replace(case, series=replace(case.series, cut_off=frozenset([5])))
    assert judge_session([case]).slow_runs.virtual_lost == 0


def test_runs_without_samples_count_too_and_those_that_do_not_are_listed(session_of):
    lost = [LostRun(side="virtual", of="case", pair=9, reason="job 9 ended as TIMEOUT", start=5.0, end=9.0)]
    lost += [LostRun(side="virtual", of="case", pair=10, reason="job 10 ended as PREEMPTED", counts=False)]
    session = judge_session(session_of(1, 8), lost=lost)
    assert (session.outcome, session.slow_runs.virtual_lost) == (Outcome.UNDECIDED, 1)
    assert session.slow_runs.virtual_runs == 9
    assert texts.describe_lost(session.slow_runs.lost) == [
        "Lost runs: 1 virtual run, 0 native runs; 1 that do not count",
        "virtual run of pair 10 of case: job 10 ended as PREEMPTED (does not count)",
        "virtual run of pair 9 of case (1970-01-01 00:00 UTC): job 9 ended as TIMEOUT",
    ]


def test_a_session_that_loses_half_of_its_virtual_runs_asks_for_twice_the_pairs_at_most(session_of):
    lost = {(0, "virtual", number) for number in range(36) if number % 4 in (1, 2)}
    asked, pairs = [], 4
    while needs := judge_session(session_of(1, pairs, lost)).needs:
        pairs = needs[0].last + 1
        asked.append(pairs)
    assert max(asked) <= 40
    assert judge_session(session_of(1, pairs, lost)).outcome is Outcome.OVER


def test_documents_of_older_versions_are_read():
    old = {"virtual": 3, "virtual_runs": 44, "native": 1, "native_runs": 44, "factor": 2.0, "boots": 1}
    slow = SlowRuns.model_validate(old | {"found": False, "text": ""})
    assert (slow.virtual_lost, slow.more_runs, slow.lost) == (0, 0, ())
    assert np.isclose(slow.p, (slow + SlowRuns()).p)
