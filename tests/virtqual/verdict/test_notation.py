"""How people state a budget."""

import pytest

from virtqual.verdict.notation import read_budget


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
