"""What was measured: sessions, and the samples of ReFrame's run reports.

A session is one directory with ``session.json`` (every sample, identity and verdict; schema
``virtqual-session/1``) beside ReFrame's own reports of each look.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from virtqual.admission.canaries import Canary
from virtqual.admission.finding import Finding
from virtqual.errors import InfrastructureError, UsageError
from virtqual.files import records
from virtqual.references import Gate, NoReferenceError, References
from virtqual.runs import Result, Run
from virtqual.verdict import Case
from virtqual.verdict.pairs import Sample, Series, Side, pair_up

FILE = "session.json"


class Look(BaseModel):
    """One ReFrame run of a session and where its own reports are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    first: int
    last: int
    cases: int
    failed: int
    seconds: float
    uuid: str
    report: Path
    junit: Path
    log: Path


class Failure(BaseModel):
    """One case that did not give a sample, and ReFrame's reason."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    look: int
    case: str
    partition: str
    phase: str
    reason: str

    @property
    def check(self) -> str:
        """Name of the check and its parameters, without the sample."""
        return " ".join(part for part in self.case.split(" ") if not part.startswith("%sample="))

    def why(self, native: str) -> str:
        """Return why nothing of the check may be judged; `native` is the name of the native partition."""
        if self.phase == "performance" and self.partition == native:
            return f"native misses its absolute reference ({self.reason})"
        return f"{self.partition}: {self.reason}"


class Session(BaseModel):
    """A session as ``session.json`` keeps it.

    Attributes
    ----------
    session
        Its id: date, time and system.
    hypervisor_class
        Under which it was judged.
    identity
        What each partition was, by side.
    stack
        Name, hash and programs (name, version, checksum).
    against
        Id of the earlier session it was compared with, or None.
    runs
        Every run, in the order in which they ran.
    preflight
        Everything in which both sides differ, or that disturbed runs, with what follows from it.
    canaries
        What the measurements themselves say of features that the hypervisor may lack.
    not_run
        Checks that cannot run here, with the reason; empty where only some were asked for.
    judged
        The session verdict's record, from which it can be judged again.
    outcome, qualified, exit_code
        The conclusion; ``qualified`` is ``yes``, ``yes (N accepted by waiver)`` or ``no (reason)``.
    """

    model_config = ConfigDict(extra="forbid")

    schema_: Literal["virtqual-session/1"] = Field(alias="schema", default="virtqual-session/1")
    session: str
    label: str = ""
    created: str
    system: str
    hypervisor_class: str
    identity: dict[str, Any]
    stack: dict[str, Any]
    against: str | None = None
    looks: list[Look] = []
    runs: list[Run] = []
    failures: list[Failure] = []
    preflight: list[Finding] = []
    canaries: list[Canary] = []
    not_run: list[str] = []
    judged: dict[str, Any] = {}
    outcome: str = "UNFINISHED"
    all_outcomes: dict[str, int] = {}
    qualified: str = "no (unfinished)"
    conclusion: str = ""
    exit_code: int = 5

    def write(self, directory: Path) -> Path:
        """Write ``session.json``, whole or not at all."""
        return records.write_whole(self, directory / FILE, indent=1)


def load(path: Path) -> Session:
    """Read a session from its file or directory.

    Raises
    ------
    UsageError
        There is none, or it is not of this version.
    """
    file = path / FILE if path.is_dir() else path
    return records.load(Session, file, "session")


def find(name: str, sessions: Path) -> Path:
    """Return the file of a session.

    Parameters
    ----------
    name
        Its id, the beginning of an id, a path, or ``last``.
    sessions
        The directory of sessions.

    Raises
    ------
    UsageError
        There is no such session, or several begin so; those there are are named.
    """
    as_path = Path(name)
    if as_path.is_dir() or as_path.is_file():
        return as_path / FILE if as_path.is_dir() else as_path
    ids = sorted(path.parent.name for path in sessions.glob(f"*/{FILE}"))
    matches = (
        ids[-1:]
        if name == "last"
        else [i for i in ids if i == name] or [i for i in ids if i.startswith(name)]
    )
    if len(matches) != 1:
        known = ", ".join(ids[-5:]) or "none"
        raise UsageError(
            f"{'several sessions begin' if matches else 'no session begins'} with {name!r} "
            f"below {sessions} (the latest: {known})"
        )
    return sessions / matches[0] / FILE


def runs_of_report(report: Path) -> tuple[list[Run], list[Failure], dict[str, Any]]:
    """Read the runs of one ReFrame run report.

    Returns
    -------
    runs
        Of every measurement that passed, by start.
    failures
        Of every case that did not.
    info
        ReFrame's session information.

    Raises
    ------
    InfrastructureError
        The report is not there or not whole.
    """
    try:
        content = json.loads(report.read_text(encoding="utf-8"))
        cases = [case for run in content["runs"] for case in run["testcases"]]
        info = content["session_info"]
    except (OSError, ValueError, KeyError) as error:
        raise InfrastructureError(f"{report}: no run report of ReFrame ({error})") from error
    runs, failures = [], []
    for case in cases:
        if case["result"] != "pass":
            reason = " ".join(str(case.get("fail_reason") or case["result"]).split())
            name, phase = case["display_name"], str(case.get("fail_phase") or "dependencies")
            failures.append(
                Failure(look=0, case=name, partition=case["partition"], phase=phase, reason=reason)
            )
        elif case.get("record"):
            runs.append(Run.model_validate_json(case["record"]))
    return sorted(runs, key=lambda run: run.start), failures, dict(info)


def series_of(
    runs: Iterable[Run], references: References, only: Container[str] | None = None
) -> dict[str, Series]:
    """Pair up the samples of runs, by series id in order of appearance.

    Parameters
    ----------
    runs
        Of one session.
    references
        Metrics.
    only
        Ids of the series that are wanted; all if not given.

    Raises
    ------
    virtqual.verdict.pairs.PairingError
        For what only a bug of the harness produces, e.g. other message sizes on one side.
    virtqual.references.metrics.UnknownMetricError
        A run names a metric that no file declares.
    """
    found: dict[str, tuple[Result, list[Sample]]] = {}
    instead: dict[str, list[Run]] = defaultdict(list)
    by_series: dict[str, str] = {}
    for run in runs:
        if run.instead:
            instead[run.check].append(run)
            continue
        for result in run.results:
            if only is not None and result.series not in only:
                continue
            _, samples = found.setdefault(result.series, (result, []))
            samples.append(_sample(run, result))
            by_series[result.series] = run.check
    made = {}
    for name, (first, samples) in found.items():
        witnesses = instead[by_series[name]]
        # One value for all sizes.
        width = max(len(first.points), 1)
        samples += [_sample(run, run.results[0], values=run.results[0].values * width) for run in witnesses]
        metric = references.metrics[first.metric]
        why = witnesses[0].instead if witnesses else ""
        made[name] = pair_up(metric, first.setting, first.points, samples, why)
    return made


def cases_of(
    runs: Sequence[Run],
    references: References,
    hypervisor_class: str,
    *,
    system: str = "",
    against: Sequence[Run] | None = None,
    refused: dict[str, tuple[str, ...]] | None = None,
    since: dict[str, tuple[str, ...]] | None = None,
) -> list[Case]:
    """Return what the verdict needs to judge every series of some runs.

    A class whose gate is the overhead gets two cases a series when there is an earlier session: the overhead,
    and its change since then.

    Parameters
    ----------
    runs
        Of this session.
    references
        Budgets and noise.
    hypervisor_class
        The class of budgets.
    system
        Whose own noise history counts, where it has one.
    against
        Runs of an earlier session, None without one; of a series that it does not have the change is refused.
    refused
        Reasons by name of check for which nothing of it may be judged.
    since
        Reasons by name of check, now or in the earlier session, for which its change may not be judged.

    Raises
    ------
    UsageError
        No budget covers a metric under this class.
    """
    by_check = {result.series: run.check for run in runs for result in run.results}
    earlier = series_of(against or (), references, by_check)
    was_check = {result.series: run.check for run in against or () for result in run.results}
    gates: list[Gate] = ["change"]
    if references.hypervisor_class(hypervisor_class).gate == "overhead":
        # Over budget, and worse than before: two answers, and either may be the bad one.
        gates = ["overhead", "change"] if against is not None else ["overhead"]
    cases = []
    for name, series in series_of(runs, references).items():
        for gate in gates:
            reasons = (refused or {}).get(by_check[name], ())
            if gate == "overhead" and series.yardstick:
                reasons = (*reasons, f"native not observable: {series.yardstick}")
            baseline = earlier.get(name) if gate == "change" else None
            if gate == "change" and against is not None:
                for check in dict.fromkeys((by_check[name], was_check.get(name, ""))):
                    reasons = (*reasons, *(since or {}).get(check, ()))
                if baseline is None:
                    reasons = (*reasons, "the earlier session did not measure it")
                elif bool(baseline.yardstick) != bool(series.yardstick):
                    reasons = (*reasons, "native could be observed in one of both sessions only")
                    baseline = None
                elif baseline.points != series.points:
                    reasons, baseline = (*reasons, "the earlier session measured other sizes"), None
            try:
                budget = references.budget(series, hypervisor_class, gate=gate)
                prior = references.prior(series, hypervisor_class=hypervisor_class, system=system)
            except NoReferenceError as error:
                raise UsageError(str(error)) from error
            cases.append(Case(series, budget, prior, baseline=baseline, refused=reasons))
    return cases


def _sample(run: Run, result: Result, *, values: tuple[float, ...] = ()) -> Sample:
    side: Side = run.side
    return Sample(
        side=side,
        number=run.pair,
        values=values or result.values,
        start=run.start,
        end=run.end,
        invalid=result.invalid,
        origin=run.origin,
        points=result.points,
    )
