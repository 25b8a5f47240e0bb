"""What `virtqual judge` and `virtqual pair` share: percentages on the command line, and verdicts as lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

from virtqual.errors import UsageError
from virtqual.report.lines import SessionLine, VerdictLine
from virtqual.verdict import SessionVerdict
from virtqual.verdict.notation import read_budget


def parse_percent(text: str) -> float:
    """Return the fraction that ``5%`` states; raise `UsageError` for what is not a budget or margin."""
    try:
        return read_budget(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


def print_lines(sessions: Iterable[tuple[str, SessionVerdict, Sequence[str]]]) -> None:
    """Print the JSON lines of sessions: the name, the verdict and the reasons of each."""
    try:
        for name, answer, reasons in sessions:
            for verdict in answer.verdicts:
                print(VerdictLine(session=name, **dict(verdict)).model_dump_json(by_alias=True))
            line = SessionLine(
                session=name, outcome=answer.outcome, slow_runs=answer.slow_runs, reasons=[*reasons]
            )
            print(line.model_dump_json(by_alias=True))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has ended: the exit code is the same.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
