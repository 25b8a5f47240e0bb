"""Judge whole tables of samples of scalars at once: years of sessions in seconds.

The rules are those of `virtqual.verdict.pairs.pair_up` and `virtqual.verdict.judge`, written for columns; the
tests hold the two against each other. Curves share an error rate over their sizes and go one by one
through `judge`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from virtqual.verdict.decision import Decision, contrast, decide, scanned, summarise
from virtqual.verdict.design import Design
from virtqual.verdict.judge import DESIGN, mostly_invalid, shown_level
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.pairs import Floats, PairingError

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_CODES = (Outcome.UNDECIDED, Outcome.WITHIN, Outcome.OVER, Outcome.INVALID)
_UNDECIDED, _WITHIN, _OVER, _INVALID = range(4)


@dataclass(frozen=True, eq=False)
class Samples:
    """A table of samples, one column each, all of one length, in any order.

    Parameters
    ----------
    series
        Which series a sample is of: 0 to the number of series less one.
    number
        Number of its pair within the series.
    virtual
        Whether it ran on the virtual side.
    value
        In the metric's unit.
    start, end
        Seconds since the epoch.
    refused
        Whether a validity gate refused it.
    """

    series: Ints
    number: Ints
    virtual: Bools
    value: Floats
    start: Floats
    end: Floats
    refused: Bools


@dataclass(frozen=True, eq=False)
class Rules:
    """What each series is judged by, one column each, shape (n_series,).

    Parameters
    ----------
    lower_is_better
        Direction of its metric.
    limit, margin
        In log units; see `Budget.limits`.
    sigma
        Prior standard deviation.
    df
        Weight of the prior, one number for all.
    """

    lower_is_better: Bools
    limit: Floats
    margin: Floats
    sigma: Floats
    df: float


@dataclass(frozen=True, eq=False)
class TableVerdicts:
    """Verdicts, one for each series.

    Parameters
    ----------
    code
        Index into `Outcome`s; see `outcome`.
    overhead, lower, upper
        Estimate and bounds in log units, nan without a valid pair.
    native, virtual
        Medians in the unit.
    pairs
        Number of pairs decided on.
    """

    code: NDArray[np.int8]
    overhead: Floats
    lower: Floats
    upper: Floats
    native: Floats
    virtual: Floats
    pairs: Ints

    def outcome(self, series: int) -> Outcome:
        """Return the outcome of one series."""
        return _CODES[self.code[series]]

    @property
    def outcomes(self) -> Counter[Outcome]:
        """How many series have which outcome."""
        return Counter({_CODES[code]: int(n) for code, n in enumerate(np.bincount(self.code)) if n})


def judge_table(samples: Samples, rules: Rules, design: Design = DESIGN) -> TableVerdicts:
    """Judge every series of a table.

    Parameters
    ----------
    samples
        At most one of each series, number and side.
    rules
        For as many series as `samples` speaks of.
    design
        Error rates and looks, for each series on its own.

    Raises
    ------
    PairingError
        If a sample occurs twice, or times or numbers cannot be what they say.
    """
    count = len(rules.limit)
    pairs = _pair_up(samples, count)
    attempted = np.bincount(pairs.series, minlength=count)
    order = np.flatnonzero(pairs.valid)
    series = pairs.series[order]
    valid = np.bincount(series, minlength=count)
    first = np.concatenate([[0], np.cumsum(valid)[:-1]])
    d = np.log(pairs.virtual[order]) - np.log(pairs.native[order])
    d *= np.where(rules.lower_is_better, 1.0, -1.0)[series]

    code = np.full(count, _UNDECIDED, dtype=np.int8)
    hopeless_pairs = mostly_invalid(attempted, valid)
    code[hopeless_pairs] = _INVALID
    used = np.minimum(valid, 1)
    live = np.flatnonzero(~hopeless_pairs)
    for look, n in enumerate(design.looks):
        live = live[(valid[live] >= n) & (code[live] != _OVER)]
        if not len(live):
            break
        decision = _decide(d[first[live][:, None] + np.arange(n)], rules, live, design, look)
        code[live] = np.select(
            [np.any(decision.over, axis=-1), decision.within, decision.hopeless],
            [_OVER, _WITHIN, _INVALID],
            _UNDECIDED,
        )
        used[live] = n
    return _summaries(code, used, first, d, pairs, order, rules, design)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs by series and number; values are nan where a run is missing."""

    series: Ints
    native: Floats
    virtual: Floats
    valid: Bools


def _decide(d: Floats, rules: Rules, live: Ints, design: Design, look: int) -> Decision:
    return decide(
        d[..., None],
        limit=rules.limit[live, None],
        margin=rules.margin[live, None],
        covariance=(rules.sigma[live] ** 2)[:, None, None],
        df=rules.df,
        design=design,
        look=look,
    )


def _pair_up(samples: Samples, count: int) -> _Pairs:
    series, number = samples.series, samples.number
    if len(series) and (series.min() < 0 or series.max() >= count or number.min() < 0):
        raise PairingError(f"series run from 0 to {count - 1} and pair numbers from 0.")
    if not np.all(np.isfinite(samples.start) & np.isfinite(samples.end)):
        raise PairingError("a sample needs times at which it started and ended.")
    key = np.lexsort((samples.virtual, number, series))
    series, number, virtual = series[key], number[key], samples.virtual[key]
    new = np.ones(len(key), dtype=np.bool_)
    new[1:] = (series[1:] != series[:-1]) | (number[1:] != number[:-1])
    if np.any(~new[1:] & (virtual[1:] == virtual[:-1])):
        twice = int(np.flatnonzero(~new[1:] & (virtual[1:] == virtual[:-1]))[0])
        raise PairingError(f"series {series[twice]}: pair {number[twice]} has a sample more than once.")
    pair = np.cumsum(new) - 1
    total = int(pair[-1]) + 1 if len(pair) else 0

    def column(of: NDArray[np.float64], side: bool) -> Floats:
        filled = np.full(total, np.nan)
        here = virtual == side
        filled[pair[here]] = of[key][here]
        return filled

    usable = np.isfinite(samples.value) & (samples.value > 0) & ~samples.refused
    usable &= samples.end >= samples.start
    good = column(usable.astype(np.float64), False) * column(usable.astype(np.float64), True) == 1
    native_start, virtual_start = column(samples.start, False), column(samples.start, True)
    in_order = (native_start < virtual_start) == (number[new] % 2 == 0)
    undisturbed = np.ones(total, dtype=np.bool_)
    undisturbed[_disturbed(samples, key, pair)] = False
    return _Pairs(
        series[new],
        column(samples.value, False),
        column(samples.value, True),
        good & in_order & undisturbed,
    )


def _disturbed(samples: Samples, key: Ints, pair: Ints) -> Ints:
    """Return the pairs with a run that overlaps the next one of its series, or that are interrupted."""
    in_time = np.lexsort((samples.end[key], samples.start[key], samples.series[key]))
    series, mine = samples.series[key][in_time], pair[in_time]
    start, end = samples.start[key][in_time], samples.end[key][in_time]
    overlap = np.flatnonzero((series[1:] == series[:-1]) & (start[1:] < end[:-1]))
    place = np.empty(len(key), dtype=np.int64)
    place[in_time] = np.arange(len(key))
    both = np.flatnonzero(pair[1:] == pair[:-1])
    interrupted = both[np.abs(place[both + 1] - place[both]) > 1]
    return np.concatenate([mine[overlap], mine[overlap + 1], pair[interrupted]])


def _summaries(
    code: NDArray[np.int8],
    used: Ints,
    first: Ints,
    d: Floats,
    pairs: _Pairs,
    order: Ints,
    rules: Rules,
    design: Design,
) -> TableVerdicts:
    columns = {
        name: np.full(len(code), np.nan) for name in ("overhead", "lower", "upper", "native", "virtual")
    }
    for n in np.unique(used[used > 0]):
        here = np.flatnonzero(used == n)
        rows = first[here][:, None] + np.arange(n)
        look = design.look(int(n)) or 0
        covariance = (rules.sigma[here] ** 2)[:, None, None]
        part = contrast(summarise(d[rows][..., None], scanned(1), covariance, rules.df, design.clip))
        columns["overhead"][here] = part.mean[:, 0]
        columns["lower"][here] = part.bound(shown_level(design, look, 1), -1)[:, 0]
        columns["upper"][here] = part.bound(design.within_level(look), +1)[:, 0]
        columns["native"][here] = np.median(pairs.native[order][rows], axis=1)
        columns["virtual"][here] = np.median(pairs.virtual[order][rows], axis=1)
    return TableVerdicts(code, **columns, pairs=used)
