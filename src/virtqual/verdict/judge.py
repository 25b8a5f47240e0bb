"""Judge one series."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from virtqual.references.budgets import Budget, BudgetError
from virtqual.references.noise import Prior
from virtqual.verdict.decision import (
    Contrast,
    Decision,
    Summary,
    Windows,
    agreeing,
    contiguous,
    contrast,
    decide,
    pairs_needed,
    resolved_margin,
    scanned,
    summarise,
)
from virtqual.verdict.design import Design
from virtqual.verdict.outcome import Estimate, Evidence, Finding, Outcome, Point, Verdict, number
from virtqual.verdict.pairs import Floats, PairingError, Series

DESIGN = Design()
HEADROOM = 1.25  # a margin leaves room for noise a quarter above what is known


def judge(
    series: Series,
    budget: Budget,
    *,
    prior: Prior,
    design: Design = DESIGN,
    baseline: Series | None = None,
    refused: tuple[str, ...] = (),
) -> Verdict:
    """Decide whether a series is within its budget.

    The latest look that the valid pairs reach decides, on that look's pairs. Whoever stops at the
    first decision and whoever goes on are both within the stated error rates.

    Parameters
    ----------
    series
        Its pairs so far; may be empty.
    budget
        What is allowed. Its `gate` says what it limits: under ``change`` and without `baseline` the
        outcome is BASELINE.
    prior
        Noise known beforehand.
    design
        Error rates and looks.
    baseline
        The same series in an earlier session. Given, the change of the overhead is judged.
    refused
        Reasons for which the whole series cannot be judged, such as native missing its reference.

    Returns
    -------
    Verdict
        With `next_look` where more pairs are wanted.

    Raises
    ------
    PairingError
        If `baseline` is another metric, setting or set of points.
    BudgetError
        If the budget cannot be applied to this metric and its values.
    """
    if baseline is not None:
        _same(series, baseline)
        budget = budget if budget.gate == "change" else _as_change(budget)
    change = budget.gate == "change"
    evidence = Evidence(series, budget, prior, design, baseline, refused, change)
    attempted, valid = len(series.pairs), len(series.valid)
    reasons = [*refused, *_left_out(series)]
    if refused or bool(mostly_invalid(np.array(attempted), np.array(valid))):
        return _answer(Outcome.INVALID, evidence, reasons)
    look = design.look(valid)
    if look is None:
        wanted = design.looks[0]
        reasons.append(f"{valid} of the {wanted} pairs that the first look needs")
        return _answer(Outcome.UNDECIDED, evidence, reasons, next_look=wanted)
    if change and baseline is None:
        return _answer(Outcome.BASELINE, evidence, reasons)
    if baseline is not None and len(baseline.valid) < 2:
        reasons.append(f"the earlier session has {len(baseline.valid)} valid pairs: at least 2 are needed")
        return _answer(Outcome.INVALID, evidence, reasons)

    # A conviction stands: what was OVER at a look stays OVER whatever is run afterwards. Acquittals do
    # not stand, so that pairs run for the sake of another metric are not wasted.
    for earlier_look in range(look + 1):
        decision, limit, margin = _at(evidence, earlier_look)
        if np.any(decision.over):
            findings = _findings(evidence, earlier_look, limit, decision.over)
            return _answer(Outcome.OVER, evidence, reasons, findings=findings, look=earlier_look)
    if decision.within:
        return _answer(Outcome.WITHIN, evidence, reasons)
    if decision.hopeless:
        return _answer(Outcome.INVALID, evidence, [*reasons, _too_noisy(evidence, look, margin)])
    # A look that can only acquit is not worth a stop for what is probably over.
    suspect = float(np.max(_judged(evidence, look) - limit - margin / 2)) > 0
    following = design.next_look(design.looks[look], confirming=suspect)
    if following is None:
        reasons.append(f"still undecided at the maximum of {design.max_pairs} pairs")
    return _answer(Outcome.UNDECIDED, evidence, reasons, next_look=following)


def _at(evidence: Evidence, look: int) -> tuple[Decision, Floats, Floats]:
    """Return the decision at a look, with the budget and margin that held there."""
    series, prior, baseline = evidence.series, evidence.prior, evidence.baseline
    base = np.median(series.values(series.base)[: evidence.design.looks[look]], axis=0)
    limit, margin = evidence.budget.limits(series.metric, series.points, base, _resolved(evidence))
    decision = decide(
        series.differences(),
        limit=limit,
        margin=margin,
        covariance=prior.covariance(series.width),
        df=prior.df,
        design=evidence.design,
        look=look,
        earlier=None if baseline is None else baseline.differences(),
        between=prior.between,
    )
    return decision, limit, margin


def _resolved(evidence: Evidence) -> Floats | None:
    """Return the margin that a change can be resolved by, from what is known before the first pair.

    Noise that this session shows does not count, so that a loud session cannot widen its own margin.
    """
    prior, design, width = evidence.prior, evidence.design.alone(), evidence.series.width
    if evidence.baseline is None or not evidence.baseline.valid:
        return None
    return HEADROOM * resolved_margin(
        np.diagonal(prior.covariance(width)),
        design,
        prior.df + design.max_pairs - 1,
        len(scanned(width)),
        len(evidence.baseline.valid),
        prior.between,
    )


def _same(series: Series, baseline: Series) -> None:
    if (series.metric, series.setting, series.points) != (baseline.metric, baseline.setting, baseline.points):
        what = "points" if series.id == baseline.id else "series"
        raise PairingError(f"{series.id}: the earlier session has other {what} ({baseline.id}).")


def _as_change(budget: Budget) -> Budget:
    return Budget(budget.terms, budget.hypervisor_class, "change")


def _left_out(series: Series) -> list[str]:
    return [
        f"pair {pair.number} left out: {'; '.join(pair.invalid)}" for pair in series.pairs if pair.invalid
    ]


def mostly_invalid(attempted: NDArray[np.int64], valid: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether asking for more pairs is pointless: refusals are the rule and not the exception."""
    refused = attempted - valid
    pointless: NDArray[np.bool_] = ((attempted >= 2) & (valid == 0)) | (
        (attempted >= 4) & (2 * refused >= attempted)
    )
    return pointless


def shown_level(design: Design, look: int, windows: int) -> float:
    """Return the level of the lower bound that is shown."""
    # Before OVER can be decided a bound is shown all the same, at the level of an average look.
    return design.over_level(look, windows) or design.alpha / design.family / len(design.looks) / windows


def _summaries(evidence: Evidence, pairs: slice, windows: Windows) -> tuple[Summary, Summary | None]:
    prior, clip = evidence.prior, evidence.design.clip
    covariance = prior.covariance(evidence.series.width)
    now = summarise(evidence.series.differences()[pairs], windows, covariance, prior.df, clip)
    if evidence.baseline is None:
        return now, None
    return now, summarise(evidence.baseline.differences(), windows, covariance, prior.df, clip)


def _judged(evidence: Evidence, look: int) -> Floats:
    """Return the judged mean at each point, shape (n_points,)."""
    windows = scanned(evidence.series.width)
    now, earlier = _summaries(evidence, slice(evidence.design.looks[look]), windows)
    return contrast(now, earlier).mean[: evidence.series.width]


def _estimates(part: Contrast, over: float, within: float) -> list[Estimate]:
    lower, upper = part.bound(over, -1), part.bound(within, +1)
    return [Estimate(*map(float, row)) for row in zip(part.mean, lower, upper, strict=True)]


def _answer(
    outcome: Outcome,
    evidence: Evidence,
    reasons: list[str],
    *,
    findings: tuple[Finding, ...] = (),
    next_look: int | None = None,
    look: int | None = None,
) -> Verdict:
    """Return the verdict with all that is to be shown, whatever the outcome is."""
    series, design = evidence.series, evidence.design
    valid = len(series.valid)
    if valid == 0:
        return Verdict(
            outcome,
            None,
            None,
            None,
            None,
            None,
            None,
            (),
            findings,
            0,
            next_look,
            None,
            tuple(reasons),
            evidence,
        )
    look = design.look(valid) if look is None else look
    used = valid if look is None else design.looks[look]
    native = np.median(series.values("native")[:used], axis=0)
    virtual = np.median(series.values("virtual")[:used], axis=0)
    windows = scanned(series.width)
    over = shown_level(design, look or 0, len(windows))
    within = design.within_level(look or 0)
    now, earlier = _summaries(evidence, slice(used), windows)
    overheads = _estimates(contrast(now), over, within)
    changes = _estimates(contrast(now, earlier, evidence.prior.between), over, within) if earlier else None
    limit: Floats | None = None
    margin: Floats | None = None
    try:
        base = virtual if series.yardstick else native
        limit, margin = evidence.budget.limits(series.metric, series.points, base, _resolved(evidence))
    except BudgetError:
        # Judging has raised this already where it matters; a refused series is shown without budget.
        if outcome is not Outcome.INVALID:
            raise
    points = tuple(
        Point(
            size=series.points[i] if series.points else None,
            native=None if series.yardstick else float(native[i]),
            virtual=float(virtual[i]),
            overhead=None if series.yardstick else overheads[i],
            judged=(changes or overheads)[i],
            limit=math.nan if limit is None else float(limit[i]),
            margin=math.nan if margin is None else float(margin[i]),
        )
        for i in range(series.width)
    )
    needed: float | None = None
    if margin is not None:
        needed = float(
            np.max(
                pairs_needed(
                    now.variance[: series.width],
                    margin,
                    design,
                    now.df,
                    len(windows),
                    earlier.pairs if earlier else None,
                    evidence.prior.between if earlier else 0.0,
                )
            )
        )
    return Verdict(
        outcome,
        overhead=None if series.yardstick else overheads[-1],
        change=changes[-1] if changes else None,
        native=None if series.yardstick else float(np.exp(np.mean(np.log(native)))),
        virtual=float(np.exp(np.mean(np.log(virtual)))),
        limit=None if limit is None else float(np.min(limit)),
        margin=None if margin is None else float(np.min(margin)),
        points=points,
        findings=findings,
        pairs=used,
        next_look=next_look,
        needed=None if needed is None or not math.isfinite(needed) else max(math.ceil(needed), 2),
        reasons=tuple(reasons),
        evidence=evidence,
    )


def _too_noisy(evidence: Evidence, look: int, margin: Floats) -> str:
    """Return the reason for INVALID that names the noise, and how many pairs it would need."""
    design, prior, series = evidence.design, evidence.prior, evidence.series
    windows = scanned(series.width)
    now, earlier = _summaries(evidence, slice(design.looks[look]), windows)
    needed = pairs_needed(
        now.variance[: series.width],
        margin,
        design.alone(),
        now.df,
        len(windows),
        earlier.pairs if earlier else None,
        prior.between if earlier else 0.0,
    )
    worst = int(np.argmax(needed))
    spread = math.sqrt(float(now.variance[worst]))
    at = f" at {number(series.points[worst])} {series.metric.axis_unit}" if series.points else ""
    text = f"noise too high: a pair varies by {spread:.1%}{at}; its margin of {math.expm1(margin[worst]):.1%}"
    if math.isinf(needed[worst]):
        against = " against the earlier session" if earlier else ""
        return f"{text} cannot be resolved{against}, whatever the number of pairs"
    return f"{text} would need {math.ceil(needed[worst])} pairs, {design.max_pairs} are the maximum"


def _findings(evidence: Evidence, look: int, limit: Floats, over: np.ndarray) -> tuple[Finding, ...]:
    """Name contiguous ranges that are over budget, without saying the same thing twice.

    The scan has decided *that* there is something. *Where* is answered by the contiguous window whose
    excess stands out most; then by the next one that does not touch it, as long as a window of the
    scan outside the ranges named already is over budget too.
    """
    design, prior, series = evidence.design, evidence.prior, evidence.series
    scan, every = scanned(series.width), contiguous(series.width)
    fresh = slice(design.screen, design.looks[look])
    now, earlier = _summaries(evidence, fresh, every)
    part = contrast(now, earlier, prior.between)
    excess = part.mean - limit @ every.weights.T
    d = series.differences()[fresh]
    standing = np.where(
        agreeing(d, every, prior.covariance(series.width), design.contradiction), excess / part.error, -np.inf
    )
    level = design.over_level(look, len(scan))
    lower, upper = part.bound(level, -1), part.bound(design.within_level(look), +1)
    native = np.log(np.median(series.values("native")[: design.looks[look]], axis=0))
    virtual = np.log(np.median(series.values("virtual")[: design.looks[look]], axis=0))
    free = np.ones(series.width, dtype=np.bool_)
    findings: list[Finding] = []
    while np.any(over & _inside(scan, free)):
        usable = _inside(every, free)
        best = int(np.argmax(np.where(usable, standing, -np.inf)))
        start, stop = int(every.start[best]), int(every.stop[best])
        findings.append(
            Finding(
                low=series.points[start] if series.points else None,
                high=series.points[stop - 1] if series.points else None,
                judged=Estimate(float(part.mean[best]), float(lower[best]), float(upper[best])),
                limit=float((limit @ every.weights.T)[best]),
                native=None if series.yardstick else float(np.exp(np.mean(native[start:stop]))),
                virtual=float(np.exp(np.mean(virtual[start:stop]))),
            )
        )
        free[max(start - 1, 0) : stop + 1] = False
    return tuple(sorted(findings, key=lambda finding: finding.limit - finding.judged.log))


def _inside(windows: Windows, free: np.ndarray) -> np.ndarray:
    return np.array([bool(np.all(free[i:j])) for i, j in zip(windows.start, windows.stop, strict=True)])
