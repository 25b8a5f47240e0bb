"""One session as it goes on: what was asked for, who is shown it, and what is known so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from virtqual.harness.process import Event
from virtqual.session.store import Session
from virtqual.site.nodes import Watch
from virtqual.site.systems import System
from virtqual.verdict import SessionVerdict


@dataclass(frozen=True)
class Request:
    """What a person asked for; see ``virtqual qualify --help``."""

    system: str
    hypervisor_class: str = ""
    against: str = ""
    full: bool = False
    names: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    stack: str = ""
    label: str = ""
    max_pairs: int = 18
    pairs: int | None = None
    policy: str = "serial"


class Screen(Protocol):
    """Shows a session to a person while it runs."""

    def begin(self, session: Session, system: System, notes: Sequence[str]) -> None:
        """Say what will be qualified, how it is judged, and what to know."""

    def look_begins(self, number: int, what: str, seconds: float | None) -> None:
        """Say what this look runs and how long that should take (None: nothing is known)."""

    def event(self, event: Event) -> None:
        """Show progress."""

    def look_ends(self) -> None:
        """Close the progress display."""

    def end(self, session: Session, verdict: SessionVerdict | None, directory: Path) -> None:
        """Show the table, the conclusion and where the results are."""


@dataclass
class Qualification:
    """One session as it goes on."""

    request: Request
    screen: Screen
    system: System
    session: Session
    directory: Path
    watch: Watch
    verdict: SessionVerdict | None = None
    refused: dict[str, tuple[str, ...]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    @property
    def lost(self) -> list[str]:
        """Nodes that were lost, in words, where that matters: a large site loses some every day."""
        return list(self.watch.lost.values()) if self.watch.stop.is_set() or self.broken else []
