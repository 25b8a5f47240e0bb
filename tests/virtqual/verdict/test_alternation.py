"""Which side runs first: pairs that replace lost ones keep the order that the session would have had."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from made_series import FIVE, PRIOR, in_order, judge_session, samples_of

from virtqual.verdict import Case
from virtqual.verdict.alternation import choose_order, list_standard_order
from virtqual.verdict.pairs import SIDES, pair_up
from virtqual.verdict.rule import LOOKS


@pytest.mark.parametrize("pairs", LOOKS)
def test_a_session_that_lost_nothing_has_the_standard_order(pairs):
    standard = list_standard_order(0, 17)
    for done in range(pairs):
        assert choose_order(standard[:pairs], standard[:done], pairs - done) == standard[done:pairs]


def test_what_is_chosen_completes_the_plan_whatever_was_lost():
    draw = random.Random(1)
    for _ in range(500):
        planned = list_standard_order(0, draw.choice(LOOKS) - 1)
        kept = [letter for letter in planned if draw.random() > 0.3]
        chosen = choose_order(planned, draw.sample(kept, len(kept)), len(planned) - len(kept))
        assert Counter(kept) + Counter(chosen) == Counter(planned)


def test_too_many_pairs_of_one_side_are_followed_by_those_of_the_other():
    assert choose_order("NVNNNVVV", "NNNNNN", 2) == "VV"


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_random_losses_leave_each_side_first_in_a_quarter_of_the_pairs(metrics, share):
    """A driver that runs what is needed: each answer rests on pairs of both orders."""
    draw, looks = random.Random(2), (4, 8, 12, 18)
    for _ in range(40):
        order, lost = "NVNN", {pair for pair in range(60) if draw.random() < share}
        for _ in range(20):
            runs = in_order(samples_of(metrics["hpl"], [[0.078]] * len(order)), order)
            runs = [replace(run, invalid=("lost",) * (run.number in lost)) for run in runs]
            series = pair_up(metrics["hpl"], "here", (), runs)
            session = judge_session([Case(series, FIVE, PRIOR)], looks=looks, min_pairs=4)
            assert series.not_alternated == "" or session.needs
            if len(series.valid) in looks:
                assert min(map(series.first_sides.count, SIDES)) >= len(series.valid) // 4
            if not lost & {*range(len(order))}:
                assert order == list_standard_order(0, len(order) - 1)
            if not session.needs:
                break
            order += session.needs[0].order
