"""Which side runs first in each pair.  An order has a letter for each pair: N or V, for native or virtual."""

from __future__ import annotations

from collections.abc import Iterable

from virtqual.verdict.labels import NATIVE_AND_VIRTUAL, Labels


def is_reversed(turn: int) -> bool:
    """Return whether the pair of a turn begins with its virtual run in the standard order.

    The sequence of Rudin and Shapiro with every other pair reversed: a load of any period hardly meets one
    side more often than the other (docs/decision-statistics.md, The order of runs).
    """
    return ((turn & turn >> 1).bit_count() + turn) % 2 == 1


def list_standard_order(first: int, last: int) -> str:
    """Return the standard order of turns `first` to `last`, both included.

    Examples
    --------
    >>> list_standard_order(0, 17)
    'NVNNNVVVNVNNVNNNNV'
    """
    return "".join("NV"[is_reversed(turn)] for turn in range(first, last + 1))


def choose_order(planned: str, done: Iterable[str], count: int) -> str:
    """Return the order of `count` more pairs, by which all pairs have the orders that were planned.

    `done` has the orders of the pairs that count.  What they lack comes in the order of the plan: if no pair
    was lost, this is the rest of the plan.  If too many began with one side, all others begin with the other.

    Examples
    --------
    The reversed pair of four was lost; three reversed pairs of eight were; none was:

    >>> choose_order("NVNN", "NNN", 1), choose_order("NVNNNVVV", "NNNNV", 3), choose_order("NVNN", "NV", 2)
    ('V', 'VVV', 'NN')
    """
    lacking = [*planned]
    for letter in done:
        if letter in lacking:
            lacking.remove(letter)
    # More are lacking than are added if pairs count of which neither side ran first.
    return "".join(lacking[len(lacking) - count :])


def balance_order(first: int, count: int, done: str, least: int) -> str:
    """Return the order of `count` pairs from number `first` on, which follow pairs that began as `done` says.

    It is the standard order of their numbers, but that each side begins at least `least` of all pairs. Exact
    numbers of both would shift the sequence in time, and a periodic load would meet one side more often.

    Examples
    --------
    >>> balance_order(4, 1, "NNN", 1), balance_order(5, 4, "NNNN", 2), balance_order(4, 4, "NVNN", 2)
    ('V', 'VVVN', 'NVVV')
    """
    letters = [*list_standard_order(first, first + count - 1)]
    for rare, other in ("NV", "VN"):
        for index in reversed(range(count)):
            if done.count(rare) + letters.count(rare) < least and letters[index] == other:
                letters[index] = rare
    return "".join(letters)


def describe_order(first: int, order: str, labels: Labels = NATIVE_AND_VIRTUAL) -> str:
    """Return pairs from number `first` on, and the side that runs first in each.

    Examples
    --------
    >>> describe_order(5, "VVN"), describe_order(4, "V"), describe_order(2, "NN")
    ('pairs 5 to 7, virtual first in 5 and 6', 'pair 4, virtual first', 'pairs 2 and 3, native first')
    """
    last = first + len(order) - 1
    if first == last:
        pairs = f"pair {first}"
    else:
        pairs = f"pairs {first} {'and' if last == first + 1 else 'to'} {last}"
    *others, number = [str(first + index) for index, letter in enumerate(order) if letter == "V"] or [""]
    if not number:
        return f"{pairs}, {labels.reference} first"
    if len(others) == last - first:
        return f"{pairs}, {labels.candidate} first"
    return f"{pairs}, {labels.candidate} first in {', '.join(others)}{' and ' * bool(others)}{number}"
