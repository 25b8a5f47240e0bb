"""Whether the tasks of a job ran at the same time, proven from what ``together.sh`` noted.

The clocks of two nodes may be seconds apart.  But a task sees another's file only after that one wrote it:
both ways together this bounds the difference of their clocks, as the two halves of a round trip do.  What is
concluded from the bounds holds for every difference within them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from virtqual.job.notes import NotesError, text_of

_TIME = r"(\d+\.\d+)"
_MEETING = rf"{_TIME}\n((?:saw \d+ {_TIME}\n)+)"


@dataclass(frozen=True)
class Meeting:
    """The times at which a task wrote its file of a meeting, and first saw the file of each task, by rank."""

    wrote: float
    saw: Mapping[int, float]


@dataclass(frozen=True)
class Times:
    """One task's times, seconds by the clock of its node.

    Attributes
    ----------
    meetings
        The meetings of all tasks before their programs began: each task shows the others a file.
    begin, end
        Begin and end of the program.
    """

    meetings: tuple[Meeting, ...]
    begin: float
    end: float


def read(stage: Path, tasks: int) -> tuple[Times, ...]:
    """Read the notes of all tasks.

    Raises
    ------
    NotesError
        A note is not there, or not whole.
    """
    found = []
    for rank in range(tasks):
        file = stage / f"virtqual.together.{rank}"
        text = text_of(file) if file.is_file() else ""
        whole = re.fullmatch(rf"ready {_MEETING}set {_MEETING}begin {_TIME}\nend {_TIME}\n", text)
        meetings = [
            _meeting(wrote, saw) for wrote, saw, _ in re.findall(rf"^(?:ready|set) {_MEETING}", text, re.M)
        ]
        if not whole or any(meeting.saw.keys() != set(range(tasks)) for meeting in meetings):
            raise NotesError(f"task {rank} did not note when it ran with the others")
        found.append(Times(tuple(meetings), float(whole[7]), float(whole[8])))
    return tuple(found)


def _meeting(wrote: str, saw: str) -> Meeting:
    return Meeting(
        float(wrote), {int(rank): float(time) for rank, time in re.findall(rf"saw (\d+) {_TIME}", saw)}
    )


def overlap(times: Sequence[Times]) -> float:
    """Return the share of the longest run in which all tasks ran, at least: 0 (never together) to 1.

    Examples
    --------
    The second clock is 100 s ahead, and files are seen after 0.1 s: both began within 0.1 s of each other.

    >>> first = Times((Meeting(0.0, {0: 0.0, 1: 0.1}),), begin=0.1, end=10.1)
    >>> second = Times((Meeting(100.0, {0: 100.1, 1: 100.0}),), begin=100.1, end=110.1)
    >>> round(overlap([first, second]), 2)
    0.98
    """
    first = times[0]
    latest_begin, earliest_end = first.begin, first.end
    for rank, task in enumerate(times[1:], 1):
        # Its clock is ahead of the first one's by something between these two.
        both = list(zip(first.meetings, task.meetings, strict=True))
        least = max(its.wrote - firsts.saw[rank] for firsts, its in both)
        most = min(its.saw[0] - firsts.wrote for firsts, its in both)
        latest_begin = max(latest_begin, task.begin - least)
        earliest_end = min(earliest_end, task.end - most)
    longest = max(task.end - task.begin for task in times)
    return max(0.0, earliest_end - latest_begin) / longest if longest > 0 else 0.0
