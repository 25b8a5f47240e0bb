import numpy as np
import pytest
from made_series import budget_of

from virtqual.verdict.budget import (
    MAX_CHANGE_MARGIN,
    Budget,
    BudgetError,
    BudgetReason,
    Quantity,
    Sizes,
    Term,
)

REASON = BudgetReason(policy="p")


def test_each_size_has_the_first_term_that_covers_it(metrics):
    small = Term(relative=0.5, margin=0.1, reason=REASON, sizes=Sizes(low=1, high=8))
    rest = Term(relative=0.1, margin=0.2, reason=REASON, sizes=Sizes(low=8, high=64))
    budget = Budget(terms=(small, rest))
    limit, margin, _ = budget.limits(metrics["mpi_latency"], (1.0, 8.0, 16.0, 64.0), np.full(4, 3.0))
    assert np.exp(limit) == pytest.approx([1.5, 1.5, 1.1, 1.1])
    assert np.exp(limit + margin) == pytest.approx([1.6, 1.6, 1.3, 1.3])
    with pytest.raises(BudgetError, match=r"^no budget covers size 65\.$"):
        budget.term(65)
    assert budget.term(None) is small


def test_a_difference_in_the_unit_counts_where_native_is_small_and_comes_to_no_more_than_is_said(metrics):
    native = np.array([0.2, 0.8, 2.0])
    budget = budget_of(relative=0.1, absolute=Quantity(value=0.1, unit="us"), at_most=0.2, margin=0.1)
    limit, margin, _ = budget.limits(metrics["mpi_latency"], (1.0, 2.0, 4.0), native)
    assert np.exp(limit) == pytest.approx([1.2, 1.125, 1.1])
    assert np.exp(limit + margin) == pytest.approx([1.3, 1.225, 1.2])
    budget = budget_of(relative=0.0, absolute=Quantity(value=9.0, unit="MB/s"), at_most=0.2, margin=0.1)
    limit, _, _ = budget.limits(metrics["mpi_bandwidth"], (1.0, 2.0), np.array([4.0, 90.0]))
    assert np.exp(-limit) == pytest.approx([0.8, 0.9])


def test_what_would_lose_everything_is_named_with_its_size(metrics):
    small = Term(relative=0.95, margin=0.1, reason=REASON, sizes=Sizes(low=2, high=8))
    budget = Budget(terms=(small, Term(relative=0.1, margin=0.1, reason=REASON)))
    message = r"^mpi_bandwidth at 2 B: budget plus margin allow everything to be lost \(105% of 4 MB/s\)\.$"
    with pytest.raises(BudgetError, match=message):
        budget.limits(metrics["mpi_bandwidth"], (1.0, 2.0), np.array([100.0, 4.0]))


US, GFLOPS = Quantity(value=2, unit="us"), Quantity(value=2, unit="GFLOP/s")


@pytest.mark.parametrize(
    ("term", "metric", "text"),
    [
        ({"relative": 0.05}, "mpi_latency", "at most 5% slower (margin 10%)"),
        ({"relative": 0.05}, "hpl", "at most 5% slower (margin 10%)"),
        ({"relative": 9, "margin": 5}, "mpi_latency", "at most 10x as slow (margin 5x)"),
        (
            {"relative": 0.1, "absolute": US, "at_most": 0.2},
            "mpi_latency",
            "at most 10% slower or 2 us more, whichever is larger, up to 20% (margin 10%)",
        ),
        (
            {"relative": 0.0, "absolute": GFLOPS, "at_most": 0.2},
            "hpl",
            "at most 0% slower or 2 GFLOP/s less, whichever is larger, up to 20% (margin 10%)",
        ),
        ({"relative": 0.02, "margin_up_to": 0.12}, "mpi_latency", "at most 2% slower (margin 10% to 12%)"),
    ],
)
def test_budgets_as_people_read_them(metrics, term, metric, text):
    (made,) = budget_of(**{"margin": 0.1, **term}).terms
    assert made.text(metrics[metric]) == text


@pytest.mark.parametrize(("metric", "sign"), [("mpi_latency", 1), ("mpi_bandwidth", -1)])
@pytest.mark.parametrize(
    ("margin", "up_to", "most"),
    [
        (0.03, 0.12, 0.12),
        (0.03, None, MAX_CHANGE_MARGIN),
        # What a file states is never narrowed.
        (0.2, None, 0.2),
    ],
)
def test_the_widest_margin_of_a_change(metrics, metric, sign, margin, up_to, most):
    term = Term(relative=0.02, margin=margin, margin_up_to=up_to, reason=REASON)
    native = np.full(2, 9.0)
    budget = Budget(terms=(term,), gate="change")
    limit, stated, widest = budget.limits(metrics[metric], (1.0, 2.0), native)
    assert np.exp(sign * limit) == pytest.approx(1 + sign * 0.02)
    assert np.exp(sign * (limit + stated)) == pytest.approx(1 + sign * (0.02 + margin))
    assert np.exp(sign * (limit + widest)) == pytest.approx(1 + sign * (0.02 + most))


@pytest.mark.parametrize(
    ("first", "second", "overlap"),
    [
        ((1, 8), (16, 32), False),
        ((1, 16), (16, 32), True),
        ((1, 64), (16, 32), True),
        ((1, 64), (64, 64), True),
        ((1, 8), (16, 16), False),
    ],
)
def test_budgets_of_sizes_that_overlap_contradict_each_other(first, second, overlap):
    terms = [
        Term(relative=0.1, margin=0.1, reason=REASON, family="f", sizes=Sizes(low=low, high=high))
        for low, high in (first, second)
    ]
    assert [terms[0].contradicts(terms[1]), terms[1].contradicts(terms[0])] == [overlap, overlap]


def test_a_widest_margin_that_would_lose_everything_is_refused(metrics):
    term = Term(relative=0.5, margin=0.1, margin_up_to=0.6, reason=REASON)
    with pytest.raises(BudgetError, match="budget plus margin allow everything to be lost"):
        Budget(terms=(term,), gate="change").limits(metrics["hpl"], (), np.array([9.0]))
    with pytest.raises(BudgetError, match="allow everything to be lost"):
        Budget.build(0.5, margin=0.5).limits(metrics["hpl"], (), np.array([9.0]))
    limit, margin, widest = Budget(terms=(term,)).limits(metrics["hpl"], (), np.array([9.0]))
    # The margin of an overhead does not widen.
    assert (np.exp(-limit), np.exp(-limit - margin)) == (pytest.approx(0.5), pytest.approx(0.4))
    assert np.all(widest == margin)
