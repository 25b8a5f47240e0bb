"""How many pairs a session may take."""

import pytest
from typer.testing import CliRunner

from virtqual import cli
from virtqual.errors import UsageError
from virtqual.qualify import plan
from virtqual.qualify.state import Request


@pytest.mark.parametrize(
    ("pairs", "at_most", "says"),
    [
        (None, 3, "--max-pairs 3: at least 4 are needed to find anything over budget"),
        (99, 18, "--pairs 99 is more than --max-pairs 18 allows"),
    ],
)
def test_pairs_that_could_not_decide_or_are_not_allowed_are_refused(pairs, at_most, says):
    with pytest.raises(UsageError, match=says):
        plan.affordable(Request("x", pairs=pairs, max_pairs=at_most))


def test_the_least_that_is_allowed_can_convict():
    plan.affordable(Request("x", pairs=4, max_pairs=4))
    assert plan.design(4).in_session(plan.SCREEN, 1).over_level(-1) > 0


def test_the_command_refuses_them_before_it_looks_for_the_system():
    for options, says in ((("--max-pairs", "3"), "4"), (("--pairs", "19"), "--max-pairs 18")):
        done = CliRunner().invoke(cli.app, ["qualify", "--system", "none", *options])
        assert (done.exit_code, says in done.output) == (2, True), done.output
