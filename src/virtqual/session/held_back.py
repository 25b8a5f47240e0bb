"""Answers of a file of pairs that are not verdicts: an estimate without turns, or without known hosts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from virtqual.errors import UsageError
from virtqual.session.measured import FileRun, FileSeries
from virtqual.verdict import Case, SessionVerdict, texts
from virtqual.verdict.budget import Budget
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.pairs import SIDES
from virtqual.verdict.unpaired import estimate_unpaired
from virtqual.verdict.verdict import Verdict

ONE_HOST = "the same host"
ADVICE = "a verdict needs runs of both sides in turns (virtqual pair)"
_WHAT_HELPS = "exchange the roles of the hosts, or survey them (virtqual propose --hosts)"
UNKNOWN_HOSTS = (
    "no verdict on the build, since it is not known on which hosts both sides ran, and a slow host looks "
    "like a "
    f"slow build: say --same-host if it was one machine, or state the hosts; else {_WHAT_HELPS}"
)


def estimate(series: FileSeries, budget: Budget | None) -> Verdict:
    """Return the estimate of a series whose runs did not take turns; see `estimate_unpaired`."""
    first = next(iter(series.runs.values()))
    return estimate_unpaired(
        series.metric,
        series.setting,
        first.sizes,
        series.values_of("native"),
        series.values_of("virtual"),
        budget=budget,
        reason=f"no verdict: {series.not_in_turns}",
        advice=ADVICE,
        labels=series.labels,
    )


def hold_back(answer: SessionVerdict, cases: Sequence[Case]) -> SessionVerdict:
    """Return a session in which nothing is WITHIN or OVER whose hosts differ or are not known.

    A verdict on different hosts may be one on the hosts: the estimate stays, and the outcome is UNDECIDED.
    Cases are those of the verdicts, in their order.
    """
    verdicts = []
    for case, verdict in zip(cases, answer.verdicts, strict=True):
        reason = find_host_reason(case)
        verdicts.append(_hold_back(case, verdict, reason) if reason else verdict)
    if all(old is new for old, new in zip(answer.verdicts, verdicts, strict=True)):
        return answer
    slow_runs = answer.slow_runs.model_copy(update={"found": False})
    return replace(answer, verdicts=tuple(verdicts), slow_runs=slow_runs)


def find_host_reason(case: Case) -> str:
    """Return why a difference may be one of hosts; empty if both sides ran on the same, or roles changed."""
    if not case.series.valid:
        return ""
    places = case.runs.places
    if not places.are_known:
        return UNKNOWN_HOSTS
    cancels = case.gate == "change" and case.earlier is not None and places.cancels(case.earlier.places)
    if places.kind != "fixed" or math.isfinite(places.bound) or cancels:
        return ""
    native, virtual = (", ".join(names) for names in places.roles)
    labels = case.series.labels
    return (
        f"no verdict on the build: {labels.reference} ran on {native} and {labels.candidate} on "
        f"{virtual}, and a "
        f"slow host looks like a slow build: {_WHAT_HELPS}"
    )


def _hold_back(case: Case, verdict: Verdict, reason: str) -> Verdict:
    by_hosts = [text for text in verdict.reasons if texts.HOSTS_CONFOUNDED in text]
    if verdict.outcome in (Outcome.INVALID, Outcome.BASELINE) and not by_hosts:
        return verdict
    reasons = (reason, *(text for text in verdict.reasons if text not in by_hosts))
    update: dict[str, object] = {"outcome": Outcome.UNDECIDED, "reasons": reasons, "findings": ()}
    held = verdict.model_copy(update=update)
    held.message = texts.message(held, case.series.metric)
    return held


def state_same_host(file: str, series: Sequence[FileSeries]) -> None:
    """Note that all runs were on one host.

    Raises
    ------
    UsageError
        The file names different hosts.
    """
    for one in series:
        runs = list(one.runs.values())
        hosts = [{_host_of(run) for run in runs if run.side == side} for side in SIDES]
        if all(hosts) and not any("" in names for names in hosts):
            if hosts[0] == hosts[1]:
                continue
            native, virtual = (", ".join(sorted(names)) for names in hosts)
            raise UsageError(
                f"{file}: --same-host: the file names the hosts {native} ({one.labels.reference}) and "
                f"{virtual} "
                f"({one.labels.candidate}): leave the option out, or correct the column host"
            )
        name = hosts[0].pop() if len(hosts[0]) == 1 else ""
        for run in runs:
            run.shared = (*run.shared[:3], name or ONE_HOST, run.shared[4])


def _host_of(run: FileRun) -> str:
    return run.shared[3]
