"""From stored sessions to files under ``references/systems/``, as a diff to review."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from virtqual.errors import UsageError
from virtqual.history.boots import measure_boots, pool_metrics
from virtqual.history.mixed import choose_sessions
from virtqual.history.native import FALSE_ALARMS, reference_entries
from virtqual.history.noise_entries import NoHistoryError, leave_out_stalls, noise_entry
from virtqual.history.recorded import Recorded
from virtqual.history.survey import host_entry
from virtqual.verdict.pairs import Series


@dataclass(frozen=True)
class Proposal:
    """One file as it is (empty if it does not exist) and as it should be; `notes` say what was left out."""

    path: Path
    before: str
    after: str
    notes: tuple[str, ...]

    @property
    def diff(self) -> str:
        """Unified diff; empty if nothing changes."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True),
            self.after.splitlines(keepends=True),
            f"a/{self.path}" if self.before else "/dev/null",
            f"b/{self.path}",
        )
        return "".join(lines)


def propose(sessions: Sequence[Recorded], directory: Path) -> list[Proposal]:
    """Propose references and noise for the system that the sessions were made on.

    `directory` is ``references/systems``; nothing is written. A session that is named twice counts once.

    Raises
    ------
    UsageError
        There is no session, or they are of several systems, CPU models or stacks, or measured a curve
        at other sizes.
    """
    sessions = _unite(sessions)
    system = directory / sessions[0].system
    names = sorted({_name_class(check) for session in sessions for check, _ in session.series})
    proposals = [_propose_native(name, sessions, system) for name in names]
    proposals.append(_propose_noise(sessions, system / "noise.yaml"))
    return [proposal for proposal in proposals if proposal.diff or proposal.notes]


def propose_hosts(sessions: Sequence[Recorded], directory: Path, carrying: Collection[str]) -> list[Proposal]:
    """Propose how much the hosts of both sides differ at most, from native runs on all of them.

    `directory` is ``references/systems``; `carrying` names the hosts that carry VMs, all others are native.

    Raises
    ------
    UsageError
        See `propose`; also if no series was measured natively on hosts of both sides often enough.
    """
    sessions = _unite(sessions)
    system = sessions[0].system
    path = directory / system / "hosts.yaml"
    entries, notes = _make_entries(sessions, path, partial(host_entry, carrying=carrying))
    if not entries:
        raise UsageError(
            f"no series has been surveyed (hosts that carry VMs, by extras.nodes_of_hosts of the virtual "
            f"partition: {', '.join(sorted(carrying))}): {notes[0] if notes else 'nothing was measured'}"
        )
    content = {"schema": "virtqual-hosts/1", "made_of": _describe_origin(sessions), "hosts": entries}
    return [_make_proposal(path, f"Differences of the hosts of {system}", content, notes)]


def _unite(sessions: Sequence[Recorded]) -> list[Recorded]:
    """Return sessions, each once, that can make one reference."""
    sessions = list({session.session: session for session in sessions}.values())
    for field in ("system", "stack", "cpu"):
        values = sorted({str(getattr(session, field)) for session in sessions})
        if len(values) != 1:
            raise UsageError(
                f"references are made of sessions with one {field}; found {', '.join(values) or 'none'}."
            )
    return sessions


def _name_class(check: str) -> str:
    return check.split(" ", 1)[0]


def _group_series(sessions: Sequence[Recorded]) -> Iterator[tuple[str, list[Series]]]:
    """Yield the check of each series, and the series of all sessions."""
    groups: dict[tuple[str, str], list[tuple[str, Series]]] = defaultdict(list)
    for session in sessions:
        for check, series in session.series:
            groups[check, series.id].append((session.session, series))
    for (check, _), group in groups.items():
        first_session, first = group[0]
        for session_id, series in group:
            if series.points != first.points:
                raise UsageError(
                    f"sessions {first_session} and {session_id} measured {first.id} at other sizes "
                    f"({_describe_sizes(first)}; {_describe_sizes(series)}): name sessions of one kind."
                )
        yield check, [series for _, series in group]


def _describe_sizes(series: Series) -> str:
    points = series.points
    return f"{len(points)} from {points[0]:.15g} to {points[-1]:.15g}" if points else "none"


def _propose_native(name: str, sessions: Sequence[Recorded], system: Path) -> Proposal:
    """Return the proposal for the checks of one class, in the form that ReFrame's ``$ref`` reads."""
    path = system / f"{name}.yaml"
    notes, provenance = [], []
    references: dict[Any, Any] = {}
    for check, series in _group_series(sessions):
        if _name_class(check) != name:
            continue
        try:
            entries = reference_entries(series)
        except NoHistoryError as error:
            notes.append(f"{path}: {series[0].id}: {error}")
            continue
        values = dict(sorted(re.findall(r"%(\w+)=(\S+)", check)))
        # ReFrame compares a number with the parameter itself.
        parameters = {key: int(value) if value.isdigit() else value for key, value in values.items()}
        if parameters:
            references.setdefault("$index", list(parameters))
        # ReFrame looks for references below the check's parameters.
        place = references
        # Only native runs have a reference, so that no other partition meets this name.
        for key in parameters.values() or ["*"]:
            place = place.setdefault(key, {})
        for entry in entries:
            place[entry.variable] = [entry.value, entry.lower, entry.upper, entry.unit]
        origin = {
            "series": series[0].id,
            "runs": entries[0].runs,
            "spread": max(entry.spread for entry in entries),
            "false_alarms": FALSE_ALARMS,
        }
        provenance.append(origin)
    content = {
        "schema": "virtqual-native/1",
        "made_of": _describe_origin(sessions),
        "provenance": provenance,
        name: references,
    }
    return _make_proposal(path, f"Native references of {system.name}", content if provenance else None, notes)


def _propose_noise(sessions: Sequence[Recorded], path: Path) -> Proposal:
    """Return the proposal for the noise of a system, from the sessions that are like its latest one."""
    choice = choose_sessions(sessions)
    spreads = (measure_boots(leave_out_stalls(series)) for _, series in _group_series(choice.sessions))
    pooled = pool_metrics([spread for spread in spreads if spread])
    make_entry = partial(noise_entry, source=choice.source, pooled=pooled)
    entries, notes = _make_entries(choice.sessions, path, make_entry)
    notes = [*(f"{path}: {note}" for note in choice.notes), *notes]
    content = {"schema": "virtqual-noise/1", "noise": entries}
    return _make_proposal(path, f"A/A history of {path.parent.name}", content if entries else None, notes)


def _make_entries(
    sessions: Sequence[Recorded], path: Path, make_entry: Callable[[list[Series]], dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return an entry for each series, and notes on those with too few runs."""
    entries, notes = [], []
    for _, series in _group_series(sessions):
        try:
            entries.append(make_entry(series))
        except NoHistoryError as error:
            notes.append(f"{path}: {series[0].id}: {error}")
    return entries, notes


def _describe_origin(sessions: Sequence[Recorded]) -> dict[str, Any]:
    return {
        "sessions": [session.session for session in sessions],
        "date": max(session.date for session in sessions),
        "cpu": sessions[0].cpu,
        "stack": sessions[0].stack,
    }


def _make_proposal(
    path: Path, title: str, content: Mapping[str, Any] | None, notes: Sequence[str]
) -> Proposal:
    """Return the proposal of a file's content; without content the file stays as it is."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    after = before
    if content:
        yaml = YAML(typ="safe", pure=True)
        # Lists and mappings without others in them have one line.
        yaml.width, yaml.default_flow_style = 110, None
        yaml.representer.sort_base_mapping_type_on_output = False
        stream = StringIO()
        yaml.dump(content, stream)
        after = f"# {title}; proposed by `virtqual propose`.\n{stream.getvalue()}"
    return Proposal(path, before, after, tuple(notes))
