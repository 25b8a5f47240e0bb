"""How many pairs a session may take."""

import pytest
from typer.testing import CliRunner

from virtqual import cli
from virtqual.errors import UsageError
from virtqual.qualify import plan
from virtqual.qualify.state import Request
from virtqual.references import Budget
from virtqual.verdict import Case, Outcome, Prior, judge_session


@pytest.mark.parametrize(
    ("pairs", "at_most", "says"),
    [
        (None, 3, "--max-pairs 3: at least 4 are needed to decide"),
        (99, 18, "--pairs 99 is more than --max-pairs 18 allows"),
    ],
)
def test_pairs_that_could_not_decide_or_are_not_allowed_are_refused(pairs, at_most, says):
    with pytest.raises(UsageError, match=says):
        plan.affordable(Request("x", pairs=pairs, max_pairs=at_most))


@pytest.mark.parametrize(("at_most", "looks"), [(4, (4,)), (7, (7,)), (8, (4, 8)), (18, (4, 8, 12, 18))])
def test_the_least_that_is_allowed_can_convict(metrics, make, at_most, looks):
    assert plan.affordable(Request("x", pairs=4, max_pairs=at_most)) == looks
    lost = Case(make(metrics["hpl"], [0.5] * at_most), Budget.of(0.05, margin=0.05), Prior(0.02, 6, "stated"))
    assert judge_session([lost], looks=looks).outcome is Outcome.OVER


def test_the_command_refuses_them_before_it_looks_for_the_system():
    for options, says in ((("--max-pairs", "3"), "4"), (("--pairs", "19"), "--max-pairs 18")):
        done = CliRunner().invoke(cli.app, ["qualify", "--system", "none", *options])
        assert (done.exit_code, says in done.output) == (2, True), done.output
