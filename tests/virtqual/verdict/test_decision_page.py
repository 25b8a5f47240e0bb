"""What docs/decision.md shows first is what the rule says."""

import re
import sys

import numpy as np
import pytest

from virtqual import paths
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.rule import LOOKS, Ruling

sys.path.insert(0, str(paths.root() / "benchmarks/decision"))
import picture

PAGE = (paths.root() / "docs/decision.md").read_text("utf-8")


def test_the_picture_is_that_of_the_rule():
    assert picture.PICTURE.read_text("utf-8") == picture.draw_picture()


@pytest.mark.parametrize("sd", picture.MACHINES.values())
@pytest.mark.parametrize("overhead", picture.OVERHEADS)
def test_the_picture_says_of_each_overhead_what_is_true(overhead, sd):
    """4 % is within its budget of 5 %, 7 and 10 % are not; a quiet machine needs no more than four pairs."""
    example = picture.judge_example(overhead, sd)
    assert example.outcome is (Outcome.OVER if overhead > picture.BUDGET else Outcome.WITHIN)
    assert example.low <= 100 * overhead <= example.high
    assert (example.pairs == 4) == (sd < 0.01 or overhead < picture.BUDGET)


def test_the_worked_example_has_the_interval_that_the_page_says():
    rows = re.findall(r"^\| \d \| (?:native|virtual) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) % \|$", PAGE, re.M)
    native, virtual, shown = np.array(rows, dtype=float).T
    assert len(native) == 4
    assert 100 * (virtual / native - 1) == pytest.approx(shown, abs=0.05)
    for sd, outcome in ((0.002, Ruling.OVER), (0.02, Ruling.OPEN)):
        (answer,) = picture.judge_pairs(np.log(virtual / native), sd).answers(LOOKS)
        assert answer.ruling is outcome
        estimate, low, high = (f"{100 * np.expm1(value):.1f}" for value in answer.bounds[0])
        assert f"The estimate is {estimate} %" in PAGE
        assert re.search(rf"between\s+{low}\s+and\s+{high} %", PAGE), (low, high)
