"""Copies of a program's own input with some values changed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from virtqual.errors import InfrastructureError


def replaced(text: str, values: Mapping[str, int | str], *, file: str, between: str, value: str) -> str:
    r"""Return a text with the value of some entries replaced, each of which must be there once.

    Parameters
    ----------
    text
        One entry a line, its name first.
    values
        New values by name.
    file
        Name of the file in messages.
    between, value
        Patterns of what stands between name and value, and of a value.

    Raises
    ------
    InfrastructureError
        An entry is not there, or is there twice.

    Examples
    --------
    >>> replaced("steps 500\noutput /tmp/x\n", {"output": "out"}, file="f", between=r"\s+", value=r"\S+")
    'steps 500\noutput out\n'
    """
    for name, new in values.items():
        text, count = re.subn(rf"(?im)^(\s*{name}{between}){value}", rf"\g<1>{new}", text)
        if count != 1:
            raise InfrastructureError(f"{file} has {count} entries {name}: not the case that is known")
    return text
