"""The end of a step that a session started in its allocation, by Slurm's names for the states of jobs."""

from types import SimpleNamespace

import pytest

from virtqual.harness.recorder import ENDED_STATES
from virtqual.harness.steps import StepScheduler

UNCONFIRMED = "srun: error: Unable to confirm allocation for job 5: "
NOT_CREATED = "srun: error: Unable to create step for job 5: "


@pytest.mark.parametrize(
    ("message", "state"),
    [
        (UNCONFIRMED + "Unable to contact slurm controller (connect failure)", "LAUNCH_FAILED"),
        (UNCONFIRMED + "Zero Bytes were transmitted or received", "LAUNCH_FAILED"),
        (NOT_CREATED + "Socket timed out on send/recv operation", "LAUNCH_FAILED"),
        (UNCONFIRMED + "Invalid job id specified", "CANCELLED"),
        (NOT_CREATED + "Requested node configuration is not available", "NODE_FAIL"),
        # A wrong request stays a failure of the run.
        (NOT_CREATED + "More processors requested than permitted", "FAILED"),
        # The program's own words are not srun's.
        ("MPI: Socket timed out on send/recv operation", "FAILED"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=5.0", "OUT_OF_MEMORY"),
        (
            "slurmstepd-n1: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-11-27T02:36 DUE TO TIME LIMIT ***",
            "TIMEOUT",
        ),
    ],
)
def test_a_step_that_slurm_did_not_begin_or_end_has_the_state_of_a_job(tmp_path, message, state):
    file = tmp_path / "err"
    file.write_text(f"a warning\n{message}\n", encoding="utf-8")
    job = SimpleNamespace(timed_out=False, asked_to_end=None, error_file=file)
    assert StepScheduler._state(job, 1) == state
    assert (state in ENDED_STATES) == (state != "FAILED")
