"""Watch the nodes of both partitions while a session runs: a node that dies must be named, at once."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field

from virtqual.files import execute
from virtqual.site.systems import Partition, System

_USABLE = {"idle", "allocated", "mixed", "completing", "planned", "reserved"}


def partition_option(partition: Partition) -> str | None:
    """Return the name of Slurm's partition from the options that jobs ask with."""
    words = [word for option in partition.access for word in option.replace("=", " ").split()]
    for option, value in itertools.pairwise(words):
        if option in ("-p", "--partition"):
            return value
    return None


def states(partition: str) -> dict[str, tuple[str, str]]:
    """Return state and reason of every node of a Slurm partition; empty where Slurm cannot be asked."""
    text = execute.said(["sinfo", "--noheader", "--Node", "-p", partition, "-o", "%N|%T|%E"], seconds=20)
    rows = (line.split("|", 2) for line in text.splitlines() if line.count("|") >= 2)
    return {node: (state, "" if reason == "none" else reason) for node, state, reason in rows}


def usable(state: str) -> bool:
    """Return whether a node in this state can run jobs.

    Slurm marks those that do not answer by ``*``.  All others get jobs: those that a larger job is planned on
    (``-``), that save power (``~``), and that wake up (``#``).
    """
    return state.rstrip("-~#") in _USABLE


@dataclass
class Watch:
    """Nodes that could run jobs when the session began and cannot any more.

    Attributes
    ----------
    system
        Whose two partitions are watched.
    lost
        One sentence a lost node, by node.
    stop
        Set when a partition has fewer usable nodes left than a check may ask for.
    """

    system: System
    interval: float = 3.0
    lost: dict[str, str] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    _first: dict[str, set[str]] = field(default_factory=dict)
    _ended: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> list[str]:
        """Note who can run jobs now, and return one sentence for each partition that has too few."""
        lacking = []
        for side in ("native", "virtual"):
            name = partition_option(self.system.partition(side))
            if name is None:
                continue
            now = states(name)
            self._first[side] = {node for node, (state, _) in now.items() if usable(state)}
            wanted = self.system.native.nodes if side == "native" else self.system.virtual.nodes
            if len(self._first[side]) < wanted:
                bad = [f"{n} is {s}{f' ({r})' if r else ''}" for n, (s, r) in now.items() if not usable(s)]
                more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
                why = (
                    f": {', '.join(bad[:5])}{more}"
                    if bad
                    else "; is Slurm up? (sinfo answers nothing for it)"
                )
                lacking.append(
                    f"partition {name}: {len(self._first[side])} of {wanted} nodes can run jobs{why}"
                )
        return lacking

    def follow(self) -> threading.Thread:
        """Start looking in the background until :meth:`end`."""
        thread = threading.Thread(target=self._loop, daemon=True)
        thread.start()
        return thread

    def end(self) -> None:
        """Stop looking."""
        self._ended.set()

    def look(self) -> None:
        """Look once."""
        for side, before in self._first.items():
            name = partition_option(self.system.partition(side))
            assert name is not None
            now = states(name)
            if not now:
                continue
            for node in before:
                state, reason = now.get(node, ("gone", ""))
                if not usable(state):
                    self.lost[node] = f"node {node} is {state.rstrip('*')}{f': {reason}' if reason else ''}"
            wanted = self.system.native.nodes if side == "native" else self.system.virtual.nodes
            if len(before - self.lost.keys()) < min(wanted, len(before)):
                self.stop.set()

    def _loop(self) -> None:
        while not self._ended.wait(self.interval):
            self.look()
