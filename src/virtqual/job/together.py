"""Overlap of the runs of a job's tasks, from the notes of ``together.sh``.

The clocks of two nodes can be seconds apart.  But a task sees the file of another task only after that task
wrote it: in both directions this bounds the difference of their clocks, as in a round trip.  The overlap is
computed for the worst difference within the bounds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from virtqual.job.notes import NotesError, read_note_text

_TIME = r"(\d+\.\d+)"
_MEETING = rf"{_TIME}\n((?:saw \d+ {_TIME}\n)+)"


@dataclass(frozen=True)
class Meeting:
    """The times at which a task wrote its file of a meeting, and first saw the file of each task, by rank."""

    wrote: float
    saw: Mapping[int, float]


@dataclass(frozen=True)
class TaskTimes:
    """Times of a task in seconds, by the clock of its node: meetings, then begin and end of the program."""

    meetings: tuple[Meeting, ...]
    begin: float
    end: float


def read(stage: Path, tasks: int) -> tuple[TaskTimes, ...]:
    """Read the notes of all tasks.

    Raises
    ------
    NotesError
        A note is missing or incomplete.
    """
    times = []
    for rank in range(tasks):
        absence = f"task {rank} did not note when it ran with the others"
        text = read_note_text(stage / f"virtqual.together.{rank}", absence)
        note = re.fullmatch(rf"ready {_MEETING}set {_MEETING}begin {_TIME}\nend {_TIME}\n", text)
        meetings = tuple(
            Meeting(
                float(wrote),
                {int(other): float(time) for other, time in re.findall(rf"saw (\d+) {_TIME}", saw)},
            )
            for wrote, saw, _ in re.findall(rf"^(?:ready|set) {_MEETING}", text, re.M)
        )
        if not note or any(meeting.saw.keys() != set(range(tasks)) for meeting in meetings):
            raise NotesError(absence)
        times.append(TaskTimes(meetings, float(note[7]), float(note[8])))
    return tuple(times)


def compute_overlap(times: Sequence[TaskTimes]) -> float:
    """Return the least share of the longest run in which all tasks ran: 0 (never together) to 1.

    Examples
    --------
    The second clock is 100 s ahead, and files are seen after 0.1 s: both began within 0.1 s of each other.

    >>> first = TaskTimes((Meeting(0.0, {0: 0.0, 1: 0.1}),), begin=0.1, end=10.1)
    >>> second = TaskTimes((Meeting(100.0, {0: 100.1, 1: 100.0}),), begin=100.1, end=110.1)
    >>> round(compute_overlap([first, second]), 2)
    0.98
    """
    first = times[0]
    latest_begin, earliest_end = first.begin, first.end
    for rank, task in enumerate(times[1:], 1):
        # The clock of the task is ahead of the first one's by at least and at most so many seconds.
        meetings = list(zip(first.meetings, task.meetings, strict=True))
        min_ahead = max(own.wrote - firsts.saw[rank] for firsts, own in meetings)
        max_ahead = min(own.saw[0] - firsts.wrote for firsts, own in meetings)
        latest_begin = max(latest_begin, task.begin - min_ahead)
        earliest_end = min(earliest_end, task.end - max_ahead)
    longest = max(task.end - task.begin for task in times)
    return max(0.0, earliest_end - latest_begin) / longest if longest > 0 else 0.0
