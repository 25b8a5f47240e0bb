"""What a run says besides its speed: answers on which both sides agree, and its share of communication."""

import pytest

from made_runs import made_run
from virtqual.identity import NotObservable
from virtqual.preflight.admit import admit
from virtqual.preflight.software import other_answers, other_inputs
from virtqual.runs import Answer, Run
from virtqual.session.judge import policy


def run(side, pair, value=1.0, *, communication=None, names=("RMS of U",)):
    answers = tuple(Answer(name=name, value=value, tolerance=1e-3) for name in names)
    return made_run(side, pair, answers=answers, communication=communication)


@pytest.mark.parametrize(("value", "same"), [(1.0009, True), (1.0011, False), (-1.0, False), (0.0, False)])
def test_answers_agree_within_their_tolerance(value, same):
    runs = [run("virtual", 0, value), run("native", 0), run("native", 1)]
    found = list(other_answers(runs))
    assert (found == []) is same
    if not same:
        ((check, reason),) = found
        assert check == "case"
        assert f"RMS of U is 1 in native pair 0 and {value:.9g} in virtual pair 0" in reason


def test_an_answer_that_one_side_does_not_give_is_a_difference():
    names = ("RMS of U", "residual")
    found = list(other_answers([run("native", 0, names=names), run("virtual", 0, names=())]))
    assert found == [("case", f"not the same result: {name} is not said by every run") for name in names]
    found = list(other_answers([run("native", 0, names=names), run("virtual", 0, 2.0, names=names)]))
    assert [reason.split(" is ")[0] for _, reason in found] == [
        f"not the same result: {name}" for name in names
    ]
    assert list(other_answers([run("native", 0, names=()), run("virtual", 0, names=())])) == []


@pytest.mark.parametrize(("share", "reported"), [(0.09, 1), (0.1, 1), (0.11, 0), (None, 0)])
def test_a_case_that_hardly_communicates_is_reported(share, reported):
    runs = [run("native", 0, communication=share), run("virtual", 0, communication=0.01)]
    found = admit(runs, policy(), "kvm").findings
    assert [(one.item, one.action, one.protects) for one in found] == [
        ("communication", "report", ("R18",))
    ] * reported
    # Without the rule nobody would say so.
    assert admit(runs, policy().without("communication"), "kvm").findings == ()


def test_a_share_that_nobody_could_observe_is_no_small_share():
    unseen = NotObservable(not_observable="no profiler")
    runs = [run("native", 0, communication=unseen), run("native", 1, communication=0.01)]
    found = admit(runs, policy(), "kvm").findings
    assert [(one.item, one.action) for one in found] == [
        ("communication", "report"),
        ("communication", "unseen"),
    ]
    assert found[1].reason == "1 of 2 native runs, the first: case, share of communication: no profiler"
    # It is kept with the run.
    assert Run.model_validate_json(runs[0].dump()).communication == unseen


def test_other_inputs_are_named():
    same, other = ({"case": letter * 64} for letter in "ab")
    runs = [made_run("native", 0, inputs=same), made_run("virtual", 0, inputs=other)]
    ((check, reason),) = other_inputs(runs)
    assert (check, "not the same input: case has the SHA-256 aaa" in reason) == ("case", True)
    assert list(other_inputs([runs[0], made_run("virtual", 0, inputs=same)])) == []


def test_an_input_that_one_side_lacks_is_a_difference():
    runs = [made_run("native", 0, inputs={"case": "a" * 64}), made_run("virtual", 0)]
    says = f"not the same input: case has the SHA-256 {'a' * 64} and none"
    assert list(other_inputs(runs)) == [("case", says)]
