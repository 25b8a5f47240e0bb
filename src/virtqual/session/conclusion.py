"""What a session comes to: its exit code, its one sentence, and whether the build is qualified."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from virtqual.errors import INTERRUPTED, InfrastructureError, RefusedError
from virtqual.files.wording import pluralize
from virtqual.references import CheckSet
from virtqual.session.judge import Judged
from virtqual.session.session import UNJUDGED_ANSWERS, Session
from virtqual.verdict import Outcome, SessionVerdict, Verdict, worst_outcome
from virtqual.verdict.budget import Gate

#: The exit code of each outcome (docs/exit-codes.md).
EXIT_CODES = {
    Outcome.OVER: 1,
    Outcome.UNDECIDED: 3,
    Outcome.INVALID: 4,
    Outcome.BASELINE: 0,
    Outcome.WITHIN: 0,
}

#: So many missing checks are named in one line; ``session.json`` has them all.
SHOWN = 3


def refuse(session: Session, items: int) -> None:
    """Write into a session that preflight refuses it before anything is measured, by so many items."""
    session.exit_code, session.outcome = RefusedError.exit_code, Outcome.INVALID.value
    session.qualified = UNJUDGED_ANSWERS[session.outcome]
    say = "1 item of preflight says" if items == 1 else f"{items} items of preflight say"
    session.conclusion = (
        f"Refused before anything was measured: {say} that these partitions may not be compared."
    )


def conclude(
    session: Session,
    judged: Judged | None,
    *,
    interrupted: bool = False,
    broken: Sequence[str] = (),
    unqualified: str | None = None,
    asked: CheckSet | None = None,
    cases: Sequence[str] = (),
    studied: str = "",
) -> None:
    """Write the verdicts and the conclusion into a session.

    Where several hold, the first of: interrupted, broken, refused, over, undecided, within or baseline.

    Parameters
    ----------
    session
        Is changed.
    judged
        None if judging itself failed.
    interrupted
        Whether a person or a time limit ended it.
    broken
        What failed of the infrastructure, in words.
    unqualified
        Why the class qualifies no build at all, in a few words; empty where it may.
    asked
        The checks that must be judged for it; None where no file says: then no build is qualified.
    cases
        All cases that there are on this system in the scope of `asked`, by name.
    studied
        A fault of the VMs that is there on purpose, in words: no build is qualified with it.
    """
    verdict = judged.verdict if judged else None
    _keep(session, judged)
    outcomes = verdict.outcomes if verdict else Counter[Outcome]()
    unmeasured = judged.unmeasured if judged else 0
    answer = verdict.outcome if verdict else Outcome.INVALID
    if interrupted:
        session.exit_code, session.outcome = INTERRUPTED, "INTERRUPTED"
        session.conclusion = "Interrupted: what was measured is kept, nothing is concluded from it."
        session.next_step = session.resume_hint
    elif broken or (verdict is None and not unmeasured):
        session.exit_code, session.outcome = InfrastructureError.exit_code, "BROKEN"
        why = "; ".join(broken[:3]) or "nothing was measured"
        session.conclusion = f"Infrastructure failed, so nothing is concluded: {why}."
        session.next_step = session.resume_hint
    elif answer is Outcome.INVALID or unmeasured:
        session.exit_code, session.outcome = EXIT_CODES[Outcome.INVALID], Outcome.INVALID.value
        count = _metrics(outcomes[Outcome.INVALID] + unmeasured)
        session.conclusion = f"Refused: {count} could not be judged{_first_reason(session)}."
        if others := [one for one in session.verdicts if one.outcome is not Outcome.INVALID]:
            session.conclusion += f" Of the others: {_sentence(session, worst_outcome(others), others)}"
    elif verdict is not None:
        session.exit_code, session.outcome = EXIT_CODES[answer], answer.value
        session.conclusion = _sentence(session, answer, session.verdicts)
    if verdict and verdict.slow_runs.found and not (interrupted or broken):
        session.conclusion += f" Slow runs: {verdict.slow_runs.text}."
    if session.lost:
        session.conclusion += f" {_lost(session)}"
    session.missing = []
    if reason := _reason_against(session, verdict, unqualified, studied):
        session.qualified = f"no ({reason})"
    else:
        session.qualified = _as_asked(session, asked, cases, verdict.accepted if verdict else 0)


def _keep(session: Session, judged: Judged | None) -> None:
    if judged is None:
        return
    session.preflight = list(judged.admitted.findings)
    session.canaries = list(judged.canaries)
    session.refused = judged.admitted.refused
    if judged.verdict:
        session.verdicts = list(judged.verdict.verdicts)
        session.slow_runs = judged.verdict.slow_runs
        session.waivers = [waiver.text(judged.verdict.today) for waiver in judged.verdict.waivers]
        session.all_outcomes = {outcome.value: n for outcome, n in judged.verdict.outcomes.items()}


def _first_reason(session: Session) -> str:
    """Return the first reason why a check or metric could not be judged, in brackets."""
    reasons = [f"{check}: {why}" for check, whys in session.refused.items() for why in whys[:1]]
    for verdict in session.verdicts:
        if verdict.outcome is Outcome.INVALID and verdict.reasons:
            reasons.append(f"{verdict.metric} {verdict.setting}: {verdict.reasons[0]}")
    if not reasons:
        return ""
    return f" ({reasons[0]})" if len(reasons) == 1 else f" (the first: {reasons[0]})"


def _reason_against(
    session: Session, verdict: SessionVerdict | None, unqualified: str | None, studied: str
) -> str | None:
    """Return why the build is not qualified, whichever checks were judged; None if nothing is against it."""
    is_qualified, reason = verdict.qualified if verdict else (False, "nothing was measured")
    if unqualified:
        return unqualified
    if session.exit_code not in (0, 1, 3):
        return session.outcome.lower()
    return studied or (None if is_qualified else reason)


def _as_asked(session: Session, asked: CheckSet | None, cases: Sequence[str], accepted: int) -> str:
    """Return whether all was judged that the class asks for, where all that was judged passes."""
    name = session.hypervisor_class
    if asked is None:
        return f"no (no file in references/qualifications/ says which checks class {name} asks for)"
    sides = [
        side["features"]
        for side in (session.identity["native"], session.identity["virtual"])
        if "features" in side
    ]
    wanted, without = asked.select(set().union(*sides) if sides else None)
    short = []
    for one in wanted:
        left = [case for case in one.match_cases(cases) if not _passed(session, case)]
        session.missing += left
        short += [one.check] if left else []
    if short:
        judged = (
            f"{len(wanted) - len(short)} of the {len(wanted)} checks that class {name} asks for were judged"
        )
        return f"no ({judged}: missing {', '.join(short[:SHOWN])}{', ...' if short[SHOWN:] else ''})"
    notes = [f"{accepted} accepted by waiver"] if accepted else []
    notes += [f"without {feature}" for feature in without]
    return f"yes ({', '.join(notes)})" if notes else "yes"


def _passed(session: Session, case: str) -> bool:
    verdicts = session.verdicts_of(case)
    return bool(verdicts) and all(one.outcome is Outcome.WITHIN or one.waived for one in verdicts)


def _lost(session: Session) -> str:
    """Return a sentence that names the lost nodes."""
    nodes = [node for loss in session.lost for node in loss.nodes]
    were = "was" if len(nodes) == 1 else "were"
    return f"{pluralize(len(nodes), 'node')} {were} lost and set aside: {', '.join(nodes)}."


def _sentence(session: Session, answer: Outcome, verdicts: Sequence[Verdict]) -> str:
    limits: dict[Gate, str] = {
        "overhead": "overhead budget",
        "change": f"allowed change since session {session.against}",
    }
    build = session.hypervisor
    totals = Counter(verdict.gate for verdict in verdicts)
    accepted = sum(verdict.waived for verdict in verdicts)
    total = max(totals.values())
    every = _metrics(total) if len(totals) == 1 else f"{sum(totals.values())} verdicts"
    if answer is Outcome.OVER:
        over = Counter(verdict.gate for verdict in verdicts if _counts_as(verdict, answer))
        parts = [
            f"over the {limits[gate]} on {over[gate]} of {_metrics(total)}" for gate in limits if over[gate]
        ] or ["not within budget, since virtual runs are slow more often than native ones"]
        return f"{build} is {' and '.join(parts)}."
    if answer is Outcome.UNDECIDED:
        count = sum(_counts_as(verdict, answer) for verdict in verdicts)
        return f"{count} of {every} are undecided after the pairs allowed: not a pass."
    if answer is Outcome.BASELINE:
        return f"Baseline recorded for {build}: {_metrics(total)}, to be compared with by --against."
    held = " and the ".join(text for gate, text in limits.items() if totals[gate])
    if accepted:
        return f"{build} is within the {held}, except {accepted} of {every} accepted by waiver."
    return f"{build} is within the {held}: {_metrics(total)}."


def _counts_as(verdict: Verdict, outcome: Outcome) -> bool:
    return verdict.outcome is outcome and not verdict.waived


def _metrics(count: int) -> str:
    return pluralize(count, "metric")
