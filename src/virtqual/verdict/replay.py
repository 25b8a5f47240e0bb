"""Published results, executed: the studies' numbers through the code that judges ours.

A study prints one value where we would have pairs. It stands here for a stated number of pairs that vary
by a stated spread (in the data, shown with the table); everything after that is `judge_session`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from virtqual.references.load import References
from virtqual.references.noise import Prior
from virtqual.references.published import CaseEntry, ClaimEntry, Published, StatedPrior, Study
from virtqual.verdict.batches import Case
from virtqual.verdict.outcome import Outcome, first_of, format_ratio
from virtqual.verdict.pairs import Sample, Series, pair_up
from virtqual.verdict.session import judge_sessions
from virtqual.verdict.verdict import Verdict

# How far a native value may lie from what it is known to be before nothing may be judged by it.
NATIVE_TOLERANCE = 0.05


@dataclass(frozen=True, eq=False)
class Row:
    """One claim: what the study concluded, and what virtqual concludes.

    Parameters
    ----------
    study
        Id of the study.
    claim
        The claim.
    verdicts
        One for each of its cases; empty where nothing can be judged.
    why
        Why the conclusions differ, or what else is to be known; empty if nothing.
    """

    study: str
    claim: ClaimEntry
    verdicts: tuple[Verdict, ...]
    why: str

    @property
    def outcome(self) -> Outcome | None:
        """The worst of its cases; None where nothing can be judged."""
        return first_of(verdict.outcome for verdict in self.verdicts) if self.verdicts else None

    @property
    def agrees(self) -> bool:
        """Whether study and virtqual conclude the same; true where nothing can be judged."""
        return self.outcome is None or self.outcome.value == self.claim.concluded

    @property
    def shown(self) -> str:
        """The overheads of its cases in short."""
        return ", ".join(_short(verdict) for verdict in self.verdicts)


def replay(published: Published, references: References, hypervisor_class: str = "production") -> list[Row]:
    """Judge every published claim that has numbers.

    Parameters
    ----------
    published
        The studies.
    references
        Whose budgets are used.
    hypervisor_class
        The class whose budgets are used.

    Returns
    -------
    list of Row
        Every claim, judged or not, in the order of the files.

    Raises
    ------
    NoReferenceError, UnknownMetricError
        If a claim is about a metric without budget, or about no metric.
    """
    return [
        _row(study, claim, published, references, hypervisor_class)
        for study in published.studies
        for claim in study.claims
    ]


def series(case: CaseEntry, stated: StatedPrior, references: References) -> Series:
    """Return the pairs for which a printed comparison stands."""
    metric = references.metrics[case.metric]
    points = tuple(case.sizes or ())
    reference, candidate = case.values
    native = np.full(max(len(points), 1), reference)
    virtual = np.full(len(native), candidate)
    if case.bump is not None:
        outside = [not case.bump.low <= size <= case.bump.high for size in points]
        virtual[outside] = reference
    return pair_up(metric, case.setting, points, _samples(native, virtual, stated.pairs))


def _samples(native: np.ndarray, virtual: np.ndarray, pairs: int) -> Iterator[Sample]:
    clock = 0.0
    for number in range(pairs):
        order = (("native", native), ("virtual", virtual))
        for side, values in order if number % 2 == 0 else reversed(order):
            run = tuple(float(value) for value in values)
            yield Sample(
                "native" if side == "native" else "virtual",
                number,
                run,
                clock,
                clock + 1,
            )
            clock += 1


def _row(
    study: Study, claim: ClaimEntry, published: Published, references: References, hypervisor_class: str
) -> Row:
    prior = Prior(study.prior.sigma, study.prior.df, study.prior.source)
    verdicts: list[Verdict] = []
    for case in claim.cases:
        measured = series(case, study.prior, references)
        budget = references.budget(measured, hypervisor_class, gate="overhead")
        alone = [Case(measured, budget, prior, refused=_refusals(case))]
        verdicts += judge_sessions([alone], looks=[study.prior.pairs])[0].verdicts
    return Row(study.study.id, claim, tuple(verdicts), _why(claim, published))


def _refusals(case: CaseEntry) -> tuple[str, ...]:
    refusals = [] if case.refused is None else [case.refused]
    if case.reference_expected is not None:
        off = case.values[0] / case.reference_expected - 1
        if abs(math.log1p(off)) > NATIVE_TOLERANCE:
            refusals.append(f"native is {off:+.1%} off its own reference of {case.reference_expected:g}")
    return tuple(refusals)


def _why(claim: ClaimEntry, published: Published) -> str:
    notes = []
    if claim.inconsistency is not None:
        notes.append(f"{claim.inconsistency}: {published.inconsistencies[claim.inconsistency].what}")
    notes += list(
        dict.fromkeys(text for case in claim.cases for text in (case.refused, case.assumption) if text)
    )
    return "; ".join(notes)


def _short(verdict: Verdict) -> str:
    if verdict.outcome is Outcome.OVER and verdict.findings:
        finding = verdict.findings[0]
        is_range = finding.low is not None and finding.high is not None
        sizes = f" at {finding.low:g} to {finding.high:g}" if is_range else ""
        return f"{format_ratio(finding.judged.ratio)}{sizes}"
    return format_ratio(verdict.overhead.ratio) if verdict.overhead else "-"
