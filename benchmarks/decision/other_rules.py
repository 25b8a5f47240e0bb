"""Rules that others use, or that a statistician would propose, on the sessions that virtqual's gets.

Each rule gets the runs of the sessions in the order of time, as ln(cost), with the overhead on the runs that
the rule takes for virtual ones. It answers WITHIN or OVER for each metric, after some pairs of runs; a rule
with several looks stops at its first answer. The rules that promise an error rate get the one of virtqual:
an OVER in 1 % of sessions of which all metrics are at the budget, and a pass in 5 % at budget + margin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import noise_models as models
import numpy as np
from real_data import METRICS, Sessions
from scipy import optimize, special, stats

import sessions as draw
from virtqual.verdict.estimate import Floats
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.rule import LOOKS

OVER_LEVEL = 0.01 / METRICS
WITHIN_LEVEL = 0.05
EVERY_PAIR = tuple(range(2, draw.MAX_PAIRS + 1))
Rule = Callable[[Sessions, Floats], draw.Simulated]


def fixed_reference(sessions: Sessions, overhead: Floats, tolerance: float = 0.05) -> draw.Simulated:
    """Compare the mean of four runs with the mean of the same machine's history.

    The runs are virtual and follow each other, which takes as long as two pairs. Most suites of ReFrame work
    so: ``reference = {"system": {"metric": (value, -0.05, 0.05, unit)}}``. Only slower means are OVER here.
    """
    mean = np.exp(sessions.logs[..., :4] + overhead[:, None]).mean(axis=-1)
    is_over = mean > (1 + tolerance) * np.exp(sessions.reference)
    return first_answers(is_over[..., None], ~is_over[..., None], (2,))


def firecracker(sessions: Sessions, overhead: Floats, a_side: int, iterations: int = 1) -> draw.Simulated:
    """Repeat Firecracker's A/B test (tools/ab_test.py) until it finds no difference.

    An iteration runs all of A and then all of B, every other one in the opposite order, and adds to the
    data. The test fails if the means differ with p < 0.01 in a two-sided permutation test, and by more than
    5 % of that of A (its ``--noise-threshold``). Only slower means are OVER here.
    """
    a, b, fails = [], [], []
    for iteration, runs in enumerate(np.split(sessions.logs[..., : 2 * a_side * iterations], iterations, -1)):
        sides = runs[..., :a_side], runs[..., a_side:]
        a.append(np.exp(sides[iteration % 2]))
        b.append(np.exp(sides[1 - iteration % 2] + overhead[:, None]))
        costs_a, costs_b = np.concatenate(a, axis=-1), np.concatenate(b, axis=-1)
        is_over = costs_b.mean(axis=-1) > 1.05 * costs_a.mean(axis=-1)
        is_over[is_over] = permutation_p(costs_a[is_over], costs_b[is_over]) < 0.01
        fails.append(is_over)
    over = np.stack(fails, axis=-1)
    is_last = np.arange(iterations) == iterations - 1
    return first_answers(over & is_last, ~over, a_side * np.arange(1, iterations + 1))


def permutation_p(a: Floats, b: Floats, resamples: int = 1999) -> Floats:
    """Return two-sided p-values of the difference of means, of rows of as many values of A and B.

    As in `scipy.stats.permutation_test`: twice the smaller share of the splits, this one included, whose
    difference is as large. Few runs have few splits, all of which are tried. (Firecracker draws 9,999.)
    """
    is_exact = special.comb(2 * a.shape[1], a.shape[1]) <= resamples
    chosen = _splits(a.shape[1], 0 if is_exact else resamples)
    own, p = b.sum(axis=1, keepdims=True), np.empty(len(b))
    for rows in np.array_split(np.arange(len(b)), len(b) // 2000 + 1):
        totals = np.concatenate([a[rows], b[rows]], axis=1) @ chosen - own[rows]
        slack = 1e-12 * own[rows]
        counts = np.minimum(np.sum(totals >= -slack, axis=1), np.sum(totals <= slack, axis=1))
        p[rows] = 2 * (counts + (not is_exact)) / (chosen.shape[1] + (not is_exact))
    return np.minimum(p, 1)


@cache
def _splits(half: int, resamples: int) -> Floats:
    """Return which runs are B in so many random splits, or in all of them, shape (2 * half, n_splits)."""
    if not resamples:
        chosen = (np.arange(1 << 2 * half)[:, None] >> np.arange(2 * half)) & 1
        return chosen[chosen.sum(axis=1) == half].T.astype(float)
    order = np.random.default_rng(1).random((resamples, 2 * half)).argsort(axis=1)
    return (order < half).T.astype(float)


def mann_whitney(sessions: Sessions, overhead: Floats, pairs: int, allowed: float) -> draw.Simulated:
    """Ask with Mann and Whitney's U test whether virtual runs are slower than native ones.

    Native runs are multiplied by 1 + `allowed`. OVER if p < 0.01 (one-sided), else WITHIN. The sides take
    turns, as in virtqual.
    """
    native, virtual = models.sides(sessions.logs[..., : 2 * pairs])
    shifted = native + np.log1p(allowed)
    test = stats.mannwhitneyu(virtual + overhead[:, None], shifted, alternative="greater", axis=-1)
    is_over = np.asarray(test.pvalue < 0.01)
    return first_answers(is_over[..., None], ~is_over[..., None], (pairs,))


def pocock(sessions: Sessions, overhead: Floats, min_pairs: int = 4) -> draw.Simulated:
    """Test twice at each of virtqual's looks with Student's t, at Pocock's constant level.

    OVER if the overhead is above the budget at the level of a metric in 11, from four pairs on; WITHIN if it
    is below budget + margin (two one-sided tests, group sequential: doi:10.1093/biomet/64.2.191). It knows
    no noise but the session's own.
    """
    d = differences(sessions, overhead)
    over_level, within_level = pocock_level(OVER_LEVEL, LOOKS[1:]), pocock_level(WITHIN_LEVEL, LOOKS)
    over, within = [], []
    for look in LOOKS:
        mean = d[..., :look].mean(axis=-1)
        error = d[..., :look].std(axis=-1, ddof=1) / np.sqrt(look)
        over.append((mean - draw.LIMIT > error * stats.t.isf(over_level, look - 1)) & (look > LOOKS[0]))
        within.append(draw.LIMIT + draw.LOG_MARGIN - mean > error * stats.t.isf(within_level, look - 1))
    return first_answers(np.stack(over, -1), np.stack(within, -1), LOOKS, min_pairs)


@cache
def pocock_level(level: float, looks: tuple[int, ...]) -> float:
    """Return the one-sided level at each look with which the looks together have one of `level`."""
    times = np.array(looks, dtype=float)
    covariance = np.sqrt(np.minimum.outer(times, times) / np.maximum.outer(times, times))

    def excess(z: float) -> float:
        bound = np.full(len(looks), z)
        together = stats.multivariate_normal.cdf(bound, cov=covariance, maxpts=10**6, rng=1)
        return float(np.log((1 - together) / level))

    z = optimize.brentq(excess, stats.norm.isf(level), stats.norm.isf(level / len(looks)), xtol=1e-4)
    return float(stats.norm.sf(z))


def t_e_values(sessions: Sessions, overhead: Floats, min_pairs: int = 4) -> draw.Simulated:
    """Stop at the first pair at which the e-value of a one-sided t test reaches 1 / level."""
    d = differences(sessions, overhead)
    over = e_values(d - draw.LIMIT) >= 1 / OVER_LEVEL
    within = e_values(draw.LIMIT + draw.LOG_MARGIN - d) >= 1 / WITHIN_LEVEL
    return first_answers(over[..., 1:], within[..., 1:], EVERY_PAIR, min_pairs)


def e_values(x: Floats, g: float = 4.0) -> Floats:
    """Return the evidence after each value, along the last axis, against a mean of at most 0.

    The effect size has the positive half of a Gaussian of variance `g` as prior, sigma the right Haar prior:
    an e-process, valid whenever one stops (Pérez-Ortiz et al. 2024, doi:10.1214/24-AOS2394).
    """
    n = np.arange(1, x.shape[-1] + 1)
    mean = np.cumsum(x, axis=-1) / n
    squares = np.maximum(np.cumsum(x**2, axis=-1) - n * mean**2, 0) + 1e-30
    shrunk = squares + n * mean**2 / (1 + n * g)
    two_sided = ((squares + n * mean**2) / shrunk) ** (n / 2) / np.sqrt(1 + n * g)
    # The posterior of the mean is Student's t; its positive half is what a one-sided prior leaves.
    t = n * mean / (n + 1 / g) / np.sqrt(shrunk / n / (n + 1 / g))
    return np.asarray(2 * two_sided * special.stdtr(n, t))


def confidence_sequence(sessions: Sessions, overhead: Floats, start: int = 8) -> draw.Simulated:
    """Stop when a one-sided asymptotic confidence sequence (arXiv:2103.06476) excludes a hypothesis.

    It begins at eight pairs, where it is narrowest: it only holds for long samples.
    """
    d = differences(sessions, overhead)
    n = np.arange(1, d.shape[-1] + 1)
    mean = np.cumsum(d, axis=-1) / n
    sd = np.sqrt(np.maximum(np.cumsum(d**2, axis=-1) / n - mean**2, 0))
    over = mean - sd * _reach(n, OVER_LEVEL, start) > draw.LIMIT
    within = mean + sd * _reach(n, WITHIN_LEVEL, start) < draw.LIMIT + draw.LOG_MARGIN
    return first_answers(over[..., start - 1 :], within[..., start - 1 :], n[start - 1 :])


def _reach(n: np.ndarray, level: float, best: int) -> Floats:
    """Return half the width of the sequence in standard deviations, narrowest after `best` pairs."""
    rho2 = (-2 * np.log(level) + np.log(1 - 2 * np.log(level))) / best
    return np.sqrt(2 * (n * rho2 + 1) / (n**2 * rho2) * np.log1p(np.sqrt(n * rho2 + 1) / (2 * level)))


def differences(sessions: Sessions, overhead: Floats) -> Floats:
    """Return the pair differences, shape (n_sessions, n_metrics, MAX_PAIRS)."""
    return models.differences(sessions.logs) + overhead[:, None]


def first_answers(
    over: np.ndarray, within: np.ndarray, pairs: Sequence[int], min_pairs: int = 0
) -> draw.Simulated:
    """Return the first answers of looks after so many pairs, or UNDECIDED at the last.

    `over` and `within` have the shape (n_sessions, n_metrics, n_looks).
    """
    counts = np.array(pairs)
    within = within & ~over & (counts >= min_pairs)
    is_answered = over | within
    first = np.where(is_answered.any(axis=-1), is_answered.argmax(axis=-1), len(counts) - 1)
    answers = np.array([Outcome.UNDECIDED, Outcome.WITHIN, Outcome.OVER])[within + 2 * over]
    return draw.Simulated(np.take_along_axis(answers, first[..., None], -1)[..., 0], counts[first])


RULES: dict[str, Rule] = {
    "fixed reference +-5 %, mean of 4 runs": fixed_reference,
    "Firecracker's A/B test, 4 a side": partial(firecracker, a_side=4),
    "the same, 9 a side, and 9 more if it fails": partial(firecracker, a_side=9, iterations=2),
    "the same, 18 a side": partial(firecracker, a_side=18),
    "Mann-Whitney, 18 a side, no difference": partial(mann_whitney, pairs=18, allowed=0.0),
    "Mann-Whitney, 18 a side, the budget": partial(mann_whitney, pairs=18, allowed=draw.BUDGET),
    "Pocock TOST": pocock,
    "t e-value at every pair": t_e_values,
    "asymptotic confidence sequence": confidence_sequence,
}
FROM_TWO: dict[str, Rule] = {
    "Pocock TOST": partial(pocock, min_pairs=2),
    "t e-value at every pair": partial(t_e_values, min_pairs=2),
}
"""Those that may pass a metric after two pairs."""
