"""Judge what one ReFrame run measured, as the overhead checks and ``virtqual qualify`` both do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from virtqual import paths
from virtqual.admission import canary_runs
from virtqual.admission.canaries import Canary
from virtqual.admission.compare import Checked, check_runs, of_sessions
from virtqual.admission.finding import refusals
from virtqual.admission.policy import Policy, load_policy
from virtqual.errors import UsageError
from virtqual.references import References, load_references
from virtqual.references.load import claim_ids
from virtqual.runs import Run
from virtqual.session import earlier, store
from virtqual.session.store import Session
from virtqual.stack import same
from virtqual.verdict import Design, Outcome, SessionVerdict, Verdict, judge_session

BASELINE = Outcome.BASELINE


@cache
def references() -> References:
    """Return the reviewed data, read once a process."""
    return load_references(paths.references())


@cache
def policy() -> Policy:
    """Return what each item of preflight means, read once a process."""
    return policy_in(paths.references(), references())


def policy_in(directory: Path, known: References) -> Policy:
    """Read what each item of preflight means by the reviewed data of a directory, which is `known`."""
    return load_policy(directory / "preflight.yaml", known.classes, claim_ids(directory / "published"))


def preflight(runs: Sequence[Run], hypervisor_class: str) -> Checked:
    """Compare both sides of some runs under a class, and leave out the runs that were disturbed."""
    return check_runs(runs, policy(), hypervisor_class)


def canaries(runs: Sequence[Run], hypervisor_class: str) -> tuple[Canary, ...]:
    """Return what every canary says of the runs of a session; runs that were disturbed do not count."""
    kept = preflight(runs, hypervisor_class).runs
    return canary_runs.of_session(canary_runs.Measured.of(kept, store.series_of(kept, references())))


def refused_checks(checked: Checked) -> dict[str, tuple[str, ...]]:
    """Return the checks of a session of which nothing may be judged, with the reasons.

    Parameters
    ----------
    checked
        All runs of the session, after preflight.
    """
    runs, found = checked.runs, dict[str, tuple[str, ...]]()
    if reasons := refusals(checked.findings):
        found |= dict.fromkeys((run.check for run in runs), reasons)
    inputs = ((check, (reason,)) for check, reason in other_inputs(runs))
    for check, reasons in [*other_software(runs), *other_answers(runs), *inputs]:
        _add(found, check, *reasons)
    return found


def refused_in(session: Session, checked: Checked) -> dict[str, tuple[str, ...]]:
    """Return the checks of a stored session of which nothing counts: refused ones, and those that failed.

    Parameters
    ----------
    session
        The session.
    checked
        All its runs, after preflight.
    """
    found = refused_checks(checked)
    native = session.identity.get("native", {}).get("partition", "")
    for failure in session.failures:
        _add(found, failure.check, failure.why(native))
    return found


def _add(refused: dict[str, tuple[str, ...]], check: str, *reasons: str) -> None:
    refused[check] = tuple(dict.fromkeys((*refused.get(check, ()), *reasons)))


def judge_runs(
    runs: Sequence[Run],
    hypervisor_class: str,
    *,
    system: str = "",
    against: str = "",
    refused: dict[str, tuple[str, ...]] | None = None,
    build: str = "",
    design: Design | None = None,
) -> SessionVerdict:
    """Judge the series of some runs together; what preflight refuses is INVALID.

    Parameters
    ----------
    runs
        Of one session.
    hypervisor_class
        The class of budgets.
    system
        Whose own noise history counts, where it has one.
    against
        An earlier session (id, path or ``last``), or empty.
    refused
        Reasons by name of check for which nothing of it may be judged.
    build
        The hypervisor's build, as waivers name it.
    design
        Error rates and looks; the default's if not given.
    """
    known = references()
    checked = preflight(runs, hypervisor_class)
    runs, refused = checked.runs, dict(refused or {})
    for check, reasons in refused_checks(checked).items():
        _add(refused, check, *reasons)
    before, since = _since(runs, against, hypervisor_class, system) if against else (None, None)
    cases = store.cases_of(
        runs, known, hypervisor_class, system=system, against=before, refused=refused, since=since
    )
    return judge_session(
        cases,
        hypervisor_class=known.hypervisor_class(hypervisor_class),
        waivers=known.waivers,
        build=build,
        design=design or Design(),
    )


def _since(
    runs: Sequence[Run], against: str, hypervisor_class: str, system: str
) -> tuple[Sequence[Run], dict[str, tuple[str, ...]]]:
    """Return the runs of the earlier session, and why changes of a check since then may not be judged."""
    session = earlier.load(earlier.find(against, system))
    # What disturbed a run of the earlier session, or refused one of its checks, makes it no better a measure.
    checked = preflight(session.runs, hypervisor_class)
    unfit = {
        check: tuple(f"earlier session: {reason}" for reason in reasons)
        for check, reasons in refused_in(session, checked).items()
    }
    for reason in refusals(of_sessions(runs, checked.runs, policy(), hypervisor_class)):
        for check in dict.fromkeys(run.check for run in runs if run.instead):
            _add(unfit, check, reason)
    for check, reason in [*other_software_since(runs, checked.runs), *other_inputs([*checked.runs, *runs])]:
        _add(unfit, check, reason)
    return checked.runs, unfit


def other_software(runs: Sequence[Run], *, processor: bool = False) -> list[tuple[str, tuple[str, ...]]]:
    """Return the checks whose nodes did not all load the same software, with every difference named.

    Parameters
    ----------
    runs
        Of one session.
    processor
        Whether other features of the processor count, too: under a verdict, preflight answers for them, by
        class.
    """
    found = []
    for check in dict.fromkeys(run.check for run in runs):
        # The native runs first: what is compared with them is the virtual side.
        sides = [
            (run.side, run.software)
            for run in sorted(runs, key=lambda run: run.side)
            if run.check == check and not run.instead
        ]
        reasons = [
            f"not the same software: {sentence}"
            for difference, sentence in same.among(sides)
            if difference.kind == "software" or processor
        ]
        if reasons:
            found.append((check, tuple(reasons)))
    return found


def other_software_since(runs: Sequence[Run], earlier: Sequence[Run]) -> Iterator[tuple[str, str]]:
    """Yield what loaded other software than in an earlier session, where only the virtual sides are compared.

    Elsewhere each session's native runs have the same software, and cancel it.
    """
    for check in dict.fromkeys(run.check for run in runs if run.instead):
        sides = [
            (when, run.software)
            for when, some in (("earlier", earlier), ("now", runs))
            for run in some
            if run.check == check and run.side == "virtual"
        ]
        for difference, sentence in same.among(sides):
            if difference.kind == "software":
                yield check, f"not the earlier session's software: {sentence}"


def other_inputs(runs: Sequence[Run]) -> Iterator[tuple[str, str]]:
    """Yield the checks of which not all runs had the same downloaded inputs, by checksum."""
    for check in dict.fromkeys(run.check for run in runs):
        own = [run for run in runs if run.check == check and not run.instead]
        for name in sorted({name for run in own for name in run.inputs}):
            sums = sorted({run.inputs.get(name, "none") for run in own})
            if len(sums) > 1:
                yield check, f"not the same input: {name} has the SHA-256 {' and '.join(sums)}"


def other_answers(runs: Sequence[Run]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the checks whose runs did not all compute the same, with the first difference of every answer.

    A fast wrong answer is no speed: every run is compared with the check's first native one.
    """
    found = []
    for check in dict.fromkeys(run.check for run in runs):
        first, *others = sorted((run for run in runs if run.check == check), key=lambda run: run.side)
        reasons: dict[str, str] = {}
        for run in others:
            had = {answer.name: answer for answer in run.answers}
            for name in sorted({answer.name for answer in first.answers} ^ had.keys()):
                reasons.setdefault(name, f"{name} is not said by every run")
            for answer in first.answers:
                other = had.get(answer.name, answer)
                if not answer.agrees(other):
                    reasons.setdefault(
                        answer.name,
                        f"{answer.name} is {answer.value:.9g} in {first.side} pair {first.pair} and "
                        f"{other.value:.9g} in {run.side} pair {run.pair}, {answer.tolerance:g} is allowed",
                    )
        if reasons:
            found.append((check, tuple(f"not the same result: {reason}" for reason in reasons.values())))
    return found


def judge_look(
    runs: Sequence[Run], hypervisor_class: str, *, system: str = "", against: str = ""
) -> list[Verdict]:
    """Judge what one check measured in this ReFrame run and, of the same check, in the looks before.

    Earlier looks of the session are read from the file that ``VIRTQUAL_SESSION`` names.

    Raises
    ------
    UsageError
        The file, the earlier session, the class or a budget does not exist.
    """
    everything = list(runs)
    if file := os.environ.get("VIRTQUAL_SESSION"):
        checks = {run.check for run in runs}
        everything = [run for run in store.load(Path(file)).runs if run.check in checks] + everything
    try:
        return list(judge_runs(everything, hypervisor_class, system=system, against=against).verdicts)
    except LookupError as error:
        raise UsageError(str(error)) from error
