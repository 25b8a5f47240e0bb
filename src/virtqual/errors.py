"""The errors that virtqual reports to people, with their exit codes (``docs/exit-codes.md``)."""

from __future__ import annotations

#: The exit code of a command that a person, or the scheduler of its own job, ended.
INTERRUPTED = 130


class VirtqualError(Exception):
    """An error whose message says what is wrong, where, and what to do."""

    exit_code = 5


class UsageError(VirtqualError):
    """The command line, or a file that a person wrote, is wrong."""

    exit_code = 2


class RefusedError(VirtqualError):
    """The comparison would not be valid."""

    exit_code = 4


class InfrastructureError(VirtqualError):
    """A node, Slurm, a file or a program is missing or broken."""

    exit_code = 5


class DamagedError(InfrastructureError):
    """A line of a record is not as it was written; `place` is its file and number."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place}: the line is damaged ({why}); docs/records.md says how to keep the others")


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of a command that an error ends."""
    return error.exit_code if isinstance(error, VirtqualError) else InfrastructureError.exit_code
