"""Other programs: their output is text, and one that is missing or hangs is an error in words."""

import time

import pytest

from virtqual.errors import InfrastructureError
from virtqual.files import execute


def test_bytes_that_are_no_text_are_marked_and_an_exit_code_is_for_the_caller():
    done = execute.run(["sh", "-c", r"printf 'a\377b'; echo no >&2; exit 3"])
    assert (done.stdout, done.stderr, done.returncode) == ("a\ufffdb", "no\n", 3)
    assert execute.said(["sh", "-c", "echo half; exit 3"]) == ""
    assert execute.said(["sh", "-c", "echo whole"]) == "whole\n"


def test_a_program_that_is_not_there_or_does_not_end_is_named():
    with pytest.raises(InfrastructureError, match="no-such-program: No such file or directory"):
        execute.run(["no-such-program"])
    with pytest.raises(InfrastructureError, match="sleep: no end after 0 s"):
        execute.run(["sleep", "9"], seconds=0.1)
    assert execute.said(["no-such-program"]) == execute.said(["sleep", "9"], seconds=0.1) == ""


def test_what_a_command_prints_is_kept_and_what_it_has_started_ends_with_it(tmp_path):
    log, after = tmp_path / "log", tmp_path / "after"
    assert execute.logged(["sh", "-c", "echo out; echo err >&2; exit 3"], log, seconds=9) == 3
    assert log.read_text() == "out\nerr\n"
    with pytest.raises(InfrastructureError, match="no-such-program: No such file or directory"):
        execute.logged(["no-such-program"], log, seconds=9)
    with pytest.raises(InfrastructureError, match="sh: no end after 1 s"):
        execute.logged(["sh", "-c", f"(sleep 2; touch {after}) & echo begun; wait"], log, seconds=1)
    time.sleep(2)
    assert (log.read_text(), after.exists()) == ("begun\n", False)
