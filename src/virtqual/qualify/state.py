"""The state of one session while it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

from virtqual.harness.catalogue import Entry
from virtqual.report.terminal import Terminal
from virtqual.session.log import Log
from virtqual.session.session import Head, Request, Session
from virtqual.site import held
from virtqual.site.held import Rotation
from virtqual.site.nodes import Watch
from virtqual.site.systems import System


@dataclass
class Qualification:
    """One session as it goes on."""

    request: Request
    screen: Terminal
    system: System
    log: Log
    head: Head
    earlier: Session | None
    #: All checks that ReFrame has for the system.
    entries: tuple[Entry, ...]
    #: The numbers of pairs after which a decision is tried.
    looks: tuple[int, ...]
    #: How many pairs the first round has.
    first_pairs: int
    watch: Watch
    #: File descriptor that keeps other sessions away.
    lock: int
    #: Failures of the infrastructure besides those in the log, in words.
    broken: list[str] = field(default_factory=list)
    #: Something in `broken` is a lost node.
    node_lost: bool = False
    #: Ids of the components of the allocation that the session holds, by partition, native first.
    held: dict[str, str] = field(default_factory=dict)
    #: The nodes over which runs rotate, by partition; none if they do not.
    rotated: dict[str, list[str]] = field(default_factory=dict)
    #: How many nodes of each side the session began with.
    nodes: int = 0

    def rotation(self, nodes: int) -> Rotation:
        """Return among how many places the runs of a case that takes so many nodes rotate."""
        return held.rotate(self.rotated, self.system.nodes, nodes)

    @property
    def capacity(self) -> tuple[set[str], int]:
        """The features of the session's stack, and how many nodes each side had when it began."""
        features = {f for program in self.head.stack["programs"] for f in program["features"]}
        return features, self.nodes
