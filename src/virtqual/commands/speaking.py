"""How every command tells people what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from virtqual.errors import UsageError, VirtqualError

_complain = Console(highlight=False, soft_wrap=True, stderr=True)


@contextmanager
def speaking() -> Iterator[None]:
    """Turn an error that people have to know into one message and its exit code."""
    try:
        yield
    except VirtqualError as error:
        _complain.print(f"virtqual: {error}", style="red", markup=False)
        raise typer.Exit(error.exit_code) from None
    except ValueError as error:
        # Reviewed data with a mistake names file, line and key itself.
        _complain.print(f"virtqual: {error}", style="red", markup=False)
        raise typer.Exit(UsageError.exit_code) from None
