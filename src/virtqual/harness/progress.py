"""Messages of the ReFrame that virtqual started: progress and errors, lines of JSON through a pipe."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from virtqual.errors import InfrastructureError, UsageError, VirtqualError
from virtqual.verdict.pairs import Side

#: The environment variable with the file descriptor of the pipe.
PIPE_VARIABLE = "VIRTQUAL_PROGRESS"


class CaseEvent(BaseModel):
    """A test case that began (``run``) or ended (other kinds); `ended` of `total` cases have ended.

    Side, pair and `warm_up` are the place of a run; side and pair are None for other tests. The nodes are
    those that it asks for by name.
    """

    kind: Literal["run", "ok", "fail", "skip"]
    check: str
    partition: str
    side: Side | None = None
    pair: int | None = None
    warm_up: bool = False
    nodes: tuple[str, ...] = ()
    #: Why it failed.
    reason: str = ""
    ended: int
    total: int


class ErrorEvent(BaseModel):
    """An error that ended ReFrame: no case was selected, no check was loaded, or the run was given up."""

    kind: Literal["error"] = "error"
    cause: Literal["selection", "loading", "run"]
    message: str

    @property
    def exception(self) -> VirtqualError:
        """The error to raise in the process that started ReFrame."""
        if self.cause == "selection":
            return UsageError(self.message)
        did = "gave up" if self.cause == "run" else "did not run"
        return InfrastructureError(f"ReFrame {did}: {self.message}")


Event = CaseEvent | ErrorEvent
_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])


def send(event: Event) -> None:
    """Send an event to the process that started this ReFrame, if virtqual did."""
    if descriptor := os.environ.get(PIPE_VARIABLE):
        # The reader may have died; the log has the runs.
        with suppress(OSError):
            os.write(int(descriptor), event.model_dump_json().encode() + b"\n")


def receive(descriptor: int) -> Iterator[Event]:
    """Yield the events of a pipe until all writers have closed it."""
    with open(descriptor, "rb", closefd=False) as lines:
        for line in lines:
            # A writer that was killed leaves the half of a line.
            with suppress(ValidationError):
                yield _EVENT.validate_json(line)
