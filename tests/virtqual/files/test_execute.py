"""Other programs: their output is text, and one that is missing or hangs is an error in words."""

import time

import pytest

from virtqual.errors import InfrastructureError
from virtqual.files import execute


def test_bytes_that_are_no_text_are_marked_and_an_exit_code_is_for_the_caller():
    done = execute.run(["sh", "-c", r"printf 'a\377b'; echo no >&2; exit 3"])
    assert (done.stdout, done.stderr, done.returncode) == ("a\ufffdb", "no\n", 3)


def test_a_program_that_is_not_there_or_does_not_end_is_named():
    with pytest.raises(InfrastructureError, match="no-such-program: No such file or directory"):
        execute.run(["no-such-program"])
    with pytest.raises(InfrastructureError, match="sleep: no end after 0 s"):
        execute.run(["sleep", "9"], seconds=0.1)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("WARNING: Retrying\nERROR: no such wheel", "ERROR: no such wheel"),
        ("no reason", "\nno reason"),
        ("", "it printed nothing"),
    ],
)
def test_a_failure_has_the_reason_of_the_program(output, reason):
    with pytest.raises(InfrastructureError) as caught:
        execute.run_checked(["sh", "-c", f"printf '{output}'; exit 1"], "pip failed")
    assert str(caught.value) == f"pip failed (exit code 1): {reason}"


def test_a_program_that_cannot_be_started_is_a_failure():
    with pytest.raises(InfrastructureError, match="no: /none/apt-get: No such file"):
        execute.run_checked(["/none/apt-get"], "no")


def test_what_a_command_prints_is_kept_and_what_it_has_started_ends_with_it(tmp_path):
    log, after = tmp_path / "log", tmp_path / "after"
    with pytest.raises(InfrastructureError, match="ended with exit code 3: err"):
        execute.run_logged(["sh", "-c", "echo out; echo err >&2; exit 3"], log, seconds=9)
    assert log.read_text() == "out\nerr\n"
    with pytest.raises(InfrastructureError, match="no-such-program: No such file or directory"):
        execute.run_logged(["no-such-program"], log, seconds=9)
    with pytest.raises(InfrastructureError, match="sh: no end after 1 s"):
        execute.run_logged(["sh", "-c", f"(sleep 2; touch {after}) & echo begun; wait"], log, seconds=1)
    time.sleep(2)
    assert (log.read_text(), after.exists()) == ("begun\n", False)
