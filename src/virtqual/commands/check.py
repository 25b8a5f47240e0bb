"""`virtqual check`: are sessions as they were written, and do their conclusions follow from their runs?"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import track
from rich.text import Text

from virtqual import paths
from virtqual.errors import RefusedError
from virtqual.files.wording import pluralize
from virtqual.qualify.checking import check_session, find_foreign_files
from virtqual.report.console import verbatim
from virtqual.session.store import NoSessionError, find, ids


def command(
    sessions: Annotated[
        list[str] | None,
        typer.Argument(help="sessions (id, path, 'last' or example:NAME); without any: all, state and site"),
    ] = None,
) -> None:
    """Check logs, judge the runs again, and compare with what is recorded.

    The exit code is 4 if a log is damaged or cut, a conclusion does not follow
    from its runs, or a document differs from the log. It is also 4 if other users
    own files of the state or site directory, or can write to them. It is 5
    without any session. Else it is 0.
    """
    if sessions:
        paths.check_owners()
    say, state = verbatim(), paths.sessions()
    directories = [find(name, state) for name in sessions or ()] or [state / name for name in ids(state)]
    problems = [] if sessions else list(find_foreign_files())
    if not directories:
        _print_problems(problems)
        raise NoSessionError(state)
    judged_otherwise = unfinished = 0
    quiet = not say.is_terminal
    for directory in track(directories, "checking", console=say, transient=True, disable=quiet):
        checked = check_session(directory)
        problems += checked.problems
        judged_otherwise += checked.is_judged_otherwise
        unfinished += checked.is_unfinished
        for note in checked.notes:
            say.print(Text(note, style="yellow"), soft_wrap=True)
    _print_problems(problems)
    answer = f"{pluralize(len(problems), 'problem')} found" if problems else "as they were written"
    if judged_otherwise:
        answer += f"; {judged_otherwise} judged otherwise by other code or references"
    if unfinished:
        answer += f"; {unfinished} without a conclusion"
    say.print(f"{pluralize(len(directories), 'session')} checked: {answer}", soft_wrap=True)
    raise typer.Exit(RefusedError.exit_code if problems else 0)


def _print_problems(problems: list[str]) -> None:
    for problem in problems:
        verbatim().print(Text(problem, style="red"), soft_wrap=True)
