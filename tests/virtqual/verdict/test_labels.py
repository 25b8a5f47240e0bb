"""The words for the sides: every text follows them, and records keep their keys."""

import math

import pytest
from made_series import FIVE, PRIOR, judge_session, samples_of

from virtqual.verdict import Outcome, Verdict
from virtqual.verdict.case import Case
from virtqual.verdict.labels import REFERENCE_AND_CANDIDATE, Labels
from virtqual.verdict.pairs import pair_up

CANARIES = Labels("8.0u3", "8.0u3b")


def judge_as(metrics, differences, labels, **session):
    series = pair_up(
        metrics["hpl"], "here", (), samples_of(metrics["hpl"], [[value] for value in differences]), labels
    )
    return judge_session([Case(series, FIVE, PRIOR)], **session)


@pytest.mark.parametrize("differences", [[0.3] * 8, [0.3], [], [0.3] * 2, [math.nan] * 4])
def test_every_text_has_the_words_of_the_sides(metrics, differences):
    (verdict,) = judge_as(metrics, differences, CANARIES).verdicts
    assert not any(word in verdict.message for word in ("native", "virtual", "guest"))
    assert "8.0u3b" in verdict.message or "pair" in verdict.message
    (usual,) = judge_as(metrics, differences, Labels()).verdicts
    assert usual.outcome is verdict.outcome
    shown = verdict.message.replace("8.0u3b", "virtual").replace("8.0u3", "native")
    assert shown == usual.message


def test_a_candidate_may_be_much_faster_and_a_guest_may_not(metrics):
    assert judge_as(metrics, [-0.4] * 8, Labels()).outcome is Outcome.INVALID
    answer = judge_as(metrics, [-0.4] * 8, REFERENCE_AND_CANDIDATE)
    assert answer.outcome is Outcome.WITHIN
    assert answer.verdicts[0].reasons == (
        "candidate is faster by more than 10%: make sure that both did the same work",
    )
    # A small gain needs no warning.
    assert judge_as(metrics, [-0.02] * 8, REFERENCE_AND_CANDIDATE).verdicts[0].reasons == ()


def test_records_do_not_have_the_words(metrics):
    (verdict,) = judge_as(metrics, [0.3] * 8, CANARIES).verdicts
    assert "labels" not in verdict.model_dump()
    assert "labels" not in Verdict.model_json_schema()["properties"]
    assert verdict.without_details().labels == CANARIES
