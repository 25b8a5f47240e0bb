"""ReFrame, started and followed: it ends when virtqual cannot go on."""

import sys
import threading

import pytest

from virtqual.errors import InfrastructureError, UsageError
from virtqual.harness import process
from virtqual.harness.progress import CaseEvent, ErrorEvent

RUN = CaseEvent(
    kind="ok", check="lammps %problem=lj", partition="vm", side="virtual", pair=0, ended=3, total=10
)


def reframe(*events, then="", code=0):
    """Return a command that reports events as ReFrame does, and ends with an exit code."""
    lines = "".join(f"{event.model_dump_json()}\n" for event in events)
    program = (
        f"import os, sys, time\nos.write(int(os.environ['VIRTQUAL_PROGRESS']), {lines.encode()!r})\n"
        f"print('output')\n{then}\nsys.exit({code})"
    )
    return [sys.executable, "-c", program]


def test_events_and_the_exit_code_arrive_and_the_output_is_kept(tmp_path):
    events, log = [], tmp_path / "log"
    broken = reframe(RUN, then="os.write(int(os.environ['VIRTQUAL_PROGRESS']), b'half a li')", code=3)
    ended = process.run(broken, {}, log, events.append, threading.Event())
    assert (events, ended) == ([RUN], (3, None))
    assert log.read_text() == "output\n"


@pytest.mark.parametrize(
    ("cause", "error", "message"),
    [
        ("selection", UsageError, "why"),
        ("loading", InfrastructureError, "ReFrame did not run: why"),
        ("run", InfrastructureError, "ReFrame gave up: why"),
    ],
)
def test_an_error_that_reframe_reports_is_raised_as_its_kind_of_error(tmp_path, cause, error, message):
    line = reframe(ErrorEvent(cause=cause, message="why"), code=1)
    _, reported = process.run(line, {}, tmp_path / "log", print, threading.Event())
    assert (type(reported.exception), str(reported.exception)) == (error, message)


def test_a_screen_that_cannot_be_written_ends_reframe_too(tmp_path):
    """Else it submits jobs while virtqual cancels them."""

    def show(event):
        raise OSError("No space left on device")

    goes_on = f"time.sleep(60)\nopen({str(tmp_path / 'ended')!r}, 'w')"
    with pytest.raises(OSError, match="No space left on device"):
        process.run(reframe(RUN, then=goes_on), {}, tmp_path / "log", show, threading.Event())
    assert not (tmp_path / "ended").exists()
