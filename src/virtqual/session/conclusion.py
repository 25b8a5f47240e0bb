"""The conclusion of a session: its exit code, its sentence, and whether the build is qualified."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from virtqual.errors import INTERRUPTED, InfrastructureError, RefusedError
from virtqual.files.wording import list_names, mask_numbers, pluralize
from virtqual.references import CheckSet, project_references
from virtqual.session.judge import Judged, canaries
from virtqual.session.session import UNJUDGED_ANSWERS, Failure, Session
from virtqual.verdict import Outcome, SessionVerdict, Verdict, worst_outcome
from virtqual.verdict.budget import Gate
from virtqual.verdict.pairs import SIDES

#: The exit code of each outcome (docs/exit-codes.md).
EXIT_CODES = {
    Outcome.OVER: 1,
    Outcome.UNDECIDED: 3,
    Outcome.INVALID: 4,
    Outcome.BASELINE: 0,
    Outcome.WITHIN: 0,
}

#: One line names these; ``session.json`` has all missing checks.
MAX_MISSING_SHOWN = 3
MAX_CAUSES_SHOWN = 3


def refuse(session: Session) -> None:
    """Write into a session that preflight refuses it before anything is measured."""
    session.exit_code, session.outcome = RefusedError.exit_code, Outcome.INVALID.value
    session.qualified = UNJUDGED_ANSWERS[session.outcome]
    session.conclusion = (
        "Refused before anything was measured: preflight says that these partitions may not be compared."
    )


def conclude(
    session: Session, judged: Judged, *, check_set: CheckSet | None = None, cases: Sequence[str] = ()
) -> None:
    """Write the verdicts and the conclusion into a session, by its basis.

    The first of these that holds is the outcome: interrupted, broken, refused, over, undecided, within or
    baseline.

    Parameters
    ----------
    check_set
        The checks that must be judged; no build is qualified if it is None.
    cases
        The names of all cases of this system in the scope of `check_set`.
    """
    _store_judgement(session, judged)
    verdict, broken = judged.verdict, list_broken(session)
    if session.basis and session.basis.interrupted:
        session.exit_code, session.outcome = INTERRUPTED, "INTERRUPTED"
        session.conclusion = "Interrupted: nothing is concluded."
        session.next_step = session.resume_hint
    elif broken or (verdict is None and not judged.unmeasured):
        session.exit_code, session.outcome = InfrastructureError.exit_code, "BROKEN"
        why = "; ".join(broken[:MAX_CAUSES_SHOWN]) or "nothing was measured"
        session.conclusion = f"Infrastructure failed, so nothing is concluded: {why}."
        session.next_step = session.resume_hint
    else:
        _conclude_verdicts(session, verdict, judged.unmeasured)
    if session.lost:
        nodes = [node for loss in session.lost for node in loss.nodes]
        verb = "was" if len(nodes) == 1 else "were"
        lost = f"{pluralize(len(nodes), 'node')} {verb} lost and set aside: {', '.join(nodes)}."
        session.conclusion += f" {lost}"
    session.missing = []
    if reason := _find_reason_against(session, verdict):
        session.qualified = f"no ({reason})"
    else:
        session.qualified = _answer_for_check_set(session, check_set, cases)


def list_broken(session: Session) -> list[str]:
    """Return what failed of the infrastructure, in words."""
    broken = list(session.basis.broken) if session.basis else []
    kinds = {"infrastructure"}
    if not session.runs:
        # Nothing was measured at all: no single check is the cause.
        kinds |= {"failed", "refused"} if broken else {"failed"}
    return broken + describe_failures(failure for failure in session.failures if failure.kind in kinds)


def describe_failures(failures: Iterable[Failure]) -> list[str]:
    """Return which cases left no run, and why; reasons that differ only in numbers stand together."""
    alike: dict[tuple[str, str], list[Failure]] = defaultdict(list)
    for failure in failures:
        alike[failure.partition, mask_numbers(failure.reason)].append(failure)
    return [
        f"{list_names([failure.case for failure in group], 1)} on {partition}: {group[0].reason}"
        for (partition, _), group in alike.items()
    ]


def _store_judgement(session: Session, judged: Judged) -> None:
    session.preflight = list(judged.admitted.findings)
    session.canaries = list(canaries(judged.admitted.runs))
    session.refused = judged.admitted.refused
    if judged.verdict:
        session.verdicts = list(judged.verdict.verdicts)
        session.slow_runs = judged.verdict.slow_runs
        session.outliers = list(judged.verdict.outliers)
        session.waivers = [waiver.text(judged.verdict.today) for waiver in judged.verdict.waivers]
        session.all_outcomes = {outcome.value: n for outcome, n in judged.verdict.outcomes.items()}


def _conclude_verdicts(session: Session, verdict: SessionVerdict | None, unmeasured: int) -> None:
    """Write outcome and conclusion of a session that ended by itself."""
    outcome = verdict.outcome if verdict and not unmeasured else Outcome.INVALID
    session.exit_code, session.outcome = EXIT_CODES[outcome], outcome.value
    if outcome is Outcome.INVALID:
        refused = unmeasured + (verdict.outcomes[Outcome.INVALID] if verdict else 0)
        count = pluralize(refused, "metric")
        session.conclusion = f"Refused: {count} could not be judged{_first_reason(session)}."
        if judged_verdicts := [v for v in session.verdicts if v.outcome is not Outcome.INVALID]:
            sentence = _describe_outcome(session, worst_outcome(judged_verdicts), judged_verdicts)
            session.conclusion += f" Of the others: {sentence}"
    else:
        session.conclusion = _describe_outcome(session, outcome, session.verdicts)
    if verdict and verdict.slow_runs.more_runs:
        runs = pluralize(verdict.slow_runs.more_runs, "more virtual run")
        session.conclusion += f" {runs} without a loss clear the lost ones: run it again, sessions add up."
    if verdict and verdict.slow_runs.found:
        session.conclusion += f" Slow runs: {verdict.slow_runs.text}."
    if attempts := describe_attempts(session):
        session.conclusion += f" {attempts}"
    if session.outliers:
        session.conclusion += f" Set aside: {'; '.join(f'host {outlier}' for outlier in session.outliers)}."


def describe_attempts(session: Session) -> str:
    """Return which judged metrics earlier sessions of the build could not pass; empty if there is none."""
    attempts = session.basis.attempts if session.basis else {}
    judged = (verdict for verdict in session.verdicts if verdict.outcome is not Outcome.INVALID)
    again = {v.title: n for v in judged if (n := attempts.get(v.gate, {}).get(v.series, 1)) > 1}
    if not again:
        return ""
    names = list_names([f"{title} (session {n} in a row)" for title, n in again.items()], MAX_CAUSES_SHOWN)
    return f"Measured again, since this build did not pass: {names}. WITHIN takes more evidence each time."


def _first_reason(session: Session) -> str:
    """Return the first reason why a check or metric could not be judged, in brackets."""
    reasons = [f"{check}: {why}" for check, whys in session.refused.items() for why in whys[:1]]
    for verdict in session.verdicts:
        if verdict.outcome is Outcome.INVALID and verdict.reasons:
            reasons.append(f"{verdict.name}: {verdict.reasons[0]}")
    if not reasons:
        return ""
    return f" ({reasons[0]})" if len(reasons) == 1 else f" (the first: {reasons[0]})"


def _find_reason_against(session: Session, verdict: SessionVerdict | None) -> str | None:
    """Return why the build is not qualified for any set of checks; None if it can be."""
    if unqualified := project_references().hypervisor_class(session.hypervisor_class).unqualified:
        return unqualified
    if verdict is None or session.exit_code != 0:
        return session.outcome.lower()
    if session.placement.get("numa_hidden"):
        return "NUMA nodes hidden on purpose"
    if session.fast:
        return "--fast: two pairs can lack rare slow runs"
    _, reason = verdict.qualified
    return reason or None


def _answer_for_check_set(session: Session, check_set: CheckSet | None, cases: Sequence[str]) -> str:
    """Return the answer for a session that passes: yes if all checks of the class were judged."""
    name = session.hypervisor_class
    if check_set is None:
        return f"no (no file in references/qualifications/ says which checks class {name} asks for)"
    partitions = [session.identity[side] for side in SIDES]
    of_sides = [partition["features"] for partition in partitions if "features" in partition]
    of_stack = [program.get("features", []) for program in session.stack["programs"]]
    features = set().union(*of_sides, *of_stack) if of_sides else None
    missing, absent_features = check_set.find_missing(cases, features, session.has_passed)
    session.missing = [case for missing_cases in missing.values() for case in missing_cases]
    if missing_checks := [check for check, missing_cases in missing.items() if missing_cases]:
        count = f"{len(missing) - len(missing_checks)} of the {len(missing)}"
        judged = f"{count} checks that class {name} asks for were judged"
        more = ", ..." if len(missing_checks) > MAX_MISSING_SHOWN else ""
        first_checks = ", ".join(missing_checks[:MAX_MISSING_SHOWN]) + more
        return f"no ({judged}: missing {first_checks})"
    accepted = sum(verdict.waived for verdict in session.verdicts)
    notes = [f"{accepted} accepted by waiver"] if accepted else []
    notes += [f"without {', '.join(absent_features)}"] if absent_features else []
    notes += ["by the site's own qualification"] if check_set.is_of_site else []
    return f"yes ({', '.join(notes)})" if notes else "yes"


def _describe_outcome(session: Session, outcome: Outcome, verdicts: Sequence[Verdict]) -> str:
    """Return the outcome of some verdicts in one sentence."""
    limits: dict[Gate, str] = {
        "overhead": "overhead budget",
        "change": f"allowed change since session {session.against}",
    }
    build = session.hypervisor
    totals = Counter(verdict.gate for verdict in verdicts)
    metrics = pluralize(max(totals.values()), "metric")
    counted = metrics if len(totals) == 1 else f"{totals.total()} verdicts"
    unwaived = [verdict for verdict in verdicts if verdict.outcome is outcome and not verdict.waived]
    if outcome is Outcome.OVER:
        over = Counter(verdict.gate for verdict in unwaived)
        parts = [f"over the {limits[gate]} on {over[gate]} of {metrics}" for gate in limits if over[gate]]
        how = "slow or lost" if session.slow_runs and session.slow_runs.virtual_lost else "slow"
        slow_runs = f"not within budget, since virtual runs are {how} more often than native ones"
        return f"{build} is {' and '.join(parts) or slow_runs}."
    if outcome is Outcome.UNDECIDED:
        if not unwaived:
            return f"Undecided, although {counted} are within budget: virtual runs were lost. Not a pass."
        return f"Undecided after the pairs that were run: {len(unwaived)} of {counted}. Not a pass."
    if outcome is Outcome.BASELINE:
        return f"Baseline recorded for {build}: {metrics}, to be compared with by --against."
    held = " and the ".join(text for gate, text in limits.items() if totals[gate])
    if accepted := sum(verdict.waived for verdict in verdicts):
        return f"{build} is within the {held}, except {accepted} of {counted} accepted by waiver."
    return f"{build} is within the {held}: {metrics}."
