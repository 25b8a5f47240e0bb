"""``virtqual/job/yardstick.py``: the time of a fixed piece of work on each of a run's nodes."""

from __future__ import annotations

import statistics

from virtqual.programs.text import OutputError, every, positive, printable

NAME = "yardstick"
# The work; times of another are not compared with it.
WORK = "recurrence-1"


def parse(text: str, tasks: int) -> float:
    """Read what the tasks of one run printed.

    Parameters
    ----------
    text
        Their output together.
    tasks
        How many there were.

    Returns
    -------
    float
        Median time of the work in seconds, of the slowest task.

    Raises
    ------
    OutputError
        Another number of tasks says its times, or a median is not that of its times.
    """
    printable(NAME, text)
    lines = every(rf"^yardstick {WORK}((?: \d+\.\d{{6}}){{16}}) s$", text)
    if len(lines) != tasks or text.count("yardstick") != tasks:
        raise OutputError(NAME, f"{tasks} tasks ran, {len(lines)} say how long their work took")
    medians = []
    for line in lines:
        median, *times = (positive(NAME, word, "a time") for word in line[1].split())
        if median != statistics.median(times):
            raise OutputError(NAME, f"{median:g} s is not the median of the times beside it")
        medians.append(median)
    return max(medians)
