"""Waiting for nodes: for what, why, since when and until when, in words."""

from __future__ import annotations

import datetime
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from virtqual.errors import InfrastructureError, VirtqualError

#: The meaning of Slurm's reasons, by their first letters, and what to do (docs/queues.md).
_MEANINGS = {
    "Priority": "other jobs come first",
    "Resources": "it is the next job, and begins when its nodes are free",
    "ReqNodeNotAvail, Reserved for maintenance": "its time limit reaches into a maintenance; a shorter "
    "--time lets it begin before",
    "ReqNodeNotAvail": "its nodes are down, drained or reserved; `sinfo -R` and `scontrol show reservation` "
    "say which",
    "Nodes required for job": "its nodes are down, drained or reserved; `sinfo -R` says which",
    "Reservation": "its reservation has not begun, or is there no more; `scontrol show reservation` says it",
    "QOSMaxWall": "the QOS allows no job of this --time",
    "AssocMaxWall": "the account allows no job of this --time",
    "QOS": "a limit of the QOS; end other jobs, ask for fewer nodes, or by another QOS",
    "Assoc": "a limit of the account; end other jobs, ask for fewer nodes, or by another account",
    "MaxNodePerAccount": "a limit of the account; end other jobs, or ask for fewer nodes",
    "PartitionNodeLimit": "the partition allows no job of so many nodes; ask for fewer",
    "PartitionTimeLimit": "the partition allows no job of this --time",
    "Partition": "the partition takes no jobs at present",
    "Licenses": "a licence that it asks for is in use; one for a shared machine does not belong in "
    "session_access",
    "BadConstraints": "no nodes have what its options ask for",
    "Invalid": "Slurm does not know its account or QOS any more",
    "JobHeldAdmin": "an administrator holds it back",
    "JobHeldUser": "it is held back; `scontrol release` lets it go",
}
#: The longest is a year.
DEFAULT_WAIT_HOURS, MAX_WAIT_HOURS = 24.0, 8784
#: A job of free nodes begins within this time, and nothing is said about it.
SHORT_WAIT_S = 3.0


def explain_reason(reason: str) -> str:
    """Return one of Slurm's reasons with its meaning, if it is known.

    Examples
    --------
    >>> explain_reason("QOSMaxNodePerUserLimit")
    'QOSMaxNodePerUserLimit: a limit of the QOS; end other jobs, ask for fewer nodes, or by another QOS'
    >>> explain_reason("FrontEndDown")
    'FrontEndDown'
    """
    # Newer versions of Slurm print no blanks in a reason.
    reason = reason.replace("_", " ")
    meaning = next((text for start, text in _MEANINGS.items() if reason.startswith(start)), None)
    return f"{reason}: {meaning}" if meaning else reason


def format_time(moment: datetime.datetime, now: datetime.datetime) -> str:
    """Return a time of this day, or of a later day, in words.

    Examples
    --------
    >>> now = datetime.datetime(2026, 11, 25, 10, 14)
    >>> [format_time(now + datetime.timedelta(hours=hours), now) for hours in (1, 24, 48)]
    ['11:14', '10:14 tomorrow', '10:14 on 2026-11-27']
    """
    days = (moment.date() - now.date()).days
    day = f" on {moment:%Y-%m-%d}" if days > 1 else " tomorrow" if days else ""
    return f"{moment:%H:%M}{day}"


#: The remedy of a wait that was too short.
WAIT_LONGER = "--wait HOURS waits longer (docs/queues.md)"


class Wait:
    """A wait for nodes, of which each change of Slurm's reasons is said once; `hours` is None without end."""

    def __init__(self, hours: float | None, say: Callable[[str], None]) -> None:
        begin = datetime.datetime.now()
        self.hours = hours
        self._say, self._last_note = say, ""
        self._deadline = math.inf
        self._span = f"since {format_time(begin, begin)}"
        if hours is not None:
            self._deadline = time.monotonic() + 3600 * hours
            self._span += f", gives up at {format_time(begin + datetime.timedelta(hours=hours), begin)}"

    @property
    def seconds(self) -> int:
        """Whole seconds until the wait is given up, at least 1."""
        return max(math.ceil(self._deadline - time.monotonic()), 1)

    @property
    def is_over(self) -> bool:
        """It has lasted as long as it may."""
        return time.monotonic() > self._deadline

    def note(self, nodes: str, reasons: Iterable[str]) -> None:
        """Say for which nodes the wait is, and why; raise `InfrastructureError` if it has lasted too long."""
        # Slurm needs a moment to find out why a job waits.
        explained = "; ".join(sorted({explain_reason(reason) for reason in reasons} - {"None", ""}))
        slurm_says = f" Slurm says {explained}." if explained else ""
        if self.is_over:
            raise InfrastructureError(
                f"{nodes}: not given within {self.hours:g} h.{slurm_says} {WAIT_LONGER}"
            )
        note = f"waiting for {nodes} {self._span}.{slurm_says}"
        if note != self._last_note:
            self._last_note = note
            self._say(note)

    @contextmanager
    def following(self, nodes: str, ask: Callable[[], Iterable[str]], interval: float) -> Iterator[None]:
        """Note the reasons that `ask` returns every `interval` s while the block lasts; none is no wait."""
        ended = threading.Event()

        def follow() -> None:
            seconds = SHORT_WAIT_S
            while not ended.wait(seconds):
                seconds = interval
                with suppress(VirtqualError):
                    if reasons := list(ask()):
                        self.note(nodes, reasons)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
