"""Judge all series of a session with one error rate, and say what is still to be run.

Every series is screened with its first two pairs. The screen can acquit (WITHIN, with the usual error
rate) but not convict: what it does not acquit is *flagged* and confirmed on fresh pairs alone, with
Holm's procedure. Of overheads, the flagged ones share the error rate: flags come from other pairs than
convictions do. Of changes, all share it, flagged or not: flags and convictions have the pairs of the
earlier session in common. Where both are asked for, each has half of it. So the chance of any false OVER
in the whole session stays below alpha, whether it judges five metrics or five hundred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property

from virtqual.references.budgets import Budget, Gate, HypervisorClass
from virtqual.references.noise import Prior
from virtqual.references.waivers import Waiver
from virtqual.verdict.design import Design
from virtqual.verdict.judge import DESIGN, judge
from virtqual.verdict.outcome import Outcome, Verdict
from virtqual.verdict.pairs import Series

SCREEN = 2

# The order in which one answer stands for many: the first that occurs.
_ORDER = (Outcome.INVALID, Outcome.OVER, Outcome.UNDECIDED, Outcome.BASELINE, Outcome.WITHIN)


class SessionError(ValueError):
    """Cases that cannot be judged together."""


@dataclass(frozen=True, eq=False)
class Case:
    """One series with all that is needed to judge it.

    Parameters
    ----------
    series
        Its pairs so far; may be empty.
    budget, prior
        See `judge`.
    baseline
        The same series in an earlier session (`--against`).
    refused
        Reasons for which the whole series cannot be judged.
    """

    series: Series
    budget: Budget
    prior: Prior
    baseline: Series | None = None
    refused: tuple[str, ...] = ()

    @property
    def gate(self) -> Gate:
        """Whether the overhead is asked about, or its change: one session may ask both of a series."""
        return self.budget.gate if self.baseline is None else "change"


@dataclass(frozen=True)
class Need:
    """Pairs that one series still needs.

    Parameters
    ----------
    series
        Its id, ``metric@setting``.
    first, last
        Pair numbers, both included.
    reason
        Why they are wanted.
    """

    series: str
    first: int
    last: int
    reason: str

    @property
    def numbers(self) -> range:
        """The pair numbers."""
        return range(self.first, self.last + 1)


@dataclass(frozen=True)
class Plan:
    """What is still to be run. A driver runs it, adds the samples and judges again.

    Parameters
    ----------
    needs
        One for each series that is not decided, in the order of the cases.
    """

    needs: tuple[Need, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether nothing is left to run."""
        return not self.needs

    @property
    def series(self) -> tuple[str, ...]:
        """Ids of the series that need pairs."""
        return tuple(need.series for need in self.needs)

    def numbers(self, series: str) -> range:
        """Return the pair numbers that `series` needs; empty if none."""
        return next((need.numbers for need in self.needs if need.series == series), range(0))


@dataclass(frozen=True, eq=False)
class SessionVerdict:
    """The verdicts of a session.

    Parameters
    ----------
    verdicts
        One for each case, in their order.
    plan
        What is still to be run.
    design
        The design of the session.
    hypervisor_class
        The class it was judged under; None if budgets were given by hand.
    waivers
        All that are about this class and build, whether they were needed or not: always shown.
    today
        The day by which waivers hold or have expired.
    """

    verdicts: tuple[Verdict, ...]
    plan: Plan
    design: Design
    hypervisor_class: HypervisorClass | None = None
    waivers: tuple[Waiver, ...] = ()
    today: date = field(default_factory=date.today)

    @cached_property
    def outcomes(self) -> Counter[Outcome]:
        """How many verdicts have which outcome; a waived OVER counts as OVER."""
        return Counter(verdict.outcome for verdict in self.verdicts)

    @property
    def outcome(self) -> Outcome:
        """One answer for all: INVALID, OVER, UNDECIDED, BASELINE, WITHIN, the first that occurs.

        A waived OVER does not count; `accepted` says how many there are. A session in which nothing was
        judged is INVALID.
        """
        present = {Outcome.WITHIN if verdict.passes else verdict.outcome for verdict in self.verdicts}
        return next((outcome for outcome in _ORDER if outcome in present), Outcome.INVALID)

    @property
    def accepted(self) -> int:
        """How many verdicts are OVER and accepted by a waiver."""
        return sum(verdict.waived for verdict in self.verdicts)

    @property
    def qualified(self) -> tuple[bool, str]:
        """Whether the build may be called qualified for production, and why not."""
        if self.hypervisor_class is None:
            return False, "no hypervisor class"
        if not self.hypervisor_class.qualifies:
            return False, self.hypervisor_class.name
        if self.outcome is not Outcome.WITHIN:
            return False, self.outcome.value.lower()
        return True, ""

    def verdict(self, series: str) -> Verdict:
        """Return the verdict of one series by id.

        Raises
        ------
        KeyError
            If the session has no such series.
        """
        for verdict in self.verdicts:
            if verdict.id == series:
                return verdict
        raise KeyError(series)


def judge_session(
    cases: Iterable[Case],
    *,
    design: Design = DESIGN,
    hypervisor_class: HypervisorClass | None = None,
    waivers: Sequence[Waiver] = (),
    build: str = "",
    today: date | None = None,
) -> SessionVerdict:
    """Judge the series of a session together.

    Parameters
    ----------
    cases
        In the order in which they are to be shown.
    design
        Its `alpha` is the error rate of the whole session.
    hypervisor_class
        The class under which it is judged.
    waivers
        All waivers; those for another class or build are left aside.
    build
        The hypervisor build, as waivers name it.
    today
        For the expiry of waivers; the current day if not given.

    Raises
    ------
    SessionError
        If a series occurs twice with one gate.
    PairingError, BudgetError
        See `judge`.
    """
    cases = list(cases)
    today = today or date.today()
    asked = Counter((case.series.id, case.gate) for case in cases)
    repeated = {name for (name, _), count in asked.items() if count > 1}
    if repeated:
        raise SessionError(f"a series can be judged only once in a session: {', '.join(sorted(repeated))}.")
    name = hypervisor_class.name if hypervisor_class else ""
    relevant = [w for w in waivers if w.hypervisor_class == name and w.build == build]
    verdicts = tuple(_waived(verdict, relevant, name, build, today) for verdict in _judge_all(cases, design))
    return SessionVerdict(verdicts, _plan(verdicts), design, hypervisor_class, tuple(relevant), today)


def _judge_one(case: Case, series: Series, design: Design) -> Verdict:
    return judge(
        series, case.budget, prior=case.prior, design=design, baseline=case.baseline, refused=case.refused
    )


def _judge_all(cases: Sequence[Case], design: Design) -> list[Verdict]:
    # An acquittal by the screen stands: later pairs of the series, run for the sake of another metric of
    # the same program, would have to share in the error rate to count.
    gates = {case.gate for case in cases}
    screening = {gate: design.in_session(SCREEN, 1, change=gate == "change") for gate in gates}
    verdicts = [_judge_one(case, case.series.first(SCREEN), screening[case.gate]) for case in cases]
    for i, case in enumerate(cases):
        later = len(case.series.valid) - SCREEN
        if verdicts[i].outcome is Outcome.BASELINE:
            verdicts[i] = _judge_one(case, case.series, screening[case.gate])
        elif verdicts[i].outcome is Outcome.WITHIN and later > 0:
            note = f"decided on the screen of {SCREEN} pairs; {later} more were run"
            verdicts[i] = replace(verdicts[i], reasons=(*verdicts[i].reasons, note))
    flagged = [
        i
        for i, verdict in enumerate(verdicts)
        if verdict.outcome is Outcome.UNDECIDED and len(cases[i].series.valid) >= SCREEN
    ]
    convicted: set[int] = set()
    while True:
        share = {i for i, case in enumerate(cases) if case.gate == "change"}.union(flagged) - convicted
        family = Counter(cases[i].gate for i in share)
        for i in flagged:
            if i not in convicted:
                gate = cases[i].gate
                confirming = design.in_session(SCREEN, len(gates) * family[gate], change=gate == "change")
                verdicts[i] = _judge_one(cases[i], cases[i].series, confirming)
        fresh = {i for i in flagged if verdicts[i].outcome is Outcome.OVER} - convicted
        if not fresh:
            return verdicts
        convicted |= fresh


def _waived(verdict: Verdict, waivers: Sequence[Waiver], name: str, build: str, today: date) -> Verdict:
    metric, gate = verdict.metric, verdict.gate
    about = [w for w in waivers if w.matches(metric.name, verdict.setting, gate, name, build)]
    worst = verdict.worst
    if verdict.outcome is not Outcome.OVER or worst is None or not about:
        return verdict
    accepting = [waiver for waiver in about if waiver.holds(today) and waiver.covers(worst.log, metric)]
    best = max(accepting or about, key=lambda waiver: waiver.expires)
    return replace(verdict, waiver=best, waived=bool(accepting))


def _plan(verdicts: Iterable[Verdict]) -> Plan:
    needs = []
    for verdict in verdicts:
        if verdict.next_look is None:
            continue
        series = verdict.evidence.series
        missing = verdict.next_look - len(series.valid)
        if missing > 0:
            first = series.next_number
            reason = verdict.reasons[-1] if not verdict.pairs and verdict.reasons else verdict.outcome.value
            needs.append(Need(series.id, first, first + missing - 1, reason))
    return Plan(tuple(needs))
