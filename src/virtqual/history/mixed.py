"""A history that is mixed: sessions of one build, of which some met another machine.

The next session will meet the machine as the latest one met it. So the sessions that are on its level count,
whether they came before or after others. If the machine has just changed, these are few, and the file of
noise stays as it is until they are enough.

A change of kernel, microcode, firmware or mitigations is recorded. Other changes show as a step of some
metric in the order of time. States without an order are left in: the next session may be in any of them, and
they are noise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from virtqual.files.wording import list_names, pluralize
from virtqual.history.boots import MIN_RECORDED_BOOTS, shrink_variances
from virtqual.history.builds import BUILD_PREFIX, compare_facts
from virtqual.history.change_points import MIN_SESSIONS, compare_with_last
from virtqual.history.noise_entries import leave_out_stalls
from virtqual.history.recorded import Recorded
from virtqual.verdict.estimate import Floats, Ints
from virtqual.verdict.notation import describe_slowdown
from virtqual.verdict.pairs import Series

#: Last words of the facts of nodes that set sessions apart, with those of the hypervisor.
MACHINE_FACTS = ("kernel", "microcode", "firmware", "mitigations")
#: Facts and metrics that a note names.
MAX_NAMED = 3
#: Median of the square of a standard normal deviate.
_MEDIAN_SQUARE = float(special.chdtri(1, 0.5))


@dataclass(frozen=True)
class Choice:
    """The sessions from which the noise of the next one is taken, in the order of time."""

    #: Empty if they are too few.
    sessions: list[Recorded]
    #: Which sessions these are and which are left out, for the `source` of entries.
    source: str
    #: Which are left out and why, a sentence each.
    notes: list[str]


class Means(NamedTuple):
    """Sessions of a metric in the order of time; all arrays have the shape (n,)."""

    numbers: Ints
    #: ln(virtual/native), positive is worse.
    log: Floats
    #: Variance of `log` by the pairs.
    errors: Floats


def choose_sessions(sessions: Sequence[Recorded]) -> Choice:
    """Choose the sessions of the latest one's build that met the machine as the latest one met it."""
    in_time = sorted(sessions, key=lambda session: (session.date, session.session))
    latest = in_time[-1]
    of_build = [session for session in in_time if session.build == latest.build]
    machines = {session.session: _compare_machines(session, latest) for session in of_build}
    notes, reasons = [], []
    for names, changes in dict.fromkeys(machine for machine in machines.values() if machine):
        group = [session for session in of_build if machines[session.session] == (names, changes)]
        ids = _name_sessions(group, of_build)
        notes.append(f"left out: {ids}, of another machine than {latest.session} ({changes})")
        reasons.append(f"{ids} (another {names})")
    alike = [session for session in of_build if not machines[session.session]]
    shifts = find_shifts({n: measure_sessions(s) for n, s in _group_by_metric(alike).items()})
    if shifted := sorted({number for numbers in shifts.values() for number in numbers}):
        ids = _name_sessions([alike[number] for number in shifted], of_build)
        notes.append(f"left out: {ids}, where {_describe_shifts(shifts, alike, shifted)}")
        reasons.append(f"{ids} (another level of {list_names(list(shifts), MAX_NAMED)})")
    chosen = [session for number, session in enumerate(alike) if number not in shifted]
    source = f"{len(chosen)} sessions, {chosen[0].session} to {latest.session}, build {latest.build}"
    source += f"; left out: {', '.join(reasons)}" if reasons else ""
    if reasons and len(chosen) < MIN_RECORDED_BOOTS:
        notes.append(
            f"{pluralize(len(chosen), 'session')} left, {MIN_RECORDED_BOOTS} are the least that show how "
            "sessions vary: the file stays as it is; run more sessions"
        )
        chosen = []
    return Choice(chosen, source, notes)


def find_shifts(metrics: Mapping[str, Means]) -> dict[str, dict[int, float]]:
    """Return by metric by how much sessions lie on another level than the latest one that measured it.

    The result has only metrics and sessions that differ, the metric that differs most first:
    ln(virtual/native) less that of the latest, positive is worse.

    How much the sessions of one level differ is taken from the differences of successive sessions, of which
    most have no step between them: their median over all metrics says it in variances by the pairs. A metric
    that has more left around its levels counts with that.
    """
    metrics = {name: means for name, means in metrics.items() if len(means.log) >= MIN_SESSIONS}
    if not metrics:
        return {}
    squares = [np.diff(log) ** 2 / (errors[1:] + errors[:-1]) for _, log, errors in metrics.values()]
    together = np.concatenate(squares)
    ratio = max(float(np.median(together)) / _MEDIAN_SQUARE, 1.0)
    shifts = {}
    for name, (numbers, log, errors) in metrics.items():
        # A median is worth a third of the values.
        differences = compare_with_last(log, ratio * errors, len(metrics), len(together) / 3)
        if differences.any():
            shifts[name] = {int(numbers[at]): float(differences[at]) for at in np.flatnonzero(differences)}
    return dict(sorted(shifts.items(), key=lambda shift: -abs(_find_largest(shift[1]))))


def measure_sessions(series: Mapping[int, Series]) -> Means:
    """Return what sessions show of a metric, by their numbers; those of fewer than two pairs are left out."""
    calm = zip(series, leave_out_stalls(list(series.values())), strict=True)
    d = {number: measured.differences.mean(axis=1) for number, measured in calm if len(measured.valid) >= 2}
    pairs = np.array([len(pairs) for pairs in d.values()])
    log = np.array([pairs.mean() for pairs in d.values()])
    variances = np.array([pairs.var(ddof=1) for pairs in d.values()])
    errors = shrink_variances(variances, pairs) / pairs if len(pairs) else variances
    return Means(np.array(list(d)), log, errors)


def _group_by_metric(sessions: Sequence[Recorded]) -> dict[str, dict[int, Series]]:
    metrics: dict[str, dict[int, Series]] = defaultdict(dict)
    for number, session in enumerate(sessions):
        for _, series in session.series:
            metrics[series.id][number] = series
    return metrics


def _compare_machines(session: Recorded, latest: Recorded) -> tuple[str, str] | None:
    """Return the facts that set a session apart from the latest: names alone, and with both values.

    A fact that one of the two did not record sets nothing apart.
    """
    names = [
        name
        for name in session.facts
        if name in latest.facts and (name.startswith(BUILD_PREFIX) or name.endswith(MACHINE_FACTS))
    ]
    changes = list(compare_facts(*({name: s.facts[name] for name in names} for s in (session, latest))))
    if not changes:
        return None
    return list_names([name for name, _, _ in changes], MAX_NAMED), _describe_changes(changes)


def _describe_changes(changes: Sequence[tuple[str, str, str]]) -> str:
    return list_names([f"{names}: {old} -> {new}" for names, old, new in changes], MAX_NAMED, "; ")


def _describe_shifts(
    shifts: Mapping[str, Mapping[int, float]], sessions: Sequence[Recorded], shifted: Sequence[int]
) -> str:
    """Return which metrics are on another level, and what changed with it."""
    series = {series.id: series for session in sessions for _, series in session.series}
    texts = [
        f"{name} is {describe_slowdown(_find_largest(differences), series[name].metric.better)}"
        for name, differences in shifts.items()
    ]
    # The latest session is never on another level than itself.
    last = shifted[-1]
    after = next(number for number in range(last + 1, len(sessions)) if number not in shifted)
    changes = list(compare_facts(sessions[last].facts, sessions[after].facts))
    recorded = _describe_changes(changes) if changes else "nothing that is recorded"
    return (
        f"{list_names(texts, MAX_NAMED)} relative to native than in {sessions[-1].session}, more than pairs "
        f"and boots explain (changed with it: {recorded})"
    )


def _find_largest(differences: Mapping[int, float]) -> float:
    return max(differences.values(), key=abs)


def _name_sessions(group: Sequence[Recorded], in_time: Sequence[Recorded]) -> str:
    """Return the ids of sessions; the first and the last of several that follow each other."""
    names = {session.session for session in group}
    stretches: list[list[str]] = [[]]
    for session in in_time:
        if session.session in names:
            stretches[-1].append(session.session)
        elif stretches[-1]:
            stretches.append([])
    return ", ".join(
        f"{stretch[0]} to {stretch[-1]}" if len(stretch) > 2 else ", ".join(stretch)
        for stretch in stretches
        if stretch
    )
