"""`ci/guard`: what a script has started ends with the script, however that ends."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from virtqual import paths

# A child that takes its time to end, one that does not end when asked, one in a session of its own, and one
# in namespaces, whose children end with the `unshare` that made them.
SCRIPT = """
set -euo pipefail
VIRTQUAL_ROOT={root} VCLUSTER_DIR={directory}
. {root}/ci/guard
bash -c 'trap "sleep 0.5; echo ended > {directory}/orderly; exit" TERM; while :; do sleep 0.1; done' &
bash -c 'trap "" TERM; exec sleep 3600' &
setsid bash -c 'sleep 3600 & sleep 3600' &
unshare --user --map-root-user --pid --fork --kill-child=KILL bash -c 'sleep 3600 & wait' &
sleep 0.5
touch {directory}/started
{last}
"""


def list_started(mark: bytes) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes() and (process / "cmdline").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.fixture
def start(tmp_path):
    def start(last):
        text = SCRIPT.format(root=paths.root(), directory=tmp_path, last=last)
        # Two seconds are enough for an orderly end here.
        env = {**os.environ, "GUARD_PATIENCE_S": "2", "GUARDED_BY_TEST": str(tmp_path)}
        process = subprocess.Popen(["bash", "-c", text], env=env, start_new_session=True)
        while not (tmp_path / "started").exists():
            assert process.poll() is None
            time.sleep(0.05)
        return process

    return start


def wait_until_none_is_left(tmp_path) -> list[str]:
    mark = f"GUARDED_BY_TEST={tmp_path}".encode()
    for _ in range(150):
        if not (left := list_started(mark)):
            break
        time.sleep(0.1)
    return left


@pytest.mark.parametrize(
    ("last", "ends", "code"),
    [
        ("sleep 3600", signal.SIGKILL, -signal.SIGKILL),
        ("sleep 3600", signal.SIGTERM, 128 + signal.SIGTERM),
        ("exit 3", None, 3),
    ],
    ids=["killed", "terminated", "ended"],
)
def test_nothing_that_a_script_started_outlives_it(start, tmp_path, last, ends, code):
    process = start(last)
    if ends is not None:
        assert len(list_started(f"GUARDED_BY_TEST={tmp_path}".encode())) >= 6
        process.send_signal(ends)
    assert process.wait(timeout=30) in (code, -signal.SIGTERM)
    assert wait_until_none_is_left(tmp_path) == []
    assert (tmp_path / "orderly").read_text() == "ended\n"


def test_a_script_that_was_asked_to_end_waits_for_what_it_started(start, tmp_path):
    process = start("sleep 3600")
    process.terminate()
    process.wait(timeout=30)
    assert (tmp_path / "orderly").exists()


def test_an_installation_of_packages_is_not_cut_off(start, tmp_path):
    """dpkg that is killed leaves packages which nothing can be installed beside."""
    apt = tmp_path / "apt-get"
    apt.write_text(f"#!/bin/sh\nsleep 4\necho done > {tmp_path}/installed\n", encoding="utf-8")
    apt.chmod(0o755)
    process = start(f"{apt} & wait")
    process.kill()
    assert wait_until_none_is_left(tmp_path) == []
    assert (tmp_path / "installed").exists()


def test_what_others_started_is_left_alone(start, tmp_path):
    other = subprocess.Popen(["sleep", "3600"])
    try:
        process = start("exit 0")
        process.wait(timeout=30)
        assert wait_until_none_is_left(tmp_path) == []
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
