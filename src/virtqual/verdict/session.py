"""Judge a session: all of its series with one error rate, its slow runs, and its waivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property

from virtqual.references.budgets import HypervisorClass
from virtqual.references.waivers import Waiver
from virtqual.verdict.batches import counted
from virtqual.verdict.judge import judge_all
from virtqual.verdict.outcome import Case, Outcome, Verdict
from virtqual.verdict.record import VerdictRecord
from virtqual.verdict.rule import ALPHA, LOOKS
from virtqual.verdict.slow_runs import NONE, SLOW_ALPHA, SlowRuns, slow_runs_of

# The order in which one answer stands for many: the first that occurs.
_ORDER = (Outcome.INVALID, Outcome.OVER, Outcome.UNDECIDED, Outcome.BASELINE, Outcome.WITHIN)


class SessionError(ValueError):
    """Cases that cannot be judged together."""


def worst_outcome(verdicts: Iterable[Verdict | VerdictRecord]) -> Outcome:
    """Return one answer for many verdicts; a waived OVER counts as WITHIN."""
    return first_of(Outcome.WITHIN if verdict.passes else verdict.outcome for verdict in verdicts)


def first_of(outcomes: Iterable[Outcome]) -> Outcome:
    """Return one outcome for many: the first of `_ORDER` that occurs; INVALID for none."""
    present = set(outcomes)
    return next((outcome for outcome in _ORDER if outcome in present), Outcome.INVALID)


@dataclass(frozen=True)
class Need:
    """Pairs that one series still needs.

    Parameters
    ----------
    series
        Its id, ``metric@setting``.
    first, last
        Pair numbers, both included.
    """

    series: str
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class SessionVerdict:
    """The verdicts of a session.

    Parameters
    ----------
    verdicts
        One for each case, in their order.
    needs
        What is still to be run, by series; empty where nothing is.
    slow_runs, slow_in_all
        Slow runs of this session, and together with earlier ones'.
    slow_found
        Whether virtual runs are slow more often than native ones: asked once nothing is left to run.
    hypervisor_class
        The class it was judged under; None if budgets were given by hand.
    waivers
        All that are about this class and build, whether they were needed or not: always shown.
    today
        The day by which waivers hold or have expired.
    """

    verdicts: tuple[Verdict, ...]
    needs: tuple[Need, ...] = ()
    slow_runs: SlowRuns = NONE
    slow_in_all: SlowRuns = NONE
    slow_found: bool = False
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

        A waived OVER does not count; `accepted` says how many there are. Slow runs that were found are OVER.
        A session in which nothing was judged is INVALID.
        """
        answer = worst_outcome(self.verdicts)
        return Outcome.OVER if self.slow_found and answer is not Outcome.INVALID else answer

    @property
    def slow_text(self) -> str:
        """What was found of slow runs, in words; says so where earlier sessions are counted with this one."""
        both = self.slow_in_all.virtual_runs != self.slow_runs.virtual_runs
        return self.slow_in_all.text + (", with earlier sessions of this build" if both else "")

    @property
    def accepted(self) -> int:
        """How many verdicts are OVER and accepted by a waiver."""
        return sum(verdict.waived for verdict in self.verdicts)

    @property
    def qualified(self) -> tuple[bool, str]:
        """Whether the build may be called qualified for production, and why not."""
        if self.hypervisor_class is None:
            return False, "no hypervisor class"
        if why := self.hypervisor_class.unqualified:
            return False, why
        if self.outcome is not Outcome.WITHIN:
            return False, self.outcome.value.lower()
        return not self.confounded, self.confounded

    @property
    def confounded(self) -> str:
        """Why what is called overhead may be one of hosts; empty where that is excluded."""
        places = [verdict.places for verdict in self.verdicts if verdict.places.confounded]
        told = [place for place in places if place.told]
        if told:
            native, virtual = (", ".join(names) for names in told[0].roles)
            return (
                f"hosts confounded: native {native}, virtual {virtual}, and no survey bounds the difference"
            )
        return "nobody says which hosts carry the virtual machines" if places else ""

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
    looks: Sequence[int] = LOOKS,
    share: int = 1,
    hypervisor_class: HypervisorClass | None = None,
    waivers: Sequence[Waiver] = (),
    build: str = "",
    slow_before: SlowRuns = NONE,
    today: date | None = None,
) -> SessionVerdict:
    """Judge the series of a session together.

    Parameters
    ----------
    cases
        In the order in which they are to be shown.
    looks
        After how many pairs a decision is tried; one number where it was fixed before the first pair.
    share
        How many sessions share the error rates.
    hypervisor_class
        The class under which it is judged.
    waivers
        All waivers; those for another class or build are left aside.
    build
        The hypervisor build, as waivers name it.
    slow_before
        Slow runs of earlier sessions of this build.
    today
        For the expiry of waivers; the current day if not given.

    Raises
    ------
    SessionError
        If a series occurs twice with one gate.
    PairingError, BudgetError
        See `virtqual.verdict.judge.judge_all`.
    """
    (answer,) = judge_sessions(
        [cases],
        looks=looks,
        share=share,
        hypervisor_class=hypervisor_class,
        waivers=waivers,
        build=build,
        slow_before=slow_before,
        today=today,
    )
    return answer


def judge_sessions(
    sessions: Iterable[Iterable[Case]],
    *,
    looks: Sequence[int] = LOOKS,
    share: int = 1,
    hypervisor_class: HypervisorClass | None = None,
    waivers: Sequence[Waiver] = (),
    build: str = "",
    slow_before: SlowRuns = NONE,
    today: date | None = None,
) -> list[SessionVerdict]:
    """Judge several sessions, each for itself; parameters and errors as `judge_session`."""
    every = [list(cases) for cases in sessions]
    today = today or date.today()
    for cases in every:
        asked = Counter((case.series.id, case.gate) for case in cases)
        if repeated := {name for (name, _), count in asked.items() if count > 1}:
            raise SessionError(
                f"a series can be judged only once in a session: {', '.join(sorted(repeated))}."
            )
    name = hypervisor_class.name if hypervisor_class else ""
    relevant = [w for w in waivers if w.hypervisor_class == name and w.build == build]
    answers = []
    for cases, judged in zip(every, judge_all(every, looks=looks, alpha=ALPHA / share), strict=True):
        verdicts = tuple(_waived(verdict, relevant, name, build, today) for verdict in judged)
        needs = tuple(_needs(verdicts))
        slow = slow_runs_of({case.series.id: case for case in cases if not case.refused}.values())
        together = slow + slow_before
        # Earlier sessions add to what this one has seen: by themselves they have said what they had to say.
        found = not needs and bool(slow.virtual and together.p <= SLOW_ALPHA / share)
        answers.append(
            SessionVerdict(verdicts, needs, slow, together, found, hypervisor_class, tuple(relevant), today)
        )
    return answers


def _waived(verdict: Verdict, waivers: Sequence[Waiver], name: str, build: str, today: date) -> Verdict:
    metric, gate = verdict.metric, verdict.gate
    about = [w for w in waivers if w.matches(metric.name, verdict.setting, gate, name, build)]
    worst = verdict.worst
    if verdict.outcome is not Outcome.OVER or worst is None or not about:
        return verdict
    accepting = [waiver for waiver in about if waiver.holds(today) and waiver.covers(worst.log, metric)]
    best = max(accepting or about, key=lambda waiver: waiver.expires)
    return replace(verdict, waiver=best, waived=bool(accepting))


def _needs(verdicts: Iterable[Verdict]) -> Iterator[Need]:
    for verdict in verdicts:
        series = verdict.case.series
        missing = (verdict.next_pairs or 0) - len(counted(series))
        if missing > 0:
            first = series.next_number
            yield Need(series.id, first, first + missing - 1)
