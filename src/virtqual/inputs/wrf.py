"""WRF's namelist: a copy of the case's own with some values changed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from virtqual.errors import InfrastructureError


def namelist(text: str, values: Mapping[str, int]) -> str:
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
    for name, value in values.items():
        text, count = re.subn(rf"(?im)^(\s*{name}\s*=\s*)[^,\s]+", rf"\g<1>{value}", text)
        if count != 1:
            raise InfrastructureError(
                f"namelist.input has {count} entries {name}: not the case that is known"
            )
    return text
