"""Whatever a person has, as series by session: one file, or two files or directories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from virtqual.errors import UsageError
from virtqual.files.wording import suggest
from virtqual.formats import google_benchmark, recognise, sides
from virtqual.formats.found import Found, FoundRun, Wanted
from virtqual.formats.series import make_series
from virtqual.formats.turns import check_turns, refuse_paired
from virtqual.session.measured import FileSeries, read_series_of, read_table_text
from virtqual.verdict.labels import NATIVE_AND_VIRTUAL, REFERENCE_AND_CANDIDATE, Labels
from virtqual.verdict.pairs import Side


@dataclass(frozen=True)
class Loaded:
    """Series by session, and what is to be said about them."""

    #: The file or files, for messages.
    name: str
    #: The format in words.
    kind: str
    sessions: Mapping[str, list[FileSeries]]
    labels: Labels = NATIVE_AND_VIRTUAL
    notes: Sequence[str] = ()
    facts: Mapping[Side, Mapping[str, str]] = field(default_factory=dict)
    #: The commands of both sides, if the file has them.
    commands: tuple[str, str] | None = None
    #: The program runs all of one side, then all of the other.
    are_blocks: bool = False


def load_file(
    file: Path,
    names: tuple[str, str],
    wanted: Wanted,
    *,
    reader: str = "",
    paired: bool = False,
    report_progress: Callable[[int], None] = lambda rows: None,
) -> Loaded:
    """Return the series of a file with both sides; `names` are those of the sides, empty to guess.

    Raises
    ------
    UsageError
        The file is of no known format, or has other sides, with what it has.
    """
    if file.is_dir():
        raise UsageError(
            f"{file}: no table of pairs (a directory): give those of both sides, --reference DIR "
            "--candidate DIR"
        )
    text = read_table_text(file)
    found = recognise.read_text_of(str(file), text, replace(wanted, sides=names), reader)
    if found is None:
        if any(names):
            raise UsageError(
                f"{file}: is a file of pairs, in which the column side says which is which: leave out "
                "--reference "
                "and --candidate"
            )
        sessions = read_series_of(str(file), text, report_progress)
        for series in sessions.values():
            for one in series:
                check_turns(one, paired=paired)
        if wanted.metric:
            sessions = _choose_series(str(file), sessions, wanted.metric)
        labels = next(iter(sessions.values()))[0].labels
        return Loaded(str(file), "a file of pairs", sessions, labels)
    return _load_sides(file, found, names, wanted, paired=paired)


def _load_sides(file: Path, found: Found, names: tuple[str, str], wanted: Wanted, *, paired: bool) -> Loaded:
    """Return the series of a file of another program, which has both sides by name."""
    runs, label, note = sides.assign_names(str(file), found, *names)
    notes = [*found.notes, *([note] if note else [])]
    reference, candidate = (
        next(run.labels[label] for run in runs if run.side == side) for side in ("native", "virtual")
    )
    labels = REFERENCE_AND_CANDIDATE
    if (reference, candidate) == NATIVE_AND_VIRTUAL:
        labels = NATIVE_AND_VIRTUAL
    facts: dict[Side, dict[str, str]] = {
        "native": {label: reference, **found.facts},
        "virtual": {label: candidate, **found.facts},
    }
    commands = (reference, candidate) if label == "command" else None
    return _make(
        str(file),
        file.name,
        found.kind,
        runs,
        label,
        wanted,
        found,
        labels,
        notes,
        facts,
        commands,
        paired=paired,
    )


def load_two(
    reference: Path, candidate: Path, wanted: Wanted, *, reader: str = "", paired: bool = False
) -> Loaded:
    """Return the series of two files or directories, each with the runs of one side."""
    for path in (reference, candidate):
        if not path.exists():
            raise UsageError(f"{path}: there is no such file or directory")
    if reference.samefile(candidate):
        raise UsageError(f"{reference} and {candidate} are the same: name another path for one of the sides")
    both = [recognise.read_path(path, wanted, reader) for path in (reference, candidate)]
    if both[0].kind != both[1].kind:
        raise UsageError(
            f"{reference} {both[0].described}, and {candidate} {both[1].described}: both have to be the same"
        )
    runs = sides.assign_files(*both)
    name = f"{reference} and {candidate}"
    notes = [note for found in both for note in found.notes]
    facts: dict[Side, dict[str, str]] = {
        "native": {"from": str(reference), **both[0].facts},
        "virtual": {"from": str(candidate), **both[1].facts},
    }
    commands, found = _find_commands(both), both[0]
    if found.kind == google_benchmark.KIND:
        # A file of each side is of one process.
        why = "each file is of one process, which ran all repetitions of its side"
        found = replace(found, are_blocks=True, why_not_in_turns=why)
    title = f"{reference.name} and {candidate.name}"
    return _make(
        name,
        title,
        both[0].kind,
        runs,
        "",
        wanted,
        found,
        REFERENCE_AND_CANDIDATE,
        notes,
        facts,
        commands,
        paired=paired,
    )


def _find_commands(both: Sequence[Found]) -> tuple[str, str] | None:
    """Return the command of each side, if both have exactly one."""
    commands = [{run.labels.get("command", "") for run in found.runs} for found in both]
    if any(len(names) != 1 or "" in names for names in commands):
        return None
    return commands[0].pop(), commands[1].pop()


def _make(
    file: str,
    title: str,
    kind: str,
    runs: Sequence[FoundRun],
    label: str,
    wanted: Wanted,
    found: Found,
    labels: Labels,
    notes: Sequence[str],
    facts: Mapping[Side, Mapping[str, str]],
    commands: tuple[str, str] | None,
    *,
    paired: bool,
) -> Loaded:
    if paired and found.are_blocks:
        raise refuse_paired(found.why_not_in_turns)
    if wanted.metric and not found.has_chosen_metric:
        names = dict.fromkeys(run.metric for run in runs)
        runs = [run for run in runs if run.metric == _find_metric(file, names, wanted.metric)]
    by_session: dict[str, list[FoundRun]] = defaultdict(list)
    for run in runs:
        by_session[run.labels.get("session") or title].append(run)
    sessions, all_notes = {}, list(notes)
    for session, own in by_session.items():
        series, more = make_series(
            file, own, label, wanted, found.why_not_in_turns, labels, paired=paired or found.are_pairs
        )
        sessions[session] = series
        all_notes += more
    return Loaded(file, kind, sessions, labels, all_notes, facts, commands, found.are_blocks)


def _choose_series(
    file: str, sessions: Mapping[str, list[FileSeries]], name: str
) -> dict[str, list[FileSeries]]:
    """Return the series of one metric, without the sessions that do not have it."""
    name = _find_metric(file, {one.metric.name for series in sessions.values() for one in series}, name)
    chosen = {
        session: [one for one in series if one.metric.name == name] for session, series in sessions.items()
    }
    return {session: series for session, series in chosen.items() if series}


def _find_metric(file: str, names: Iterable[str], name: str) -> str:
    """Return the name of the metric that --metric asks for; UsageError if the file does not have it."""
    if name not in names:
        raise UsageError(f"{file}: has no metric {name!r} (--metric): {suggest(name, names)}")
    return name
