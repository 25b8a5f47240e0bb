"""From stored sessions to files under ``references/systems/``, as a diff to review."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from virtqual.history.history import NoHistoryError, noise_entry
from virtqual.history.native import FALSE_ALARMS, Reference, reference_entries
from virtqual.history.survey import host_entry
from virtqual.verdict.pairs import Series


@dataclass(frozen=True)
class RecordedSeries:
    """One series of a session and the check that measured it.

    Parameters
    ----------
    check
        Class name of the check with its parameters, as sessions name it: ``Memory %threads=one``.
    series
        The pairs of the series.
    """

    check: str
    series: Series


@dataclass(frozen=True)
class Recorded:
    """The part of a stored session that `propose` uses.

    Parameters
    ----------
    session
        Id of the session.
    date
        ISO date on which it was made.
    system
        Name of the system.
    build
        Hypervisor build of the virtual side; noise is pooled within one build.
    cpu
        CPU model of the native side.
    stack
        Hash of the software stack.
    series
        The series that it measured.
    left_out
        Sentences: which of its series are not taken, and why.
    """

    session: str
    date: str
    system: str
    build: str
    cpu: str
    stack: str
    series: tuple[RecordedSeries, ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Proposal:
    """One file as it is and as it should be.

    Parameters
    ----------
    path
        The file.
    before
        Text of the file; empty if it does not exist.
    after
        The text proposed.
    notes
        Sentences: what was left out, and why.
    """

    path: Path
    before: str
    after: str
    notes: tuple[str, ...] = field(default=())

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


def propose(
    sessions: Sequence[Recorded], directory: Path, false_alarms: float = FALSE_ALARMS
) -> list[Proposal]:
    """Propose references for the system that the sessions were made on.

    Parameters
    ----------
    sessions
        Of one system and one software stack: numbers of two stacks are not one reference. One that is
        named twice counts once.
    directory
        ``references/systems``. Nothing is written.
    false_alarms
        How often a sound machine may miss a reference.

    Raises
    ------
    ValueError
        If there is no session, or they are of several systems, CPU models or stacks, or measured a curve
        at other sizes.
    """
    sessions = _alike(sessions)
    system = directory / sessions[0].system
    proposals = [
        _native(name, sessions, system, false_alarms)
        for name in sorted({_class(recorded.check) for s in sessions for recorded in s.series})
    ]
    return [p for p in [*proposals, _noise(sessions, system)] if p.diff or p.notes]


def propose_hosts(sessions: Sequence[Recorded], directory: Path, carrying: Collection[str]) -> list[Proposal]:
    """Propose how much the hosts of both sides differ at most, from native runs on all of them.

    Parameters
    ----------
    sessions
        Of one system, one CPU model and one software stack; see `propose`.
    directory
        ``references/systems``. Nothing is written.
    carrying
        Names of the hosts that carry VMs; all other hosts are native ones.

    Raises
    ------
    ValueError
        See `propose`; also if nothing was measured natively on hosts of both sides often enough.
    """
    sessions = _alike(sessions)
    path = directory / sessions[0].system / "hosts.yaml"
    notes, entries = [], CommentedSeq()
    for (_, series_id), series in _groups(sessions).items():
        try:
            entries.append(_flow(host_entry(series, carrying)))
        except NoHistoryError as error:
            notes.append(f"{path}: {series_id}: {error}")
    if not entries:
        raise ValueError(
            f"no series has been surveyed (hosts that carry VMs, by extras.nodes_of_hosts of the virtual "
            f"partition: {', '.join(sorted(carrying))}): {notes[0] if notes else 'nothing was measured'}"
        )
    content = CommentedMap()
    content["schema"] = "virtqual-hosts/1"
    content["made_of"] = _made_of(sessions)
    content["hosts"] = entries
    text = _text(content, f"Differences of the hosts of {sessions[0].system}; proposed by `virtqual record`.")
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    return [Proposal(path, before, text, tuple(notes))]


def _alike(sessions: Sequence[Recorded]) -> list[Recorded]:
    """Return sessions, each once, that can make one reference."""
    sessions = list({session.session: session for session in sessions}.values())
    for part in ("system", "stack", "cpu"):
        found = sorted({str(getattr(session, part)) for session in sessions})
        if len(found) != 1:
            raise ValueError(
                f"references are made of sessions with one {part}; found {', '.join(found) or 'none'}."
            )
    return sessions


def _class(check: str) -> str:
    return check.split(" ", 1)[0]


def _parameters(check: str) -> dict[str, str | int]:
    found = re.findall(r"%(\w+)=(\S+)", check)
    # ReFrame compares with the parameter itself, which may be a number.
    return {name: int(value) if value.isdigit() else value for name, value in found}


def _groups(sessions: Iterable[Recorded], name: str | None = None) -> dict[tuple[str, str], list[Series]]:
    """Return the series of all sessions by check and id."""
    groups: dict[tuple[str, str], list[Series]] = {}
    first: dict[tuple[str, str], str] = {}
    for session in sessions:
        for recorded in session.series:
            if name is None or _class(recorded.check) == name:
                key = recorded.check, recorded.series.id
                group = groups.setdefault(key, [])
                before = first.setdefault(key, session.session)
                if group and group[0].points != recorded.series.points:
                    raise ValueError(
                        f"sessions {before} and {session.session} measured {key[1]} at other sizes "
                        f"({_sizes(group[0])}; {_sizes(recorded.series)}): name sessions of one kind."
                    )
                group.append(recorded.series)
    return groups


def _sizes(series: Series) -> str:
    points = series.points
    return f"{len(points)} from {points[0]:g} to {points[-1]:g}" if points else "none"


def _native(name: str, sessions: Sequence[Recorded], system: Path, false_alarms: float) -> Proposal:
    """Return the proposal for one check, in the form that ReFrame's ``$ref`` reads."""
    path = system / f"{name}.yaml"
    notes: list[str] = []
    references = CommentedMap()
    provenance = CommentedSeq()
    index: list[str] = []
    for (check, series_id), series in _groups(sessions, name).items():
        parameters = _parameters(check)
        index = sorted(parameters) or index
        entries = reference_entries(series, false_alarms)
        if not entries:
            runs = sum(len(measured.valid) for measured in series)
            notes.append(f"{path}: {series_id} has {runs} native runs; 4 are the least for a reference")
            continue
        keys = [parameters[parameter] for parameter in sorted(parameters)]
        _put(references, keys or [f"{sessions[0].system}:native"], entries)
        provenance.append(_provenance(series_id, entries, false_alarms))
    content = CommentedMap()
    content["schema"] = "virtqual-native/1"
    content["made_of"] = _made_of(sessions)
    content["provenance"] = provenance
    if index:
        order = CommentedSeq(index)
        order.fa.set_flow_style()
        references.insert(0, "$index", order)
    content[name] = references
    text = _text(content, f"Native references of {sessions[0].system}; proposed by `virtqual record`.")
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    return Proposal(path, before, text if provenance else before, tuple(notes))


def _put(references: CommentedMap, keys: Sequence[str | int], entries: Sequence[Reference]) -> None:
    """Write the references of one series where ReFrame looks for them: below the check's parameters."""
    place = references
    for key in keys:
        place = place.setdefault(key, CommentedMap())
    for entry in entries:
        value = CommentedSeq([entry.value, entry.lower, entry.upper, entry.unit])
        value.fa.set_flow_style()
        place[entry.variable] = value


def _provenance(series_id: str, entries: Sequence[Reference], false_alarms: float) -> CommentedMap:
    spread = max(entry.spread for entry in entries)
    return _flow(
        {"series": series_id, "runs": entries[0].runs, "spread": spread, "false_alarms": false_alarms}
    )


def _noise(sessions: Sequence[Recorded], system: Path) -> Proposal:
    """Return the proposal for the system's noise."""
    path = system / "noise.yaml"
    latest = max(sessions, key=lambda session: (session.date, session.session))
    same = [session for session in sessions if session.build == latest.build]
    source = f"{len(same)} sessions, {same[0].session} to {latest.session}, build {latest.build}"
    notes, entries = [], CommentedSeq()
    for (_, series_id), series in _groups(same).items():
        try:
            entries.append(_flow(noise_entry(series, source)))
        except NoHistoryError as error:
            notes.append(f"{path}: {series_id}: {error}")
    content = CommentedMap()
    content["schema"] = "virtqual-noise/1"
    content["noise"] = entries
    text = _text(content, f"A/A history of {latest.system}; proposed by `virtqual record`.")
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    return Proposal(path, before, text if entries else before, tuple(notes))


def _made_of(sessions: Sequence[Recorded]) -> CommentedMap:
    made_of = CommentedMap()
    made_of["sessions"] = CommentedSeq(session.session for session in sessions)
    made_of["sessions"].fa.set_flow_style()
    made_of["date"] = max(session.date for session in sessions)
    made_of["cpu"] = sessions[0].cpu
    made_of["stack"] = sessions[0].stack
    return made_of


def _flow(data: dict[str, Any]) -> CommentedMap:
    flow = CommentedMap(data)
    flow.fa.set_flow_style()
    return flow


def _text(content: CommentedMap, title: str) -> str:
    yaml = YAML(typ="rt")
    yaml.width = 110
    stream = StringIO()
    yaml.dump(content, stream)
    return f"# {title}\n{stream.getvalue()}"
