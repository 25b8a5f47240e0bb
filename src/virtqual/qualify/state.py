"""The state of one session while it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from virtqual.harness.progress import CaseEvent
from virtqual.session.log import Log
from virtqual.session.session import Head, Request, Session
from virtqual.site import held
from virtqual.site.held import Rotation
from virtqual.site.nodes import Watch
from virtqual.site.systems import System


class Screen(Protocol):
    """Shows a session to a person while it runs."""

    def begin(self, head: Head, notes: Sequence[str]) -> None:
        """Say what will be qualified, how it is judged, and what to know."""

    def note(self, text: str) -> None:
        """Say something that a person should know at once."""

    def round_begins(self, number: int, what: str, seconds: float | None) -> None:
        """Say what this round runs and how long that should take (None: nothing is known)."""

    def event(self, event: CaseEvent) -> None:
        """Show progress."""

    def round_ends(self) -> None:
        """Close the progress display."""

    def end(self, session: Session, directory: str) -> None:
        """Show the table, the conclusion and where the results are."""


@dataclass
class Qualification:
    """One session as it goes on.

    Attributes
    ----------
    looks
        The numbers of pairs after which a decision is tried.
    lock
        File descriptor that keeps other sessions away.
    broken
        Failures of the infrastructure besides those in the log, in words.
    node_lost
        Whether something in `broken` is a lost node.
    held
        Job ids of the allocations that the session holds, by partition.
    rotated
        The nodes over which runs rotate, by partition; none if they do not.
    nodes
        How many nodes of each side the session began with.
    """

    request: Request
    screen: Screen
    system: System
    log: Log
    head: Head
    earlier: Session | None
    looks: tuple[int, ...]
    watch: Watch
    lock: int
    broken: list[str] = field(default_factory=list)
    node_lost: bool = False
    not_run: list[str] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)
    rotated: dict[str, list[str]] = field(default_factory=dict)
    nodes: int = 0

    def __post_init__(self) -> None:
        self.nodes = self.nodes or self.stated

    @property
    def stated(self) -> int:
        """How many nodes of each side the system file states."""
        return min(self.system.native.nodes, self.system.virtual.nodes)

    def rotation(self, nodes: int) -> Rotation:
        """Return among how many places the runs of a case that takes so many nodes rotate."""
        return held.rotate(self.rotated, self.stated, nodes)

    @property
    def has(self) -> tuple[set[str], int]:
        """The features of the session's stack, and how many nodes each side had when it began."""
        features = {f for program in self.head.stack["programs"] for f in program["features"]}
        return features, self.nodes
