"""Which samples one ReFrame run takes, and in which order.

``VIRTQUAL_PAIRS``
    ``FIRST:LAST`` pair numbers to run, both included; default ``0:1``.  ``virtqual qualify`` sets it for each
    round; the plain ``reframe`` command takes the default.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from virtqual.errors import UsageError

SIDE = {"N": "native", "V": "virtual"}


@dataclass(frozen=True)
class Slot:
    """One run's place in the order of runs.

    Attributes
    ----------
    pair
        Pair number from 0.
    side
        ``native`` or ``virtual``.
    """

    pair: int
    side: str

    def __str__(self) -> str:
        return f"{self.pair}{self.side[0].upper()}"


def slot(text: str) -> Slot:
    """Read a slot's short form, e.g. ``1V``.

    Raises
    ------
    UsageError
        It is not of that form.
    """
    match = re.fullmatch(r"(\d+)([NV])", text)
    if not match:
        raise UsageError(f"{text!r} is no sample: a pair number and N or V, such as 0N")
    return Slot(int(match[1]), SIDE[match[2]])


def order(first: int, last: int) -> list[Slot]:
    """Return the slots of pairs ``first`` to ``last`` in the order in which they run.

    Every second pair is reversed, so that a drift of the machine does not favour one side.

    Examples
    --------
    >>> [str(s) for s in order(0, 2)]
    ['0N', '0V', '1V', '1N', '2N', '2V']
    """
    slots = []
    for pair in range(first, last + 1):
        sides = ("native", "virtual") if pair % 2 == 0 else ("virtual", "native")
        slots += [Slot(pair, side) for side in sides]
    return slots


def pairs() -> tuple[int, int]:
    """Return the first and last pair number of this run.

    Raises
    ------
    UsageError
        ``VIRTQUAL_PAIRS`` is not of the form ``FIRST:LAST``.
    """
    text = os.environ.get("VIRTQUAL_PAIRS", "0:1")
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if not match or int(match[1]) > int(match[2]):
        raise UsageError(f"VIRTQUAL_PAIRS={text!r}: expected FIRST:LAST, such as 0:1")
    return int(match[1]), int(match[2])
