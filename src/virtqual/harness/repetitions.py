"""How often a run starts its program: so often that it lasts long enough to be measured.

The warm-up of each side says how long the program takes.  What an earlier session has measured is measured
again as often, and so is what an earlier round of this session has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from virtqual.session.session import Session

#: The most starts of a run.  Each costs a launch, which takes longer than a program of less than 80 ms does.
#: The median of 25 has a quarter of the noise of one.
MOST = 25
#: Of a job's time limit all repetitions may take so much: a slow run must not be ended as a broken one.
SHARE_OF_LIMIT = 0.5


class Aim(NamedTuple):
    """How long the program should run in each run.

    Attributes
    ----------
    least
        At least so long on the faster side, in all repetitions together, s.
    slower
        At most so many times that on the slower side, which goes before.
    """

    least: float
    slower: float


#: By scale.  Emulated nodes may be many times slower than native ones, production's VMs are not.
AIMS = {"small": Aim(2, 15), "standard": Aim(20, 3)}


class Took(NamedTuple):
    """What one start took in a side's warm-up, s.

    Attributes
    ----------
    program
        From the begin to the end of its first task, as its node sees it.
    whole
        With the scheduler's launch.
    """

    program: float
    whole: float


def aim(scale: str, least: float | None = None) -> Aim:
    """Return what is aimed at: by the scale, or the least time that the system file states."""
    return AIMS[scale] if least is None else AIMS[scale]._replace(least=least)


def number(sides: Sequence[Took], wanted: Aim, limit: float) -> int:
    """Return how often each run of either side starts the program.

    Parameters
    ----------
    sides
        The warm-up of each side.
    wanted
        How long the program should run.
    limit
        Time limit of the job, s.

    Examples
    --------
    Natively 0.3 s, in a VM 1 s and once 8 s, for 2 s at least and 30 s at most:

    >>> number([Took(0.3, 0.4), Took(1.0, 1.5)], Aim(2, 15), 600)
    7
    >>> number([Took(0.3, 0.4), Took(8.0, 9.0)], Aim(2, 15), 600)
    3
    """
    if not sides:
        return 1
    most = [
        wanted.least * wanted.slower / max(side.program for side in sides),
        SHARE_OF_LIMIT * limit / max(side.whole for side in sides),
        MOST,
    ]
    enough = math.ceil(wanted.least / min(side.program for side in sides))
    return max(1, min(enough, *map(int, most)))


#: By stack and case, where this process has learnt it from a session.
_known: dict[tuple[str, str], int] = {}


def of(session: Session) -> dict[str, int]:
    """Return by case how often the runs of a session started its program."""
    return {run.check: run.repetitions for run in session.runs}


def take_over(session: Session) -> None:
    """Have this process's runs repeat as a session's stack does, in its earlier rounds and session."""
    for case, count in {**of(session), **session.repetitions}.items():
        _known[session.stack["name"], case] = count


def known(stack: str, case: str) -> int | None:
    """Return how often the runs of a case must start its program; None where its warm-ups decide."""
    return _known.get((stack, case))
