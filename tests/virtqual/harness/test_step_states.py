"""What became of a step that a session started in its allocation, in Slurm's words for the states of jobs."""

from types import SimpleNamespace

import pytest
from reframe.core.exceptions import SanityError

from virtqual.harness.recorder import ENDED_STATES, failure_of
from virtqual.harness.steps import StepScheduler

UNCONFIRMED = "srun: error: Unable to confirm allocation for job 5: "
NOT_CREATED = "srun: error: Unable to create step for job 5: "


@pytest.mark.parametrize(
    ("said", "state"),
    [
        (UNCONFIRMED + "Unable to contact slurm controller (connect failure)", "LAUNCH_FAILED"),
        (UNCONFIRMED + "Zero Bytes were transmitted or received", "LAUNCH_FAILED"),
        (NOT_CREATED + "Socket timed out on send/recv operation", "LAUNCH_FAILED"),
        (UNCONFIRMED + "Invalid job id specified", "CANCELLED"),
        (NOT_CREATED + "Requested node configuration is not available", "NODE_FAIL"),
        # What a person has asked for wrongly stays as it is.
        (NOT_CREATED + "More processors requested than permitted", "FAILED"),
        # The program's own words are none of srun's.
        ("MPI: Socket timed out on send/recv operation", "FAILED"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=5.0", "OUT_OF_MEMORY"),
    ],
)
def test_a_step_that_slurm_did_not_begin_or_end_has_slurms_word_for_it(tmp_path, said, state):
    file = tmp_path / "err"
    file.write_text(f"a warning\n{said}\n", encoding="utf-8")
    job = SimpleNamespace(timed_out=False, asked_to_end=None, error_file=file)
    found = StepScheduler._state(job, 1)
    assert found == state
    assert (found in ENDED_STATES) == (state != "FAILED")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (137, "exit code 137 (killed by SIGKILL: was its memory used up?)"),
        (139, "exit code 139 (killed by SIGSEGV)"),
        (1, "exit code 1"),
        (255, "exit code 255"),
    ],
)
def test_the_signal_that_killed_a_program_is_named(code, says):
    job = SimpleNamespace(jobid=1, state="FAILED", exitcode=code)
    check = SimpleNamespace(
        case="stream", display_name="stream", slot=SimpleNamespace(pair=0, side="virtual"), job=job
    )
    where = SimpleNamespace(partition=SimpleNamespace(name="vm"))
    error = SanityError(f"job exited with exit code {code}")
    task = SimpleNamespace(check=check, testcase=where, skipped=False, exc_info=(None, error, None))
    found = failure_of(task)
    assert (found.kind, found.reason) == ("failed", f"job exited with {says}")
