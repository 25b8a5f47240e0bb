"""Tasks that begin together, and the proof of it whatever their clocks say."""

import os
import subprocess
from importlib import resources

import pytest

from virtqual.job.notes import NotesError
from virtqual.job.together import Meeting, TaskTimes, compute_overlap, read


def start(directory, rank, tasks, *command):
    return subprocess.Popen(
        [str(resources.files("virtqual.job") / "together.sh"), *command],
        cwd=directory,
        env={**os.environ, "SLURM_PROCID": str(rank), "SLURM_NTASKS": str(tasks)},
    )


def test_no_task_begins_before_all_are_there_and_a_fault_of_the_program_is_kept(tmp_path):
    first = start(tmp_path, 0, 2, "sh", "-c", "sleep 0.4; exit 3")
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(0.6)
    second = start(tmp_path, 1, 2, "sleep", "0.4")
    assert (first.wait(20), second.wait(20)) == (3, 0)
    times = read(tmp_path, 2)
    assert times[0].begin > times[1].meetings[0].wrote
    # Most of 0.4 s, on a machine that may be busy; one after the other it would be 0.
    assert compute_overlap(times) > 0.3


def test_a_shell_older_than_bash_5_notes_the_times(tmp_path):
    script = resources.files("virtqual.job") / "together.sh"
    line = f"unset EPOCHREALTIME; set -- sleep 0.2; . {script}"
    env = {**os.environ, "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    subprocess.run(["bash", "-c", line], cwd=tmp_path, env=env, check=True)
    (times,) = read(tmp_path, 1)
    assert times.end - times.begin >= 0.2


def task(*meetings, begin, end, ahead=0.0):
    """One task's times by a clock that is ahead of the true one; meetings: (wrote, saw first, saw second)."""
    shown = [
        Meeting(wrote + ahead, {rank: time + ahead for rank, time in enumerate(saw)})
        for wrote, *saw in meetings
    ]
    return TaskTimes(tuple(shown), begin=begin + ahead, end=end + ahead)


@pytest.mark.parametrize("ahead", [0.0, -3600.0, 7.5])
def test_the_share_does_not_depend_on_the_clocks_nor_on_who_was_late(ahead):
    def pair(begin, end):
        """The second task comes 5 s late; a file is seen 0.1 s after it was written."""
        return [
            task((0.0, 0.0, 5.1), (5.1, 5.1, 5.1), begin=5.1, end=15.1),
            task((5.0, 5.0, 5.0), (5.0, 5.2, 5.0), begin=begin, end=end, ahead=ahead),
        ]

    assert compute_overlap(pair(5.2, 15.2)) == pytest.approx(0.97, abs=0.021)
    # Half as long, and one after the other.
    assert compute_overlap(pair(5.2, 10.2)) == pytest.approx(0.49, abs=0.021)
    assert compute_overlap(pair(15.3, 25.3)) == 0


@pytest.mark.parametrize("late", [(4.0, 0.0), (0.0, 4.0)])
def test_what_is_concluded_is_never_more_than_is_true(late):
    # One saw the other's file 4 s late: the clocks may be that far apart, and the worst of it counts.
    first, second = late
    times = [task((0.0, 0.0, first), begin=4.0, end=14.0), task((0.0, second, 0.0), begin=4.0, end=14.0)]
    assert compute_overlap(times) == pytest.approx(1 - 4.0 / 10)


WHOLE = "ready 1.0\nsaw 0 1.0\nsaw 1 1.0\nset 1.0\nsaw 0 1.0\nsaw 1 1.0\nbegin 1.0\nend 2.0\n"


@pytest.mark.parametrize(
    "note",
    [
        None,
        "",
        WHOLE.removesuffix("end 2.0\n"),
        WHOLE.replace("saw 0 1.0\n", ""),
        WHOLE.replace("set 1.0\n", ""),
    ],
)
def test_a_note_that_is_not_whole_is_refused(tmp_path, note):
    (tmp_path / "virtqual.together.0").write_text(WHOLE)
    if note is not None:
        (tmp_path / "virtqual.together.1").write_text(note)
    with pytest.raises(NotesError, match="task 1 did not note"):
        read(tmp_path, 2)
