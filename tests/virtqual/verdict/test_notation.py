"""How differences are written in a column, and how people state a budget."""

import pytest

from virtqual.verdict.notation import describe_slowdown_briefly, read_budget


@pytest.mark.parametrize(
    ("log", "bounds", "text"),
    [
        (0.1, (-0.1, 0.2), "11% (-10 to 22%)"),
        (0.1, (-0.1, 7.0), "11% (-10 to ?%)"),
        (1.4, (-114.0, 4.6), "4.1x (<0.001 to 99.5x)"),
        (8.0, (1.4, 900.0), ">1000x (4.1 to >1000x)"),
    ],
)
def test_differences_in_a_column(log, bounds, text):
    assert describe_slowdown_briefly(log, "lower", bounds) == text


@pytest.mark.parametrize(
    ("stated", "fraction"),
    [("5%", 0.05), ("2.5 %", 0.025), ("1.05", 0.05), ("0.05", 0.05), (1.05, 0.05), (0.05, 0.05), ("0%", 0.0)],
)
def test_one_budget_in_all_notations(stated, fraction):
    assert read_budget(stated) == pytest.approx(fraction)


@pytest.mark.parametrize("stated", ["0.95", "5", "100%", "-5%", "nan", "inf", "5 percent", ""])
def test_what_may_mean_two_things_is_refused(stated):
    with pytest.raises(ValueError, match="is no budget or margin: write 5%"):
        read_budget(stated)
