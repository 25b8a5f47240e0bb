"""What a session comes to: its exit code, its one sentence, and whether the build is qualified."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from virtqual.errors import RefusedError
from virtqual.references.budgets import Gate
from virtqual.session.store import Session
from virtqual.verdict import Outcome, SessionVerdict

INTERRUPTED = 130


def refuse(session: Session, items: int) -> None:
    """Write into a session that preflight refuses it before anything is measured, by so many items."""
    session.exit_code, session.outcome = RefusedError.exit_code, Outcome.INVALID.value
    session.qualified = "no (refused by preflight)"
    say = "1 item of preflight says" if items == 1 else f"{items} items of preflight say"
    session.conclusion = (
        f"Refused before anything was measured: {say} that these partitions may not be compared."
    )


def conclude(
    session: Session,
    verdict: SessionVerdict | None,
    *,
    interrupted: bool,
    broken: Sequence[str],
    unmeasured: int,
    qualifies: bool,
    build: str,
    studied: str = "",
) -> None:
    """Write the conclusion into a session.

    Where several hold, the first of: interrupted, broken, refused, over, undecided, within or baseline.

    Parameters
    ----------
    session
        Is changed.
    verdict
        None if nothing was judged.
    interrupted
        Whether a person or a time limit ended it.
    broken
        What failed of the infrastructure, in words.
    unmeasured
        Checks of which no run counts, so that they are not among the verdicts.
    qualifies
        Whether the class may call a build qualified at all.
    build
        The hypervisor with its build.
    studied
        A fault of the VMs that is there on purpose, in words: no build is qualified with it.
    """
    outcomes = verdict.outcomes if verdict else Counter[Outcome]()
    session.all_outcomes = {outcome.value: count for outcome, count in outcomes.items()}
    answer = verdict.outcome if verdict else Outcome.INVALID
    if interrupted:
        session.exit_code, session.outcome = INTERRUPTED, "INTERRUPTED"
        session.conclusion = "Interrupted: what was measured is kept, nothing is concluded from it."
    elif broken or (verdict is None and not unmeasured):
        session.exit_code, session.outcome = 5, "BROKEN"
        why = "; ".join(broken[:3]) or "nothing was measured"
        session.conclusion = f"Infrastructure failed, so nothing is concluded: {why}."
    elif answer is Outcome.INVALID or unmeasured:
        session.exit_code, session.outcome = 4, Outcome.INVALID.value
        count = _metrics(outcomes[Outcome.INVALID] + unmeasured)
        session.conclusion = f"Refused: {count} could not be judged honestly; the reasons are above."
        if verdict and any(one.outcome is Outcome.OVER and not one.waived for one in verdict.verdicts):
            session.conclusion += (
                f" Of the others: {_sentence(verdict, Outcome.OVER, build, session.against)}"
            )
    elif verdict is not None:
        session.exit_code = {Outcome.OVER: 1, Outcome.UNDECIDED: 3}.get(answer, 0)
        session.outcome = answer.value
        session.conclusion = _sentence(verdict, answer, build, session.against)
    yes, why = verdict.qualified if verdict else (False, "nothing was measured")
    if not qualifies:
        yes, why = False, session.hypervisor_class
    elif session.exit_code not in (0, 1, 3):
        yes, why = False, session.outcome.lower()
    elif studied:
        yes, why = False, studied
    accepted = f" ({verdict.accepted} accepted by waiver)" if verdict and verdict.accepted else ""
    session.qualified = f"yes{accepted}" if yes else f"no ({why})"


def _sentence(verdict: SessionVerdict, answer: Outcome, build: str, against: str | None) -> str:
    limits: dict[Gate, str] = {
        "overhead": "overhead budget",
        "change": f"allowed change since session {against}",
    }
    totals = Counter(one.gate for one in verdict.verdicts)
    total = max(totals.values())
    if answer is Outcome.OVER:
        over = Counter(one.gate for one in verdict.verdicts if one.outcome is answer and not one.waived)
        parts = [
            f"over the {limits[gate]} on {over[gate]} of {_metrics(total)}" for gate in limits if over[gate]
        ]
        return f"{build} is {' and '.join(parts)}."
    if answer is Outcome.UNDECIDED:
        count = verdict.outcomes[answer]
        every = _metrics(total) if len(totals) == 1 else f"{sum(totals.values())} verdicts"
        return f"{count} of {every} are undecided after the pairs allowed: not a pass."
    if answer is Outcome.BASELINE:
        return f"Baseline recorded for {build}: {_metrics(total)}, to be compared with by --against."
    held = " and the ".join(text for gate, text in limits.items() if totals[gate])
    if verdict.accepted:
        every = _metrics(total) if len(totals) == 1 else f"{sum(totals.values())} verdicts"
        return f"{build} is within the {held}, except {verdict.accepted} of {every} accepted by waiver."
    return f"{build} is within the {held}: {_metrics(total)}."


def _metrics(count: int) -> str:
    return f"{count} metric{'' if count == 1 else 's'}"
