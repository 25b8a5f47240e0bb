"""How differences are written in a column, and how people state a budget."""

import math

import pytest

from virtqual.verdict.notation import (
    describe_bounds,
    describe_limit,
    describe_sizes,
    describe_slowdown,
    describe_slowdown_briefly,
    exp_or_inf,
    format_percent,
    format_size,
    format_value,
    read_budget,
    scale_unit,
)


@pytest.mark.parametrize(
    ("log", "bounds", "text"),
    [
        (0.1, (-0.1, 0.2), "11% (-10 to 22%)"),
        (0.1, (-0.1, 7.0), "1.1x (0.90x or more)"),
        (1.4, (-114.0, 4.6), "4.1x (99x or less)"),
        (8.0, (1.4, 900.0), ">1000x (4.1x or more)"),
        (math.log(1.5), None, "50%"),
        (math.log(15), None, "15x"),
        (math.log(150), (math.log(100), math.log(0.05)), "150x (100 to 0.05x)"),
        (8.0, (1.0, 0.0), ">1000x (2.7 to 1.0x)"),
        (math.log(1.99), None, "99%"),
    ],
)
def test_differences_in_a_column(log, bounds, text):
    assert describe_slowdown_briefly(log, "lower", bounds) == text


@pytest.mark.parametrize(
    ("factor", "better", "text"),
    [
        (1, "lower", "0.0% slower"),
        (1.99, "lower", "99.0% slower"),
        (2, "lower", "2.00x as slow"),
        (2.5, "lower", "2.50x as slow"),
        (9.99, "lower", "9.99x as slow"),
        (10.5, "lower", "10.5x as slow"),
        (100.4, "lower", "100x as slow"),
        (2000, "lower", "over 1000x as slow"),
        (0.2, "lower", "80.0% faster"),
        (0.05, "lower", "20.0x as fast"),
        (2, "higher", "50.0% slower"),
        (1 / 3, "higher", "3.00x as fast"),
        (20, "higher", "20.0x as slow"),
    ],
)
def test_differences_in_words(factor, better, text):
    assert describe_slowdown(math.log(factor), better) == text


@pytest.mark.parametrize(
    ("log", "bounds", "text"),
    [
        (0.0, (0.0, math.log(1.1)), "0.0% to 10.0%"),
        (0.0, (math.log(0.9), math.log(1.1)), "10.0% faster to 10.0% slower"),
        (math.log(2.5), (0.0, math.log(3.4)), "1.00x to 3.40x"),
    ],
)
def test_bounds_about_no_difference(log, bounds, text):
    assert describe_bounds(log, "lower", bounds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (9999.4, "9999"), (9999.5, "10000"), (1e12, "1.000e+12"), (0.0001234, "0.0001234")],
)
def test_values_with_four_digits(value, text):
    assert format_value(value) == text


def test_a_factor_that_no_float_holds_is_infinite():
    assert math.isfinite(exp_or_inf(699.9))
    assert exp_or_inf(700.0) == math.inf


@pytest.mark.parametrize(("fraction", "text"), [(0.05, "5%"), (0.999, "99.9%"), (1, "1x"), (14.0, "14x")])
def test_percents_of_budgets(fraction, text):
    assert format_percent(fraction) == text


@pytest.mark.parametrize(
    ("stated", "fraction"),
    [
        ("5%", 0.05),
        ("2.5 %", 0.025),
        ("1.05", 0.05),
        ("0.05", 0.05),
        (1.05, 0.05),
        (0.05, 0.05),
        ("0%", 0.0),
        (1, 0.0),
    ],
)
def test_one_budget_in_all_notations(stated, fraction):
    assert read_budget(stated) == pytest.approx(fraction)


@pytest.mark.parametrize("stated", ["0.95", "0.5", "1", "5", "100%", "-5%", "nan", "inf", "5 percent", ""])
def test_what_may_mean_two_things_is_refused(stated):
    with pytest.raises(ValueError, match="is not a budget or margin: write a percentage"):
        read_budget(stated)


@pytest.mark.parametrize(
    ("size", "unit", "text"),
    [
        (0.0, "B", "0 B"),
        (8.0, "B", "8 B"),
        (1024.0, "B", "1 KiB"),
        (1536.0, "B", "1536 B"),
        (65536.0, "B", "64 KiB"),
        (2097152.0, "B", "2 MiB"),
        (2097153.0, "B", "2,097,153 B"),
        (1099511627776.0, "B", "1 TiB"),
        (1000000.0, "B", "1 MB"),
        (2500.0, "B", "2.5 kB"),
        (10000000.0, "pieces", "10,000,000 pieces"),
        (0.5, "requests/s", "0.5 requests/s"),
    ],
)
def test_sizes_as_people_write_them(size, unit, text):
    assert format_size(size, unit) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (8.0, 8.0, "at 8 B"),
        (16.0, 128.0, "from 16 to 128 B"),
        (16.0, 65536.0, "from 16 B to 64 KiB"),
        (65536.0, 131072.0, "from 64 to 128 KiB"),
    ],
)
def test_ranges_of_sizes(low, high, text):
    assert describe_sizes(low, high, "B") == text


@pytest.mark.parametrize(
    ("unit", "values", "scaled", "shown"),
    [
        ("MB/s", (9999.4, 1.0), "MB/s", [9999.4, 1.0]),
        ("MB/s", (129600.0, None), "GB/s", [129.6, None]),
        ("kB/s", (12345678.0, 1e6), "GB/s", [12.345678, 1.0]),
        ("us", (4212.0, 10830.0), "ms", [4.212, 10.83]),
        ("s", (86400.0, 1.0), "s", [86400.0, 1.0]),
        ("runs/day", (129600.0, 1.0), "runs/day", [129600.0, 1.0]),
    ],
)
def test_values_of_five_digits_get_the_next_unit(unit, values, scaled, shown):
    found, numbers = scale_unit(unit, *values)
    assert (found, numbers) == (scaled, pytest.approx(shown))


@pytest.mark.parametrize(
    ("budget", "margin", "better", "as_factor", "text"),
    [
        (0.6, 0.1, "lower", False, "60+10%"),
        (0.025, 0.03, "lower", False, "2.5+3%"),
        (0.0, 0.03, "higher", False, "0+3%"),
        # Next to a factor, 5 % is understood, and 93 % of a rate is not.
        (0.05, 0.03, "lower", True, "5+3%"),
        (0.93, 0.03, "higher", False, "93+3%"),
        (0.93, 0.03, "higher", True, "14+11x"),
        (5.0, 0.5, "lower", False, "6+0.5x"),
        (0.05, None, "lower", False, "5%"),
    ],
)
def test_budget_and_margin_in_a_column(budget, margin, better, as_factor, text):
    sign = 1 if better == "lower" else -1
    limit, both = (sign * math.log1p(sign * value) for value in (budget, budget + (margin or 0)))
    shown_margin = None if margin is None else both - limit
    assert describe_limit(limit, shown_margin, better, as_factor=as_factor) == text
