"""The samples that one ReFrame run takes, and their order.

``VIRTQUAL_PAIRS``
    ``FIRST:LAST`` turns to run, both included: numbers of pairs, if a session uses one node of a side at a
    time.  Default ``0:3``, since a decision needs four pairs.  With ``warm-up,`` before them a warm-up
    precedes them, as it does pair 0.  ``FIRST:LAST:ORDER`` names the side that runs first in each turn, by N
    or V, such as ``4:6:VNV``.  ``virtqual qualify`` sets it for each round.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from virtqual.errors import UsageError
from virtqual.files.wording import pluralize
from virtqual.site.held import Rotation
from virtqual.verdict.alternation import is_reversed as is_reversed  # a name that other scripts use
from virtqual.verdict.alternation import list_standard_order
from virtqual.verdict.pairs import SIDES

SIDE_OF_LETTER = {side[0].upper(): side for side in SIDES}
#: The begin of the short form of a slot before the first pair, such as ``warm-up-N``.
WARM_UP_PREFIX = "warm-up-"
ONE_PLACE = Rotation()


@dataclass(frozen=True)
class Slot:
    """One run's place in the order of runs: the number of its pair from 0, and its side.

    A warm-up runs before the pairs and is no sample: the first run of a case on a node reads files and makes
    caches, and would make its side look slow.  Its `pair` is the number of its place.
    """

    pair: int
    side: str
    warm_up: bool = False

    def __str__(self) -> str:
        number = f"{WARM_UP_PREFIX}{self.pair or ''}" if self.warm_up else self.pair
        return f"{number}{self.side[0].upper()}"


def parse_slot(text: str) -> Slot:
    """Read a slot's short form, e.g. ``1V``, ``warm-up-V`` or, on the fourth node, ``warm-up-3V``.

    Raises
    ------
    UsageError
        It is not of that form.
    """
    match = re.fullmatch(rf"({WARM_UP_PREFIX})?(\d*)([NV])", text)
    if not match or not (match[1] or match[2]):
        raise UsageError(f"{text!r} is no sample: a pair number (or {WARM_UP_PREFIX}) and N or V, such as 0N")
    return Slot(int(match[2] or 0), SIDE_OF_LETTER[match[3]], bool(match[1]))


def order_slots(
    first: int,
    last: int,
    warm_up: bool = False,
    order: str = "",
    rotation: Rotation = ONE_PLACE,
    case: str = "",
) -> list[Slot]:
    """Return the slots of turns ``first`` to ``last`` in the order in which they run.

    A turn is a pair on each place.  `order` names the side that runs first in each turn, by N or V; by
    default it is the standard order.  A warm-up run on every place of each side precedes turn 0, and other
    turns if `warm_up` is set, because nodes have been booted since.

    If runs rotate, the other pairs are reversed for about half of the cases: of two cases with the same pairs
    reversed one node of a pair would wait while the other runs both.

    Examples
    --------
    >>> [str(s) for s in order_slots(0, 2)]
    ['warm-up-N', 'warm-up-V', '0N', '0V', '1V', '1N', '2N', '2V']
    >>> [str(s) for s in order_slots(1, 1, warm_up=True)]
    ['warm-up-N', 'warm-up-V', '1V', '1N']
    >>> [str(s) for s in order_slots(4, 5, order="VN")]
    ['4V', '4N', '5N', '5V']

    Two places, of which one runs native first in each turn, and the same turn of another case:

    >>> [str(s) for s in order_slots(1, 1, rotation=Rotation(2, 2))]
    ['2V', '2N', '3N', '3V']
    >>> [str(s) for s in order_slots(1, 1, rotation=Rotation(2, 2), case="lammps %problem=lj")]
    ['2N', '2V', '3V', '3N']

    Two places that are left of three:

    >>> [str(s) for s in order_slots(1, 1, rotation=Rotation(2, 3))]
    ['3V', '3N', '4N', '4V']
    """
    places = range(rotation.places)
    slots = []
    if warm_up or first == 0:
        slots += [Slot(place, side, warm_up=True) for place in places for side in SIDES]
    # Any number will do that is the same in each run of ReFrame.
    offset = sum(case.encode()) if rotation.places > 1 else 0
    turns = enumerate(order or list_standard_order(first, last), first)
    for (turn, letter), place in product(turns, places):
        sides = SIDES[::-1] if ((letter == "V") + place + offset) % 2 else SIDES
        slots += [Slot(turn * rotation.width + place, side) for side in sides]
    return slots


def find_previous(slot: Slot, slots: Sequence[Slot], rotation: Rotation) -> list[Slot]:
    """Return the slots whose runs must have ended before the run of a slot begins.

    Runs of one place follow each other, and so do those of one VM.  A place's first pair waits for the
    warm-ups of all places, since they decide together how often a program is repeated.  `slots` has all slots
    that run, in their order.

    Examples
    --------
    >>> def show(text, places):
    ...     rotation = Rotation(places, places)
    ...     slots = order_slots(0, 3, rotation=rotation)
    ...     return [str(s) for s in find_previous(parse_slot(text), slots, rotation)]
    >>> show("0N", 1), show("1V", 1), show("3N", 2), show("1V", 2)
    (['warm-up-V'], ['0V'], ['1N', '0V'], ['warm-up-1V', 'warm-up-V'])
    >>> show("2V", 2)
    ['0V', '1N']
    """
    earlier = slots[: slots.index(slot)]
    turn, place = rotation.divided(slot.pair)
    previous = [other for other in earlier if rotation.divided(other.pair)[1] == place][-1:]
    if previous and previous[0].warm_up and not slot.warm_up:
        last_of_place = {other.pair: other for other in slots if other.warm_up}
        return previous + [s for number, s in last_of_place.items() if number != previous[0].pair]
    if previous and previous[0].pair != slot.pair and rotation.places > 1:
        # The VM has moved on from the next place: its pair there must not have a run between its own two.
        vm_pair = turn - 1, (place + 1) % rotation.places
        previous += [s for s in earlier if not s.warm_up and rotation.divided(s.pair) == vm_pair][-1:]
    return previous


def choose_nodes(slot: Slot, places: Sequence[Sequence[str]], rotation: Rotation) -> Sequence[str]:
    """Return the nodes of a run among those of each place of its side: VMs move on by one in each turn.

    Every native node meets every VM, so that a slow host is told from a slow hypervisor.

    Examples
    --------
    >>> places, rotation = [["a"], ["b"], ["c"]], Rotation(3, 3)
    >>> slots = map(parse_slot, ("0N", "0V", "4N", "4V", "warm-up-2V"))
    >>> [choose_nodes(slot, places, rotation)[0] for slot in slots]
    ['a', 'a', 'b', 'c', 'c']
    """
    turn, place = rotation.divided(slot.pair)
    return places[(place + turn * (slot.side == "virtual")) % len(places)]


def format_pairs(first: int, last: int, warm_up: bool = False, order: str = "") -> str:
    """Return the value of ``VIRTQUAL_PAIRS`` by which a run takes these turns."""
    return f"{'warm-up,' if warm_up else ''}{first}:{last}{order and f':{order}'}"


def parse_pairs() -> tuple[int, int, bool, str]:
    """Return the first and last turn, whether a warm-up precedes them in any case, and the order if stated.

    Raises
    ------
    UsageError
        ``VIRTQUAL_PAIRS`` is not of its form.
    """
    text = os.environ.get("VIRTQUAL_PAIRS", "4")
    if re.fullmatch(r"[1-9]\d*", text):
        return 0, int(text) - 1, False, ""
    match = re.fullmatch(r"(warm-up,)?(\d+):(\d+)(?::([NV]+))?", text)
    if not match or int(match[2]) > int(match[3]):
        raise UsageError(f"VIRTQUAL_PAIRS={text!r}: state how many, such as 6, or which, such as warm-up,4:7")
    first, last, order = int(match[2]), int(match[3]), match[4] or ""
    if order and len(order) != last - first + 1:
        raise UsageError(
            f"VIRTQUAL_PAIRS={text!r}: has {len(order)} letters for {pluralize(last - first + 1, 'pair')}: "
            "state N or V for each"
        )
    return first, last, bool(match[1]), order
