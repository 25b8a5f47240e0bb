"""Watch the nodes of both partitions while a session runs: a node that is lost must be named.

One glance decides nothing: a controller that restarts calls every node unknown for some seconds.  A node that
Slurm calls down, drained or failing is lost when it is seen so twice; one that does not answer, or that does
not let go of a job, when it has stayed so for `PATIENCE`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from virtqual.errors import InfrastructureError, VirtqualError
from virtqual.files.wording import list_names, node_sort_key
from virtqual.site.slurm import NodeState, asks_for_reservation, chosen, forgotten, partition_option, states
from virtqual.site.systems import System

_USABLE = {"idle", "allocated", "mixed", "completing", "planned"}
#: Of a reservation, which may be one for maintenance.
_RESERVED = {"maint", "reserved"}
#: What Slurm adds to a state: a larger job is planned on it, it saves power or wakes up, some of its jobs are
#: completing, or it will be booted or switched off when its job has ended.
_MARKS = "-~#+@!"
#: Said by somebody, or decided by Slurm; a node that drains still runs the job that it has.
_DEFINITE = {"down", "drained", "fail", "failing", "error", "perfctrs", "power_down", "powered_down"}
#: Seconds between two glances at the nodes: of a scheduler that others use, too, and of one of our own.
GLANCE, OFTEN = 60.0, 3.0
#: Seconds; Slurm's own controller takes some ten to restart, and to hear from its nodes again.
PATIENCE = 60.0
#: Of a controller that others use, too: a second one takes over after two minutes (SlurmctldTimeout).
SILENCE = 300.0
NOT_LISTED = NodeState("unknown", "Slurm does not list it")


def usable(state: str, *, reserved: bool = False) -> bool:
    """Return whether a node in this state can run jobs.

    Slurm marks those that do not answer by ``*``, and those that are going down by ``%`` and ``^``.  With
    other marks they get jobs.  Those that are kept for maintenance (``$``) or by another reservation run the
    jobs that ask for it.

    Parameters
    ----------
    state
        The node's, as ``sinfo`` prints it.
    reserved
        Whether the jobs ask for a reservation.
    """
    usable = _USABLE | _RESERVED if reserved else _USABLE
    return state.rstrip(_MARKS + "$" if reserved else _MARKS) in usable


def _completing(seen: NodeState) -> bool:
    """Return whether a node that answers has not let go of a job yet."""
    return seen.state.rstrip(_MARKS + "$") == "completing"


@dataclass(frozen=True)
class _Doubt:
    """Why a node is doubted: since when (monotonic seconds), on how many glances, and what was last seen."""

    since: float
    glances: int
    seen: NodeState

    def lost(self, now: float, patience: float) -> str:
        """Return why the node is lost; empty while that is not sure."""
        state, waited = self.seen.state, now - self.since
        if state.rstrip("*" + _MARKS) in _DEFINITE and not state.endswith("*"):
            return f"is {self.seen}" if self.glances >= 2 else ""
        if waited < patience:
            return ""
        if state.startswith("completing"):
            return f"has been completing for {waited:.0f} s: it does not let go of a job"
        if state.endswith("*") or state.startswith("unknown"):
            return f"has not answered Slurm for {waited:.0f} s ({self.seen.state})"
        return f"is {self.seen}"


@dataclass
class Watch:
    """Nodes that could run jobs when the session began and cannot any more.

    Attributes
    ----------
    system
        Whose two partitions are watched.
    interval, patience
        Seconds between two glances, and until a node that does not answer is lost.
    lost
        One sentence a lost node, by node; of Slurm's controller by an empty name.
    jobs
        Returns the jobs whose end is awaited: one that Slurm has forgotten has none.
    short
        One sentence for each partition that had fewer nodes than are stated, and enough, when it began.
    stop
        Set when a partition has fewer usable nodes left than a check may ask for.
    """

    system: System
    interval: float = GLANCE
    patience: float = PATIENCE
    lost: dict[str, str] = field(default_factory=dict)
    jobs: Callable[[], Iterable[str]] = tuple
    short: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    _first: dict[str, set[str]] = field(default_factory=dict)
    _own: set[str] = field(default_factory=set)
    _held: set[str] = field(default_factory=set)
    _doubts: dict[str, _Doubt] = field(default_factory=dict)
    _silent: float | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _asking: threading.RLock = field(default_factory=threading.RLock)

    def begin(self, suffice: int | None = None) -> list[str]:
        """Note who can run jobs now, and return one sentence for each partition that has too few.

        Parameters
        ----------
        suffice
            So many nodes are enough; None: all that a check may ask for.
        """
        lacking = []
        for side in ("native", "virtual"):
            name = partition_option(self.system.partition(side))
            if name is None:
                continue
            try:
                every = states(name)
                now = {node: every[node] for node in chosen(self.system.partition(side), every)}
            except InfrastructureError as error:
                lacking.append(f"partition {name}: {error}; is Slurm up?")
                continue
            self._first[side] = {node for node, seen in now.items() if self._usable(side, seen)}
            wanted = self._wanted(side)
            if len(self._first[side]) < wanted:
                bad = [_described(node, seen) for node, seen in now.items() if not self._usable(side, seen)]
                why = f": {list_names(bad, 5)}" if bad else ""
                if not every:
                    why = "; sinfo knows no node of it"
                elif left_out := sorted(every.keys() - now.keys(), key=node_sort_key):
                    why += f"; the system file leaves out {list_names(left_out, 5)}"
                said = f"partition {name}: {len(self._first[side])} of {wanted} nodes can run jobs{why}"
                (self.short if len(self._first[side]) >= (suffice or wanted) else lacking).append(said)
        return lacking

    def working(self, side: str) -> int:
        """Return how many nodes of a side can run jobs, of as many as may be asked for."""
        return min(len(self._first.get(side, ())) or self._wanted(side), self._wanted(side))

    def nodes(self, side: str) -> list[str]:
        """Return the nodes of a side that could run jobs at the beginning and are not lost, in order."""
        return sorted(self._first.get(side, ()), key=node_sort_key)

    def use(self, side: str, nodes: Iterable[str], *, held: bool = False) -> None:
        """Watch these nodes of a side, and no others; `held` in an allocation, or asked for run by run."""
        with self._asking:
            self._own.add(side)
            (self._held.add if held else self._held.discard)(side)
            others = self._first.get(side, set()).difference(used := set(nodes))
            self._first[side] = used
            for node in others:
                self.lost.pop(node, None)
                self._doubts.pop(node, None)

    def set_aside(self, lost: Iterable[str]) -> None:
        """Go on without lost nodes: they are watched no more."""
        with self._asking:
            for nodes in self._first.values():
                nodes.difference_update(lost)
            for node in lost:
                self.lost.pop(node, None)
                self._doubts.pop(node, None)
            self.stop.clear()

    def _usable(self, side: str, seen: NodeState) -> bool:
        # A node that drains still runs the job that it has.
        if side in self._held and seen.state.rstrip(_MARKS + "$") == "draining":
            return True
        return usable(seen.state, reserved=asks_for_reservation(self.system.partition(side)))

    def _free(self, side: str, seen: NodeState) -> bool:
        """Return whether nothing keeps the next job from a node: one that does not finish a job has hung.

        Among all nodes of a partition there are always some that finish a job of somebody else.
        """
        return self._usable(side, seen) and not (side in self._own and _completing(seen))

    def _wanted(self, side: str) -> int:
        return self.system.native.nodes if side == "native" else self.system.virtual.nodes

    def follow(self) -> threading.Thread:
        """Watch the nodes in the background until :meth:`end`."""
        thread = threading.Thread(target=self._loop, daemon=True)
        thread.start()
        return thread

    def end(self) -> None:
        """Stop watching the nodes."""
        self._ended.set()

    def settle(self) -> None:
        """Ask until no node is doubted: each is well again or lost, or the session is to stop anyway."""
        self.ask()
        while not self.stop.is_set() and (self._doubts.keys() - self.lost.keys() or self._silent is not None):
            time.sleep(self.interval)
            self.ask()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Call no node lost meanwhile: the VMs are being created anew, and that is no loss."""
        with self._asking:
            yield

    def usable_again(self, seconds: float) -> list[str]:
        """Wait until every node can run jobs that could at the beginning and was not lost since.

        Returns
        -------
        list of str
            One sentence for each that cannot after so many seconds.
        """
        with self.paused():
            until = time.monotonic() + seconds
            while lacking := self._unusable():
                if (left := until - time.monotonic()) <= 0:
                    return lacking
                time.sleep(min(self.interval, left))
            self._doubts.clear()
        return []

    @property
    def lost_nodes(self) -> set[str]:
        """Names of the lost nodes, without a lost controller or job."""
        return self.lost.keys() & set().union(*self._first.values())

    def _unusable(self) -> list[str]:
        lacking = []
        try:
            now = self._states()
            for side, before in self._first.items():
                for node in sorted(before - self.lost.keys()):
                    seen = now.get(node, NOT_LISTED)
                    if not self._free(side, seen):
                        lacking.append(f"node {_described(node, seen)}")
        except InfrastructureError as error:
            return [str(error)]
        return lacking

    def ask(self) -> None:
        """Ask Slurm once for the state of each node."""
        with self._asking:
            try:
                now = self._states()
                for side in self._first:
                    self._ask_of(side, now)
            except InfrastructureError as error:
                self._unanswered(str(error))
            else:
                self._silent = None

    def _unanswered(self, why: str) -> None:
        now = time.monotonic()
        self._silent = now if self._silent is None else self._silent
        if now - self._silent >= (self.patience if self.interval < GLANCE else max(self.patience, SILENCE)):
            self.lost[""] = (
                f"Slurm's controller (slurmctld) has not answered for {now - self._silent:.0f} s: {why}"
            )
            self.stop.set()

    def _states(self) -> dict[str, NodeState]:
        """Return the states of the nodes of both partitions, as far as their names are known."""
        names = (partition_option(self.system.partition(side)) for side in self._first)
        return states(*filter(None, names)) if self._first else {}

    def _ask_of(self, side: str, now: Mapping[str, NodeState]) -> None:
        before, clock = self._first[side], time.monotonic()
        for node in before:
            seen = now.get(node, NOT_LISTED)
            if self._free(side, seen):
                self._doubts.pop(node, None)
                continue
            doubt = self._doubts.get(node)
            if doubt is None or _completing(doubt.seen) != _completing(seen):
                doubt = _Doubt(clock, 0, seen)
            self._doubts[node] = doubt = _Doubt(doubt.since, doubt.glances + 1, seen)
            patience = self.patience * (2 if _completing(seen) else 1)
            if why := doubt.lost(clock, patience):
                self.lost[node] = f"node {node} {why}"
        if len(before - self.lost.keys()) < min(self._wanted(side), len(before)):
            self.stop.set()

    def _loop(self) -> None:
        asked, forgotten = time.monotonic(), set[str]()
        while not self._ended.wait(self.interval):
            self.ask()
            # Seldom: a job that ends soon is none to ask for.
            if time.monotonic() - asked >= max(self.patience / 2, 2 * self.interval):
                asked, forgotten = time.monotonic(), self._forgotten(forgotten)

    def _forgotten(self, before: set[str]) -> set[str]:
        """Return the awaited jobs that Slurm does not know; those it did not know before either are lost."""
        try:
            now = forgotten(self.jobs())
        except VirtqualError:
            # The log could not be read just now.
            return before
        for job in now & before:
            self.lost[f"job {job}"] = (
                f"Slurm has forgotten job {job}, whose end was not seen: did its controller lose its state?"
            )
            self.stop.set()
        return now


def _described(node: str, seen: NodeState) -> str:
    silent = " and does not answer" if seen.state.endswith("*") else ""
    return f"{node} is {seen.state.rstrip('*')}{silent}{f' ({seen.reason})' if seen.reason else ''}"
