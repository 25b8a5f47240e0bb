"""The messages of all commands about errors, and files that a person names."""

from __future__ import annotations

import datetime
import errno
import os
import re
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from pydantic import ValidationError

from virtqual import paths
from virtqual.errors import INTERRUPTED, UsageError, VirtqualError, exit_code_of
from virtqual.files.records import write_file
from virtqual.files.wording import describe_value, suggest
from virtqual.report.console import verbatim
from virtqual.session.verified import read_digests

if TYPE_CHECKING:
    from virtqual.session.session import Session

#: Why a file cannot be written, other than by a mistake in the program.
_UNWRITABLE = {
    errno.EACCES,
    errno.EDQUOT,
    errno.EEXIST,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}
#: A shell's exit code of a command that a closed pipe (SIGPIPE) ended.
PIPE_CLOSED_CODE = 141
_errors = verbatim(soft_wrap=True, stderr=True)


@contextmanager
def report_errors() -> Iterator[None]:
    """Turn an error into one message and its exit code: never 1, which says that a build is over budget."""
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except KeyboardInterrupt:
        _print_error("virtqual: interrupted before anything was measured", "yellow")
        raise typer.Exit(INTERRUPTED) from None
    except (Exception, SystemExit) as error:
        # rich ends the program if a pipe is closed, other writers do not.
        cause = error.__context__ if isinstance(error, SystemExit) else error
        if isinstance(cause, BrokenPipeError):
            # The reader of the output, such as `head`, has enough: nothing is wrong.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(PIPE_CLOSED_CODE) from None
        if hasattr(error, "format_message"):
            # Typer's own, about the command line.
            _put_plainly(error)
            raise
        _print_error(f"virtqual: {_describe_error(error)}")
        raise typer.Exit(exit_code_of(error)) from None


def _describe_error(error: BaseException) -> str:
    """Return the message about an error; the traceback of one that virtqual does not know is in a file."""
    if isinstance(error, VirtqualError):
        return str(error)
    if isinstance(error, OSError) and (reason := _describe_unwritable(error)):
        return reason
    message = " ".join(f"{type(error).__name__}: {error}".split())
    return f"ended by an error that virtqual does not know, {message}; {_save_traceback()}"


def _put_plainly(error: Any) -> None:
    """Put an error about the command line into plain words, with what was written."""
    if isinstance(error.__cause__, ValidationError):
        error.message = describe_value(error.__cause__.errors()[0])
    if error.message.startswith("No such command") and hasattr(error.ctx.command, "commands"):
        name = error.message.split("'")[1]
        names = error.ctx.command.commands
        error.message = f"{error.ctx.info_name} has no command {name!r}: {suggest(name, names)}"
    extra = re.match(r"Got unexpected extra argument\(s\) \((\S+)", error.message)
    if extra and any("--system" in parameter.opts for parameter in error.ctx.command.params):
        error.message += f"; a system is named by --system {extra[1].rstrip(')')}"
    if extra and any("--reference" in parameter.opts for parameter in error.ctx.command.params):
        error.message += "; two files or directories are named by --reference PATH --candidate PATH"


def _print_error(text: str, style: str = "red") -> None:
    """Print a message: one line in a file, and lines of whole words in a terminal, paths unbroken."""
    if _errors.is_terminal:
        text = textwrap.fill(text, _errors.width, break_long_words=False, break_on_hyphens=False)
    _errors.print(text, style=style)


def print_doubts(session: Session, directory: Path) -> None:
    """Print the doubts about the conclusion of a session that this installation did not draw."""
    if paths.is_of_state(directory) and session.is_complete and session.log_digest in read_digests():
        return
    from virtqual.qualify.checking import check_conclusion, find_doubts

    is_of_state = paths.is_of_state(directory)
    doubts = find_doubts(session, directory) if is_of_state else check_conclusion(session, directory).doubts
    for doubt in doubts:
        _print_error(f"virtqual: {doubt}")


def write_output(text: str, file: Path, directory: int | None = None) -> None:
    """Write a file that a person named, and print its name; raise `UsageError` if it cannot be written.

    See `write_file` for `directory`.
    """
    try:
        write_file(text, file, directory)
    except OSError as error:
        raise UsageError(f"-o {file}: {error.strerror}") from error
    verbatim(soft_wrap=True).print(str(file))


def _describe_unwritable(error: OSError) -> str | None:
    """Return what is wrong with the directory of state or site; None if the error is about something else."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    file = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
    for variable, place in (("VIRTQUAL_STATE", paths.state()), ("VIRTQUAL_SITE", paths.find_site())):
        is_inside = file is not None and (file.is_relative_to(place) or place.is_relative_to(file))
        if (is_inside and error.errno in _UNWRITABLE) or (file is None and is_full):
            return (
                f"{file or 'a file'} cannot be written: {error.strerror}. virtqual writes to {place}; "
                f"make room there or make it writable, or name another directory by {variable}"
            )
    return None


def _save_traceback() -> str:
    """Write the traceback to a file, and return a sentence that names the file."""
    name = f"{datetime.datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}.log"
    # The disk that is full, or not ours to write, may be what failed.
    for directory in (paths.state() / "errors", Path(tempfile.gettempdir())):
        file = directory / name
        try:
            directory.mkdir(parents=True, exist_ok=True)
            write_file(traceback.format_exc(), file)
        except OSError:
            continue
        return f"the traceback is in {file}"
    return "its traceback could not be written anywhere"
