"""The errors that virtqual reports to people, each with the exit code it ends in.

Exit codes are those of ``docs/exit-codes.md``: 0 within budget or a baseline recorded, 1 over budget,
2 usage, 3 undecided, 4 refused by preflight or a validity gate, 5 infrastructure.
"""

from __future__ import annotations

#: The exit code of a command that a person, or the scheduler of its own job, ended.
INTERRUPTED = 130


class VirtqualError(Exception):
    """Something a person has to know, in one message: what is wrong, where, and what to do."""

    exit_code = 5


class UsageError(VirtqualError):
    """The command or a file a person wrote is wrong."""

    exit_code = 2


class RefusedError(VirtqualError):
    """What was asked must not be judged: the comparison would not be honest."""

    exit_code = 4


class InfrastructureError(VirtqualError):
    """A node, Slurm, a file or a program is missing or broken."""

    exit_code = 5


class DamagedError(InfrastructureError):
    """A record is not as it was written.

    Parameters
    ----------
    place
        The file, and the number of the line from 1.
    why
        The damage.
    """

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place}: the line is damaged ({why}); `virtqual repair` copies what is intact")
