"""Options that several commands have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from virtqual.errors import UsageError
from virtqual.site.waiting import DEFAULT_WAIT_HOURS, MAX_WAIT_HOURS


def _check_hours(hours: float | None) -> float | None:
    if hours is not None and not 0 < hours <= MAX_WAIT_HOURS:
        raise UsageError(f"--wait {hours:g}: name hours, more than 0 and at most {MAX_WAIT_HOURS}")
    return hours


def _check_patterns(option: typer.CallbackParam, patterns: list[str] | None) -> list[str] | None:
    """Refuse what is no regular expression."""
    for pattern in patterns or ():
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(f"{option.opts[-1]} {pattern!r} is no regular expression: {error}") from None
    return patterns


def check_against(name: str | None) -> str | None:
    """Refuse an empty name."""
    if name == "":
        raise UsageError("--against names no session; leave it out to compare with none")
    return name


SESSION_HELP = "session (id, path, 'last', or an example such as example:within)"

NODES_HELP = "use at most so many nodes of each side"

System = Annotated[str, typer.Option(help="system to run on: the name of its system file")]

Stack = Annotated[str, typer.Option(help="software stack (default: the one with the most features)")]

Names = Annotated[
    list[str] | None,
    typer.Option(
        "-n", "--name", metavar="REGEX", help="only checks whose name matches", callback=_check_patterns
    ),
]

Tags = Annotated[
    list[str] | None,
    typer.Option("-t", "--tag", metavar="REGEX", help="only checks with this tag", callback=_check_patterns),
]

Output = Annotated[Path | None, typer.Option("--output", "-o", help="write an HTML file instead")]

WaitHours = Annotated[
    float | None,
    typer.Option(
        "--wait",
        metavar="HOURS",
        help="how long to wait for nodes (default: the system file's wait_hours, else "
        f"{DEFAULT_WAIT_HOURS:g})",
        callback=_check_hours,
    ),
]
