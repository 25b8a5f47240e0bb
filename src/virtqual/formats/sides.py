"""Which runs of a file are the reference's and which the candidate's."""

from __future__ import annotations

from collections.abc import Sequence

from virtqual.errors import UsageError
from virtqual.files.wording import list_names
from virtqual.formats.columns import SIDE_NAMES
from virtqual.formats.found import Found, FoundRun
from virtqual.verdict.pairs import Side

_SHOWN = 12


def assign_files(reference: Found, candidate: Found) -> list[FoundRun]:
    """Return the runs of two files or directories, each of them one side."""
    sides: tuple[tuple[Side, Found], ...] = (("native", reference), ("virtual", candidate))
    for side, found in sides:
        for run in found.runs:
            run.side = side
    return [run for _, found in sides for run in found.runs]


def assign_names(file: str, found: Found, reference: str, candidate: str) -> tuple[list[FoundRun], str, str]:
    """Return the runs of two names in a file, the label that has the names, and a note on what was chosen.

    Runs with other names are left out.

    Raises
    ------
    UsageError
        A name is not there or not unique, or the file does not have exactly two.
    """
    if bool(reference) != bool(candidate):
        raise UsageError(
            f"{file}: --reference and --candidate belong together: names of two sides in the file\n"
            f"{_list_all(found)}"
        )
    if reference:
        label, chosen = _find_label(file, found, reference, candidate)
        note = ""
    else:
        label, chosen = _guess_label(file, found)
        note = f"{chosen[0]!r} is taken for the reference and {chosen[1]!r} for the candidate"
        if all(name.lower() in SIDE_NAMES for name in chosen):
            note = ""
    sides: dict[str, Side] = {chosen[0]: "native", chosen[1]: "virtual"}
    runs = [run for run in found.runs if run.labels.get(label) in sides]
    for run in runs:
        run.side = sides[run.labels[label]]
    return runs, label, note


def _names(found: Found, label: str) -> list[str]:
    return list(dict.fromkeys(run.labels[label] for run in found.runs if run.labels.get(label)))


def _find_label(file: str, found: Found, reference: str, candidate: str) -> tuple[str, tuple[str, str]]:
    """Return the label in which both names are found, each exactly or as the only one that contains it."""
    for label in found.sides:
        matches = [_match(name, _names(found, label)) for name in (reference, candidate)]
        if all(len(match) == 1 for match in matches) and matches[0] != matches[1]:
            return label, (matches[0][0], matches[1][0])
    for option, name in (("--reference", reference), ("--candidate", candidate)):
        hits = [hit for label in found.sides for hit in _match(name, _names(found, label))]
        if len(hits) != 1:
            problem = f"is in {len(hits)} names" if hits else "is not there"
            raise UsageError(f"{file}: {option}: {name!r} {problem}\n{_list_all(found)}")
    raise UsageError(
        f"{file}: --reference {reference!r} and --candidate {candidate!r} are not two names of one kind\n"
        f"{_list_all(found)}"
    )


def _match(name: str, names: Sequence[str]) -> list[str]:
    return [name] if name in names else [known for known in names if name in known]


def _guess_label(file: str, found: Found) -> tuple[str, tuple[str, str]]:
    """Return the label that has exactly two names, known ones of sides first."""
    for label in found.sides:
        names = _names(found, label)
        if len(names) == 2:
            sides = [SIDE_NAMES.get(name.lower()) for name in names]
            return label, (names[1], names[0]) if sides == ["virtual", "native"] else (names[0], names[1])
    most = max((_names(found, label) for label in found.sides), key=len, default=[])
    if len(most) < 2:
        name = f" ({most[0]})" if most else ""
        raise UsageError(
            f"{file}: {found.described}, of one side only{name}: name the files or directories of both "
            "sides, --reference PATH --candidate PATH"
        )
    raise UsageError(
        f"{file}: {found.described} with more than two sides: choose two by --reference NAME --candidate "
        "NAME\n"
        f"{_list_all(found)}"
    )


def _list_all(found: Found) -> str:
    lines = [
        f"  {label}: {list_names(names, _SHOWN)}" for label in found.sides if (names := _names(found, label))
    ]
    return "\n".join(["it has:", *lines])
