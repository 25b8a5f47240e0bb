"""What the command says of an error, and how it ends: 1 is for builds that are over budget alone."""

import datetime
import os
import subprocess
import sys
from io import StringIO

import pytest
from rich.console import Console

from calling import call
from virtqual import qualify
from virtqual.commands import messages
from virtqual.errors import RefusedError
from virtqual.qualify.opening import _make_directory
from virtqual.verdict.metric import Metrics

ON = ["qualify", "--system", "x"]


@pytest.fixture
def failing(tmp_path, monkeypatch):
    """Return how to run the command while the main job fails with an error."""
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path / "state"))

    def run(error):
        def fail(*_):
            raise error

        monkeypatch.setattr(qualify, "qualify", fail)
        return call(*ON)

    return run


@pytest.mark.parametrize(
    "error",
    [
        OSError(5, "Input/output error"),
        SystemExit(0),
        KeyError("x"),
        OverflowError("math range error"),
        # An error of ours is no mistake of a person.
        ValueError("operands could not be broadcast together"),
        RuntimeError(),
    ],
)
def test_what_nobody_foresaw_is_no_verdict(failing, tmp_path, error):
    done = failing(error)
    assert done.exit_code == 5
    (log,) = (tmp_path / "state/errors").iterdir()
    assert f"ended by an error that virtqual does not know, {type(error).__name__}" in done.output
    assert f"the traceback is in {log}" in done.output
    assert done.output.count("\n") == 1
    assert "raise error" in log.read_text()


def test_the_traceback_finds_a_place_where_the_state_has_none(failing, tmp_path, monkeypatch):
    (tmp_path / "state").mkdir()
    (tmp_path / "state/errors").write_text("no directory")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert f"the traceback is in {tmp_path}/2" in failing(KeyError("x")).output
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "state/errors"))
    assert "its traceback could not be written anywhere" in failing(KeyError("x")).output


@pytest.mark.parametrize("state", ["file/below", "whole/sessions-is-a-file"])
def test_a_state_directory_that_cannot_be_written_is_named(failing, tmp_path, monkeypatch, state):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path / state))
    if state.startswith("whole"):
        (tmp_path / state).mkdir(parents=True)
        (tmp_path / state / "sessions").write_text("")
    with pytest.raises(OSError, match=r"exists|Not a directory") as error:
        (tmp_path / state / "sessions/20260101-000000-x").mkdir(parents=True)
    done = failing(error.value)
    said = " ".join(done.output.split())
    assert (done.exit_code, "does not know" in said) == (5, False)
    assert f"virtqual writes to {tmp_path / state}; " in said
    assert "VIRTQUAL_STATE" in said


def test_a_full_disk_is_called_so_and_a_site_that_may_not_be_written(failing, tmp_path, monkeypatch):
    done = failing(OSError(28, "No space left on device"))
    assert done.exit_code == 5
    assert f"cannot be written: No space left on device. virtqual writes to {tmp_path}/state" in done.output
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setenv("VIRTQUAL_SITE", str(site))
    done = failing(OSError(13, "Permission denied", str(site / "systems/mine.py")))
    assert "name another directory by VIRTQUAL_SITE" in " ".join(done.output.split())
    # Another file's trouble is not the state directory's.
    assert "does not know" in failing(OSError(13, "Permission denied", "/elsewhere")).output


def test_a_site_that_is_not_there_does_not_hide_what_failed(failing, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_SITE", "/nonexistent")
    done = failing(OSError(28, "No space left on device"))
    assert (done.exit_code, "No space left on device" in done.output) == (5, True)


def test_a_failure_before_the_command_begins_is_none_either(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "virtqual.commands.propose", None)
    call("propose", "last", code=5)


def test_what_people_can_mend_is_said_in_its_own_words(failing):
    with pytest.raises(KeyError) as unknown:
        Metrics([])["hlp"]
    for error, code in ((unknown.value, 2), (RefusedError("no"), 4)):
        done = failing(error)
        assert (done.exit_code, done.output) == (code, f"virtqual: {error}\n")
    call("qualify", code=2)


def test_a_misspelt_command_is_told_the_nearest():
    assert "there is no command 'qualfy': did you mean qualify?" in call("qualfy", code=2).output


def test_two_sessions_of_one_second_have_two_ids(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path))
    now = datetime.datetime(2026, 1, 1, 23, 59, 59)
    made = [_make_directory(now, "x").name for _ in range(3)]
    assert made == ["20260101-235959-x", "20260102-000000-x", "20260102-000001-x"]


def test_a_closed_pipe_ends_a_command_silently(tmp_path):
    env = {**os.environ, "VIRTQUAL_STATE": str(tmp_path)}
    reading, writing = os.pipe()
    os.close(reading)
    line = [sys.executable, "-c", "from virtqual.cli import app; app()", "inputs", "list"]
    done = subprocess.run(line, stdout=writing, stderr=subprocess.PIPE, env=env)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")
    assert not (tmp_path / "errors").exists()


def test_a_message_is_folded_between_words_in_a_terminal(monkeypatch):
    console = Console(file=StringIO(), force_terminal=True, color_system=None, width=40, soft_wrap=True)
    monkeypatch.setattr(messages, "_errors", console)
    messages._print_error(f"virtqual: {'word ' * 20}/a{'/path-of-one' * 6}/")
    lines = console.file.getvalue().splitlines()
    assert lines[-1] == f"/a{'/path-of-one' * 6}/"
    assert max(map(len, lines[:-1])) <= 40
