"""Judge a session: all of its series with one error rate, its slow runs, and its waivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property

from virtqual.verdict.budget import HypervisorClass
from virtqual.verdict.case import Case
from virtqual.verdict.judge import judge_all
from virtqual.verdict.labels import NATIVE_AND_VIRTUAL, Labels
from virtqual.verdict.outcome import Outcome, first_of
from virtqual.verdict.outliers import Outlier, host_factors, set_aside_hosts
from virtqual.verdict.rule import ALPHA, LOOKS, MIN_BOOTS, MIN_PAIRS_TO_QUALIFY
from virtqual.verdict.slow_runs import NO_SLOW_RUNS, SLOW_ALPHA, LostRun, SlowRuns, slow_runs_of
from virtqual.verdict.verdict import Verdict
from virtqual.verdict.waiver import Waiver

#: Outcomes that lost virtual runs turn into UNDECIDED.
_CLEARED = frozenset([Outcome.WITHIN, Outcome.BASELINE])


def worst_outcome(verdicts: Iterable[Verdict]) -> Outcome:
    """Return one outcome for a set of verdicts; a waived OVER counts as WITHIN."""
    return first_of(Outcome.WITHIN if verdict.passes else verdict.outcome for verdict in verdicts)


@dataclass(frozen=True)
class Need:
    """Pairs that a series (``metric@setting``) still needs, from the first to the last number.

    `order` has N or V for the side that runs first in each of them; it is empty if pairs run at the same time
    on several hosts, which take turns by themselves.
    """

    series: str
    first: int
    last: int
    order: str = ""


@dataclass(frozen=True, eq=False)
class SessionVerdict:
    """The verdicts of a session, one for each case, in their order."""

    verdicts: tuple[Verdict, ...]
    needs: tuple[Need, ...] = ()
    slow_runs: SlowRuns = NO_SLOW_RUNS
    #: None if the budgets were stated by hand.
    hypervisor_class: HypervisorClass | None = None
    #: All waivers of this class and build, needed or not.
    waivers: tuple[Waiver, ...] = ()
    today: date = field(default_factory=date.today)
    #: Hosts without which the others were judged.
    outliers: tuple[Outlier, ...] = ()

    @cached_property
    def outcomes(self) -> Counter[Outcome]:
        """Number of verdicts by outcome; a waived OVER counts as OVER."""
        return Counter(verdict.outcome for verdict in self.verdicts)

    @property
    def outcome(self) -> Outcome:
        """INVALID, OVER, UNDECIDED, BASELINE, WITHIN: the first that occurs.

        Slow and lost runs that are found are OVER, and lost runs that may be those of a bad build UNDECIDED.
        """
        answer = worst_outcome(self.verdicts)
        if self.slow_runs.found and answer is not Outcome.INVALID:
            return Outcome.OVER
        return Outcome.UNDECIDED if self.slow_runs.more_runs and answer in _CLEARED else answer

    @property
    def qualified(self) -> tuple[bool, str]:
        """The answer to whether the build is qualified for production, and why it is not."""
        if self.hypervisor_class is None:
            return False, "no hypervisor class"
        if why := self.hypervisor_class.unqualified:
            return False, why
        if self.outcome is not Outcome.WITHIN:
            return False, self.outcome.value.lower()
        reason = self.without_hosts or self.confounded
        if not reason and any(verdict.boots == 1 for verdict in self.verdicts):
            reason = f"one boot of the {self.labels.machines}: another one may differ"
        passed = (verdict for verdict in self.verdicts if verdict.outcome is Outcome.WITHIN)
        if not reason and any(verdict.pairs < MIN_PAIRS_TO_QUALIFY for verdict in passed):
            reason = f"fewer than {MIN_PAIRS_TO_QUALIFY} pairs can lack rare slow runs"
        return not reason, reason

    @property
    def labels(self) -> Labels:
        """The words for the two sides."""
        return next((verdict.labels for verdict in self.verdicts), NATIVE_AND_VIRTUAL)

    @property
    def without_hosts(self) -> str:
        """Which hosts were set aside, and what helps; empty if none was."""
        if not self.outliers:
            return ""
        hosts = "; ".join(f"host {outlier}" for outlier in self.outliers)
        labels = self.labels
        runs = f"{labels.reference} runs there tell a slow host from a slow {labels.guest}"
        return f"set aside: {hosts}; {runs}"

    @property
    def confounded(self) -> str:
        """Why a difference of hosts may look like an overhead; empty if that is excluded."""
        confounded = [verdict for verdict in self.verdicts if verdict.confounded]
        for verdict in confounded:
            if verdict.native_hosts:
                native, virtual = ", ".join(verdict.native_hosts), ", ".join(verdict.virtual_hosts)
                hosts = f"{self.labels.reference} {native}, {self.labels.candidate} {virtual}"
                return f"hosts confounded: {hosts}, and no survey bounds the difference"
        return f"it is not stated which hosts carry the {self.labels.machines}" if confounded else ""


def judge_sessions(
    sessions: Iterable[Iterable[Case]],
    *,
    looks: Sequence[int] = LOOKS,
    share: int = 1,
    hypervisor_class: HypervisorClass | None = None,
    waivers: Sequence[Waiver] = (),
    build: str = "",
    slow_before: SlowRuns = NO_SLOW_RUNS,
    today: date | None = None,
    min_pairs: int = LOOKS[0],
    recreates_vms: bool = False,
    lost: Sequence[LostRun] = (),
) -> list[SessionVerdict]:
    """Judge the series of each session together, which has one case for each series and gate.

    Parameters
    ----------
    looks
        After how many pairs a decision is tried; one number if it was fixed before the first pair.
    share
        Number of sessions that share the error rates.
    waivers
        Those for another class or build are ignored.
    slow_before
        Slow and lost runs of earlier sessions of this build.
    min_pairs
        From how many pairs on a metric can be WITHIN; every look flags.
    recreates_vms
        The VMs are created anew between rounds: nothing is OVER by few boots, which may be theirs alone.
    lost
        Runs, of a single session, that left nothing from which a sample could be made.

    Raises
    ------
    PairingError
        A baseline is another metric, setting or set of points.
    BudgetError
        A budget cannot be applied to its metric and values.
    """
    cases_by_session = [list(cases) for cases in sessions]
    today = today or date.today()
    class_name = hypervisor_class.name if hypervisor_class else ""
    relevant = [w for w in waivers if w.hypervisor_class == class_name and w.build == build]
    min_boots = MIN_BOOTS if recreates_vms else 1
    chosen = [set_aside_hosts(cases) for cases in cases_by_session]
    judged = judge_all(
        [cases for cases, _ in chosen],
        looks=looks,
        alpha=ALPHA / share,
        min_pairs=min_pairs,
        min_boots=min_boots,
    )
    answers = []
    for measured, (cases, outliers), verdicts in zip(cases_by_session, chosen, judged, strict=True):
        for case, verdict in zip(measured, verdicts, strict=True):
            verdict.hosts = host_factors(case.runs, {outlier.host for outlier in outliers})
            _apply_waivers(case, verdict, relevant, today)
        slow, needs = _count_slow_runs(cases, verdicts, lost, slow_before, looks)
        slow = slow.judge(slow_before, 0.0 if needs else SLOW_ALPHA / share, min_boots, _find_labels(cases))
        named, accepted = tuple(outliers), tuple(relevant)
        answers.append(SessionVerdict(tuple(verdicts), needs, slow, hypervisor_class, accepted, today, named))
    return answers


def _find_labels(cases: Sequence[Case]) -> Labels:
    return next((case.series.labels for case in cases), NATIVE_AND_VIRTUAL)


def _count_slow_runs(
    cases: Sequence[Case],
    verdicts: Sequence[Verdict],
    lost: Sequence[LostRun],
    before: SlowRuns,
    looks: Sequence[int],
) -> tuple[SlowRuns, tuple[Need, ...]]:
    """Return the slow and lost runs of a session, and the pairs that it needs: lost runs need more, too."""
    needs = tuple(_list_needs(cases, verdicts))
    unrefused = {case.series.id: case for case in cases if not case.refused}
    slow = slow_runs_of(unrefused.values(), lost)
    if not needs and (slow + before).runs_to_clear and worst_outcome(verdicts) in _CLEARED:
        _ask_for_more_pairs(cases, verdicts, looks)
        needs = tuple(_list_needs(cases, verdicts))
    return slow, needs


def _ask_for_more_pairs(cases: Iterable[Case], verdicts: Iterable[Verdict], looks: Sequence[int]) -> None:
    """Let series that have their answers ask for the pairs of the next look: they show whether runs are lost.

    None gets more pairs than twice those of the last look, whatever is lost of them.
    """
    for case, verdict in zip(cases, verdicts, strict=True):
        width = case.runs.places.width
        following = (look * width for look in looks if look * width > len(case.series.chosen))
        if case.series.next_number < 2 * looks[-1] * width:
            verdict.next_pairs = next(following, None)
            verdict.next_order = case.choose_order(verdict.next_pairs)


def _apply_waivers(case: Case, verdict: Verdict, waivers: Sequence[Waiver], today: date) -> None:
    """Add the waiver that accepts an OVER; if none does, the matching one that lasts longest."""
    worst, metric = verdict.worst, case.series.metric
    if verdict.outcome is not Outcome.OVER or worst is None:
        return
    matching = [waiver for waiver in waivers if waiver.matches(metric.name, verdict.setting, verdict.gate)]
    if not matching:
        return
    # Of a range the mean is compared; a size that is surely slower than a waiver says is not accepted.
    surely = (point.judged.lower for point in verdict.points if point.judged.lower is not None)
    largest = max([worst.log, *surely])
    accepting = [waiver for waiver in matching if waiver.holds(today) and waiver.covers(largest, metric)]
    latest = max(accepting or matching, key=lambda waiver: waiver.expires)
    verdict.waiver = f"{latest.accepted}: {latest.reason}"
    verdict.waived = bool(accepting)
    separator = "; " if verdict.reasons else "\n"
    state = "accepted up to" if accepting else "not accepted: the waiver is for up to"
    verdict.message += f"{separator}{state} {verdict.waiver}"


def _list_needs(cases: Iterable[Case], verdicts: Iterable[Verdict]) -> Iterator[Need]:
    for case, verdict in zip(cases, verdicts, strict=True):
        if verdict.next_pairs is None:
            continue
        series = case.series
        missing = verdict.next_pairs - len(series.chosen)
        # A host that is set aside goes on working.
        missing += round(missing * len(series.set_aside) / max(len(series.valid), 1))
        if missing > 0:
            last = series.next_number + missing - 1
            yield Need(series.id, series.next_number, last, verdict.next_order)
