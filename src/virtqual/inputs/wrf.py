"""WRF's namelist: a copy of the case's own with some values changed."""

from __future__ import annotations

from collections.abc import Mapping

from virtqual.inputs.edit import replaced


def hours(number: int, step: int) -> dict[str, int | str]:
    """Return the entries of a namelist that run some hours from the start, in steps of some seconds.

    The history is written at the start and at the end: norms of its fields say whether the run was right.
    """
    period = {"run_days": 0, "run_hours": number, "run_minutes": 0, "run_seconds": 0}
    return {**period, "time_step": step, "history_interval": 60 * number, "restart": ".false."}


def steps(number: int, step: int) -> dict[str, int | str]:
    """Return the entries of a namelist that run some steps of some seconds from the start.

    The history is written at the start and never again: runs of other lengths write as much.
    """
    return {**hours(0, step), "run_seconds": number * step, "history_interval": number * step // 60 + 60}


def namelist(text: str, values: Mapping[str, int | str]) -> str:
    """Return a namelist with the first value of some entries replaced (that of the outermost domain).

    Parameters
    ----------
    text
        ``namelist.input`` as the case brings it.
    values
        New values by name of entry.

    Raises
    ------
    InfrastructureError
        The case's namelist does not have an entry, or has it twice.

    Examples
    --------
    >>> namelist(" run_days = 5,\\n run_hours = 0,\\n", {"run_days": 0, "run_hours": 2})
    ' run_days = 0,\\n run_hours = 2,\\n'
    """
    return replaced(text, values, file="namelist.input", between=r"\s*=\s*", value=r"[^,\s]+")
