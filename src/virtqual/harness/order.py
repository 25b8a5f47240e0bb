"""Which samples one ReFrame run takes, and in which order.

``VIRTQUAL_PAIRS``
    ``FIRST:LAST`` pair numbers to run, both included; default ``0:3``, since a decision needs four pairs.
    With ``warm-up,`` before them a warm-up precedes them, as it does pair 0.
    ``virtqual qualify`` sets it for each round; the plain ``reframe`` command takes the default.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from virtqual.errors import UsageError

SIDE = {"N": "native", "V": "virtual"}

#: How the short form of a slot before the first pair begins, such as ``warm-up-N``.
WARM_UP = "warm-up-"


@dataclass(frozen=True)
class Slot:
    """One run's place in the order of runs.

    Attributes
    ----------
    pair
        Pair number from 0.
    side
        ``native`` or ``virtual``.
    warm_up
        Whether it runs before the pairs and is no sample: the first run of a case on a node reads files and
        makes caches, and would make its side look slow.  Its pair number is 0.
    """

    pair: int
    side: str
    warm_up: bool = False

    def __str__(self) -> str:
        return f"{WARM_UP if self.warm_up else self.pair}{self.side[0].upper()}"


def slot(text: str) -> Slot:
    """Read a slot's short form, e.g. ``1V`` or ``warm-up-V``.

    Raises
    ------
    UsageError
        It is not of that form.
    """
    match = re.fullmatch(rf"(\d+|{WARM_UP})([NV])", text)
    if not match:
        raise UsageError(f"{text!r} is no sample: a pair number (or {WARM_UP}) and N or V, such as 0N")
    warm_up = match[1] == WARM_UP
    return Slot(0 if warm_up else int(match[1]), SIDE[match[2]], warm_up)


def order(first: int, last: int, warm_up: bool = False) -> list[Slot]:
    """Return the slots of pairs ``first`` to ``last`` in the order in which they run.

    Every second pair is reversed, so that a drift of the machine does not favour one side.  A warm-up run on
    each side precedes pair 0; a later round of a session begins warm, but where `warm_up` says that nodes
    have been booted since.

    Examples
    --------
    >>> [str(s) for s in order(0, 2)]
    ['warm-up-N', 'warm-up-V', '0N', '0V', '1V', '1N', '2N', '2V']
    >>> [str(s) for s in order(1, 1)]
    ['1V', '1N']
    >>> [str(s) for s in order(1, 1, warm_up=True)]
    ['warm-up-N', 'warm-up-V', '1V', '1N']
    """
    warm_up = warm_up or first == 0
    slots = [Slot(0, side, warm_up=True) for side in ("native", "virtual")] if warm_up else []
    for pair in range(first, last + 1):
        sides = ("native", "virtual") if pair % 2 == 0 else ("virtual", "native")
        slots += [Slot(pair, side) for side in sides]
    return slots


def asked_for(first: int, last: int, warm_up: bool = False) -> str:
    """Return the value of ``VIRTQUAL_PAIRS`` by which a run takes these pairs."""
    return f"{'warm-up,' if warm_up else ''}{first}:{last}"


def pairs() -> tuple[int, int, bool]:
    """Return the first and last pair number of this run, and whether a warm-up precedes them in any case.

    Raises
    ------
    UsageError
        ``VIRTQUAL_PAIRS`` is not of its form.
    """
    text = os.environ.get("VIRTQUAL_PAIRS", "0:3")
    match = re.fullmatch(r"(warm-up,)?(\d+):(\d+)", text)
    if not match or int(match[2]) > int(match[3]):
        raise UsageError(f"VIRTQUAL_PAIRS={text!r}: expected FIRST:LAST, such as 0:3 or warm-up,4:7")
    return int(match[2]), int(match[3]), bool(match[1])
