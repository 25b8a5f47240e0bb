"""What a session came to, in the words of a colleague: one sentence, and notes that belong to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from virtqual.files.wording import list_names, pluralize
from virtqual.report.summary import MEANINGS, Line, describe_answer, describe_so_far
from virtqual.session.conclusion import describe_attempts, describe_failures, list_broken
from virtqual.session.lost import list_refusing_failures
from virtqual.session.session import OPEN_OUTCOMES, Session
from virtqual.verdict import Outcome, texts

MAX_CAUSES_SHOWN = 3


@dataclass(frozen=True)
class Answer:
    """The sentence on the first screen, and what a reader has to know with it."""

    sentence: str
    notes: tuple[str, ...]


def describe_session(session: Session, lines: Sequence[Line]) -> Answer:
    """Return the answer of a session; `lines` are those of its verdicts, sorted."""
    build = session.hypervisor
    if session.outcome in OPEN_OUTCOMES:
        sentence = _describe_open(session, build)
    elif session.outcome == Outcome.INVALID.value:
        sentence = _describe_invalid(session, lines, build)
    else:
        sentence = describe_answer(Outcome(session.outcome), lines, build, session.slow_runs)
    return Answer(sentence, tuple(_list_notes(session, lines)))


def _describe_open(session: Session, build: str) -> str:
    """Return the sentence on a session that has not come to its end."""
    if session.outcome == "INTERRUPTED":
        runs = pluralize(len(session.runs), "run") if session.runs else ""
        when = f"after {runs}" if runs else "before the first run"
        return f"No answer on {build} yet: the session was interrupted {when}."
    if session.outcome == "BROKEN":
        causes = list_names(list_broken(session) or ["nothing was measured"], MAX_CAUSES_SHOWN, "; ")
        return f"No answer on {build}: the infrastructure failed ({causes})."
    return f"No answer on {build} yet: the session has not ended."


def _describe_invalid(session: Session, lines: Sequence[Line], build: str) -> str:
    """Return the sentence on a session that was refused, as a whole or in part."""
    refusing = list(
        dict.fromkeys(finding.item for finding in session.preflight if finding.action == "refuse")
    )
    if refusing and all(line.outcome is Outcome.INVALID for line in lines):
        items = list_names(refusing, MAX_CAUSES_SHOWN)
        before = "" if session.runs else " before anything was measured"
        verb = "forbids" if len(refusing) == 1 else "forbid"
        return f"Refused{before}: {items} {verb} a fair comparison of {build} with native."
    if any(line.outcome is Outcome.INVALID for line in lines):
        return describe_answer(Outcome.INVALID, lines, build)
    what = pluralize(max(len(session.refused), 1), "check")
    return f"{build} could not be judged on {what}."


def _list_notes(session: Session, lines: Sequence[Line]) -> list[str]:
    """Return what else a reader has to know, the most important first."""
    notes = []
    has_several = len({line.outcome for line in lines}) > 1
    if session.outcome in OPEN_OUTCOMES and lines:
        so_far = f"So far, of {pluralize(len(lines), 'metric')}: {describe_so_far(lines)}."
        notes.append(f"{so_far} That is not an answer on the build as a whole.")
    elif has_several:
        notes.append(f"Of {pluralize(len(lines), 'verdict')}: {describe_so_far(lines)}.")
    notes += [session.next_step] if session.next_step else []
    notes += _list_reasons(session, lines)
    slow = session.slow_runs
    if slow and slow.found:
        notes.append(f"Slow runs: {slow.text}.")
    if slow and slow.more_runs:
        notes.append(f"{slow.lost_text}.")
    notes += [f"Set aside: host {outlier}." for outlier in session.outliers]
    if nodes := [node for loss in session.lost for node in loss.nodes]:
        verb = "was" if len(nodes) == 1 else "were"
        notes.append(f"{pluralize(len(nodes), 'node')} {verb} lost and set aside: {', '.join(nodes)}.")
    if attempts := describe_attempts(session):
        notes.append(attempts)
    return notes


def _list_reasons(session: Session, lines: Sequence[Line]) -> list[str]:
    """Return why there is no verdict, and what helps."""
    if session.outcome == Outcome.INVALID.value:
        refusing = [finding for finding in session.preflight if finding.action == "refuse"]
        if refusing:
            texts_of = [f"{one.item}: {one.reason}. To do: {one.remedy}." for one in refusing]
        else:
            texts_of = [f"{check}: {'; '.join(reasons)}." for check, reasons in session.refused.items()]
            texts_of += [f"{cause}." for cause in describe_failures(list_refusing_failures(session))]
        return list(dict.fromkeys(texts_of))[:MAX_CAUSES_SHOWN]
    if session.outcome != Outcome.UNDECIDED.value:
        return []
    undecided = [line for line in lines if line.outcome is Outcome.UNDECIDED and line.verdict.reasons]
    return [f"{line.name}: {line.verdict.reasons[0]}." for line in undecided[:1]]


def describe_code(session: Session) -> str:
    """Return the exit code with its meaning, and whether the build is qualified."""
    meaning = MEANINGS.get(session.exit_code, session.outcome.lower())
    if session.outcome == Outcome.BASELINE.value:
        meaning = "a baseline was recorded"
    qualified = f"Qualified for class {session.hypervisor_class}: {session.qualified}."
    return f"Exit code {session.exit_code}: {meaning}. {qualified}"


def list_unmeasured(session: Session) -> list[str]:
    """Return what was not measured or not judged, and why: checks, runs that were lost, requirements."""
    judged = {verdict.series for verdict in session.verdicts}
    with_verdict = {run.check for run in session.runs for one in run.results if one.series in judged}
    items = [
        f"{check}: {'; '.join(reasons)}"
        for check, reasons in session.refused.items()
        if check not in with_verdict
    ]
    items += describe_failures(list_refusing_failures(session))
    items += texts.describe_lost(session.slow_runs.lost)[:1] if session.slow_runs else []
    if session.missing:
        asked = f"class {session.hypervisor_class} asks for {len(session.missing)} more"
        items.append(f"{asked}: {list_names(session.missing, MAX_CAUSES_SHOWN)}")
    if not session.runs:
        items.append("everything that was asked for: there was no run")
    elif session.outcome in OPEN_OUTCOMES:
        items.append("the rest of the session, which ended before all of its pairs had run")
    return items + list(session.not_run)
