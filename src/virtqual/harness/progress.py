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
    """A test case that began or ended.

    Attributes
    ----------
    kind
        ``run`` if the case began, else its result.
    check
        Name of the check and its parameters, without the sample.
    partition
        Where the case runs.
    side, pair, warm_up
        The place of a run in the order of runs; None for a case that is no run on one side.
    ended, total
        How many cases have ended, and how many there are.
    """

    kind: Literal["run", "ok", "fail", "skip", "abort"]
    check: str
    partition: str
    side: Side | None = None
    pair: int | None = None
    warm_up: bool = False
    ended: int
    total: int


class ErrorEvent(BaseModel):
    """An error that ended ReFrame.

    Attributes
    ----------
    cause
        ``selection`` if no case was selected; ``run`` if the error ended the run of the cases.
    message
        In one line.
    """

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


Event = Annotated[CaseEvent | ErrorEvent, Field(discriminator="kind")]
_EVENT: TypeAdapter[CaseEvent | ErrorEvent] = TypeAdapter(Event)


def send(event: CaseEvent | ErrorEvent) -> None:
    """Send an event to the process that started this ReFrame, if virtqual did."""
    if descriptor := os.environ.get(PIPE_VARIABLE):
        # The reader may have died: the log has all that counts.
        with suppress(OSError):
            os.write(int(descriptor), event.model_dump_json().encode() + b"\n")


def receive(descriptor: int) -> Iterator[CaseEvent | ErrorEvent]:
    """Yield the events of a pipe until all writers have closed it."""
    with open(descriptor, "rb", closefd=False) as lines:
        for line in lines:
            # A writer that was killed in a line leaves the half of it.
            with suppress(ValidationError):
                yield _EVENT.validate_json(line)
