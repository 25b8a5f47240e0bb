"""Watch the nodes of both partitions while a session runs, and name those that are lost.

A controller that restarts calls every node unknown for some seconds, so a single glance decides nothing. A
node that Slurm calls down, drained or failing is lost after two such glances. A node that does not answer, or
does not release a job, is lost after a time that the system file states (``extras.timeouts``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from virtqual.errors import InfrastructureError, VirtqualError
from virtqual.files.wording import list_names, node_sort_key
from virtqual.site.extras import Timeouts
from virtqual.site.partitions import select_nodes
from virtqual.site.slurm import NodeState, list_node_states, read_job_states, send_heartbeat
from virtqual.site.systems import System
from virtqual.site.waiting import Wait
from virtqual.verdict.pairs import SIDES

_USABLE_STATES = {"idle", "allocated", "mixed", "completing", "planned"}
#: States of reserved nodes; the reservation may be for maintenance.
_RESERVED_STATES = {"maint", "reserved"}
#: Marks on states: a larger job is planned, the node saves power or wakes up, some of its jobs complete, or
#: it will be booted or switched off after its job.
_MARKS = "-~#+@!"
#: States that an operator or Slurm has set; a draining node still runs its job.
_LOST_STATES = {"down", "drained", "fail", "failing", "error", "perfctrs", "power_down", "powered_down"}
#: Time between two glances at the nodes, if others use the scheduler and if they do not.
GLANCE_INTERVAL_S, _OWN_GLANCE_INTERVAL_S = 60.0, 3.0
#: Slurm's own controller takes some ten seconds to restart and to hear from its nodes again.
NODE_TIMEOUT_S = 60.0
#: A site's second controller takes over after two minutes (SlurmctldTimeout).
CONTROLLER_TIMEOUT_S = 300.0
_NOT_LISTED = NodeState("unknown", "Slurm does not list it")


def choose_glance_interval(system: System) -> float:
    """Return the time between two glances at the nodes, s."""
    return _OWN_GLANCE_INTERVAL_S if system.native_extras.own_scheduler else GLANCE_INTERVAL_S


def is_usable(state: str, *, reserved: bool = False) -> bool:
    """Return whether a node in a state of `sinfo` runs new jobs; `reserved` jobs ask for a reservation.

    Slurm marks nodes that do not answer by ``*``, nodes that go down by ``%`` and ``^``, and nodes that are
    kept for maintenance by ``$``.
    """
    if reserved:
        return state.rstrip(_MARKS + "$") in _USABLE_STATES | _RESERVED_STATES
    return state.rstrip(_MARKS) in _USABLE_STATES


def _is_completing(seen: NodeState) -> bool:
    """Return whether a node that answers has not released a job yet."""
    return seen.state.rstrip(_MARKS + "$") == "completing"


@dataclass(frozen=True)
class _Doubt:
    """A node that cannot run jobs: since when (monotonic s), and the last state."""

    since: float
    seen: NodeState

    def explain_loss(self, now: float, timeouts: Timeouts) -> str | None:
        """Return why the node is lost; None while that is not sure."""
        state, waited = self.seen.state, now - self.since
        if state.rstrip(_MARKS) in _LOST_STATES:
            # One glance decides nothing, nor do two at once, of the background and of `settle`.
            return f"is {self.seen}" if waited >= _OWN_GLANCE_INTERVAL_S else None
        if waited < (timeouts.completing if _is_completing(self.seen) else timeouts.answer):
            return None
        if state.startswith("completing"):
            return (
                f"has been completing for {waited:.0f} s: it does not release a job "
                "(extras.timeouts.completing is how long an epilog may take)"
            )
        if state.endswith("*") or state.startswith("unknown"):
            return f"has not answered Slurm for {waited:.0f} s ({self.seen.state})"
        return f"is {self.seen}"


@dataclass
class Watch:
    """The nodes that could run jobs when the session began, and those of them that are lost."""

    system: System
    #: A sentence for each lost node, by name, and for ``slurmctld``, ``job NUMBER`` and the ``watch``.
    lost: dict[str, str] = field(default_factory=dict)
    #: Returns the jobs whose end is awaited, and steps of such jobs.
    jobs: Callable[[], Iterable[str]] = tuple
    #: Returns the allocation that the session holds.
    allocation: Callable[[], str | None] = lambda: None
    #: Shows a sentence about jobs that wait in the queue, if each run is a job.
    say: Callable[[str], None] | None = None
    #: A sentence for each partition that had fewer nodes than the system file states, but enough.
    short: list[str] = field(default_factory=list)
    #: Set when a partition has fewer usable nodes left than a check may ask for.
    stop: threading.Event = field(default_factory=threading.Event)
    _nodes: dict[str, set[str]] = field(default_factory=dict)
    #: By side that the session uses, whether its nodes are held in an allocation.
    _is_held: dict[str, bool] = field(default_factory=dict)
    _doubts: dict[str, _Doubt] = field(default_factory=dict)
    _silent_since: float | None = None
    _wait: Wait | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _asking: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, min_nodes: int | None = None) -> list[str]:
        """Note the nodes that can run jobs, and return a sentence for each partition with too few.

        `min_nodes` nodes are enough, or all that a check may ask for.
        """
        problems = []
        for side in SIDES:
            partition = self.system.partition(side)
            name, stated = partition.slurm_name or partition.name, partition.extras.nodes
            try:
                states = list_node_states(partition.slurm_name)
                selected = select_nodes(partition, states)
            except InfrastructureError as error:
                problems.append(f"partition {name}: {error}; is Slurm up?")
                continue
            usable = {node for node in selected if self._is_usable(side, states[node])}
            self._nodes[side] = usable
            if len(usable) >= stated:
                continue
            unusable = [f"{node} is {states[node]}" for node in states if node in selected - usable]
            reason = f": {list_names(unusable, 5)}" if unusable else ""
            if not states:
                reason = "; sinfo knows no node of it"
            elif left_out := sorted(states.keys() - selected, key=node_sort_key):
                reason += f"; the system file leaves out {list_names(left_out, 5)}"
            sentence = f"partition {name}: {len(usable)} of {stated} nodes can run jobs{reason}"
            (self.short if len(usable) >= (min_nodes or stated) else problems).append(sentence)
        return problems

    def working(self, side: str) -> int:
        """Return the number of nodes of a side that can run jobs, at most the number in the system file."""
        return min(len(self._nodes[side]), self.system.partition(side).extras.nodes)

    def nodes(self, side: str) -> list[str]:
        """Return the nodes of a side that could run jobs at the beginning and are still used, in order."""
        return sorted(self._nodes[side], key=node_sort_key)

    def use(self, side: str, nodes: Iterable[str], *, held: bool = False) -> None:
        """Watch only these nodes of a side, which are `held` in an allocation or asked for run by run."""
        with self._asking:
            self._is_held[side] = held
            used = set(nodes)
            self._forget(self._nodes[side] - used)
            self._nodes[side] = used

    def set_aside(self, lost: Iterable[str]) -> None:
        """Go on without lost nodes."""
        with self._asking:
            for nodes in self._nodes.values():
                nodes.difference_update(lost)
            self._forget(lost)
            self.stop.clear()

    def _forget(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            self.lost.pop(node, None)
            self._doubts.pop(node, None)

    def _is_usable(self, side: str, seen: NodeState) -> bool:
        if self._is_held.get(side) and seen.state.rstrip(_MARKS + "$") == "draining":
            return True
        return is_usable(seen.state, reserved="--reservation" in self.system.partition(side).job_options)

    def _is_free(self, side: str, seen: NodeState) -> bool:
        """Return whether a node takes the next job. A session's own node that completes a job may hang."""
        return self._is_usable(side, seen) and not (side in self._is_held and _is_completing(seen))

    def follow(self) -> threading.Thread:
        """Watch the nodes in the background until :meth:`end`."""
        thread = threading.Thread(target=self._loop, daemon=True)
        thread.start()
        return thread

    def end(self) -> None:
        """Stop watching the nodes."""
        self._ended.set()

    def settle(self) -> None:
        """Ask until each node is usable or lost, or the session is to stop."""
        self.ask()
        while not self.stop.is_set() and (
            self._doubts.keys() - self.lost.keys() or self._silent_since is not None
        ):
            time.sleep(choose_glance_interval(self.system))
            self.ask()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Ask nothing meanwhile: VMs that are created anew are not lost."""
        with self._asking:
            yield

    def wait_until_usable(self, seconds: float) -> list[str]:
        """Wait until all nodes but the lost ones can run jobs, and return a sentence for each that cannot.

        The watch is paused.
        """
        end = time.monotonic() + seconds
        while problems := self._list_unusable():
            remaining = end - time.monotonic()
            if remaining <= 0:
                return problems
            time.sleep(min(choose_glance_interval(self.system), remaining))
        self._doubts.clear()
        return []

    @property
    def lost_nodes(self) -> set[str]:
        """Names of the lost nodes, without a lost controller or job."""
        return self.lost.keys() & set().union(*self._nodes.values())

    def _list_unusable(self) -> list[str]:
        try:
            states = self._read_states()
        except InfrastructureError as error:
            return [str(error)]
        return [
            f"node {node} is {states.get(node, _NOT_LISTED)}"
            for side, nodes in self._nodes.items()
            for node in sorted(nodes - self.lost.keys())
            if not self._is_free(side, states.get(node, _NOT_LISTED))
        ]

    def ask(self) -> None:
        """Ask Slurm once for the state of each node."""
        with self._asking:
            try:
                states = self._read_states()
            except InfrastructureError as error:
                self._note_silence(error)
                return
            self._silent_since = None
            for side in self._nodes:
                self._note_states(side, states)

    def _note_silence(self, error: InfrastructureError) -> None:
        now = time.monotonic()
        if self._silent_since is None:
            self._silent_since = now
        silent = now - self._silent_since
        # A controller of our own has no second one.
        is_own = self.system.native_extras.own_scheduler
        if silent >= (NODE_TIMEOUT_S if is_own else CONTROLLER_TIMEOUT_S):
            self.lost["slurmctld"] = (
                f"Slurm's controller (slurmctld) has not answered for {silent:.0f} s: {error}"
            )
            self.stop.set()

    def _read_states(self) -> dict[str, NodeState]:
        return list_node_states(*(self.system.partition(side).slurm_name for side in self._nodes))

    def _note_states(self, side: str, states: Mapping[str, NodeState]) -> None:
        nodes, now = self._nodes[side], time.monotonic()
        for node in nodes:
            seen = states.get(node, _NOT_LISTED)
            if self._is_free(side, seen):
                self._doubts.pop(node, None)
                continue
            doubt = self._doubts.get(node)
            if doubt is None or _is_completing(doubt.seen) != _is_completing(seen):
                doubt = _Doubt(now, seen)
            self._doubts[node] = doubt = replace(doubt, seen=seen)
            if loss := doubt.explain_loss(now, self.system.partition(side).extras.timeouts):
                self.lost[node] = f"node {node} {loss}"
        if len(nodes - self.lost.keys()) < min(self.system.partition(side).extras.nodes, len(nodes)):
            self.stop.set()

    def _loop(self) -> None:
        try:
            self._follow()
        except Exception as error:
            # Without it lost nodes go unnoticed, and the allocation ends for want of heartbeats.
            self.lost["watch"] = f"the watch of the nodes has ended: {error!r}"
            self.stop.set()

    def _follow(self) -> None:
        interval, last_question, forgotten = choose_glance_interval(self.system), time.monotonic(), set[str]()
        while not self._ended.wait(interval):
            self.ask()
            # Most jobs end before a question about them is due.
            if time.monotonic() - last_question >= max(NODE_TIMEOUT_S / 2, 2 * interval):
                last_question, forgotten = time.monotonic(), self._note_jobs(forgotten)
                if allocation := self.allocation():
                    send_heartbeat(allocation)

    def _note_jobs(self, before: set[str]) -> set[str]:
        """Return the awaited jobs that Slurm does not know; a job that was unknown `before` too is lost."""
        try:
            awaited = {job.partition(".")[0] for job in self.jobs()}
            states = read_job_states(awaited)
        except VirtqualError:
            # The session's log is not readable at the moment, or Slurm does not answer.
            return before
        reasons = [reason for state, reason in states.values() if state == "PENDING"]
        if self.say and reasons:
            self._wait = self._wait or Wait(None, self.say)
            self._wait.note("the nodes of the next run", reasons)
        else:
            self._wait = None
        forgotten = awaited - states.keys()
        for job in forgotten & before:
            self.lost[f"job {job}"] = (
                f"Slurm has forgotten job {job}, whose end was not seen: did its controller lose its state?"
            )
            self.stop.set()
        return forgotten
