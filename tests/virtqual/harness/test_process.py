"""ReFrame, started and followed: it does not go on when virtqual cannot."""

import sys
import threading
import time
from pathlib import Path

import pytest

from virtqual.harness import process


def test_a_disk_that_is_full_ends_reframe_too(monkeypatch):
    """It went on submitting jobs while virtqual cancelled them."""
    began, started = time.monotonic(), []
    popen = process.subprocess.Popen
    monkeypatch.setattr(
        process.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[0]
    )
    line = [sys.executable, "-c", "import time; print('x' * 100000, flush=True); time.sleep(60)"]
    with pytest.raises(OSError, match="No space left on device"):
        process.run(line, {}, Path("/dev/full"), lambda event: None, threading.Event())
    assert started[0].poll() is not None
    assert time.monotonic() - began < 30
