"""Questions to Slurm: what it answers is read right, whatever a shell has set."""

import os
import re
import signal
import subprocess
import time

import pytest

from made_programs import write_program
from virtqual.errors import InfrastructureError
from virtqual.site import held, partitions, slurm
from virtqual.site.extras import PartitionExtras
from virtqual.site.options import parse_options
from virtqual.site.systems import Partition

NUMBER = 1_700_000_000.0


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Return how to have a command of Slurm print something; times have to be asked for as numbers."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def answers(name, text, code=0):
        write_program(
            tmp_path / name,
            f'#!/bin/sh\necho "$0 $*" >> {tmp_path}/asked\n[ "$SLURM_TIME_FORMAT" = %s ] || exit 9\n'
            f"cat << 'END'\n{text}\nEND\nexit {code}\n",
        )

    answers.asked = lambda: (tmp_path / "asked").read_text()
    return answers


def partition(*access, session=()):
    """Return a partition with these single words of options."""
    return Partition.model_construct(
        access=access, extras=PartitionExtras.model_construct(session_access=session)
    )


def test_what_a_shell_has_set_for_slurms_commands_does_not_reach_them(monkeypatch):
    for name in ("SQUEUE_STATES", "SINFO_FORMAT", "SACCT_FORMAT", "SLURM_TIME_FORMAT"):
        monkeypatch.setenv(name, "R")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    known = slurm.environment()
    assert not known.keys() & {"SQUEUE_STATES", "SINFO_FORMAT", "SACCT_FORMAT", "SLURM_TIME_FORMAT"}
    assert known["SLURM_CONF"] == "/etc/slurm.conf"


@pytest.mark.parametrize(("submitted", "ended"), [(NUMBER + 100, ["7"]), (NUMBER + 1000, [])])
def test_a_job_is_cancelled_if_it_is_the_one_that_was_submitted(commands, monkeypatch, submitted, ended):
    """Numbers of jobs may begin anew."""
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    commands("squeue", f"7|{submitted:.0f}\n8|{submitted:.0f}")
    commands("scancel", "")
    assert slurm.cancel_jobs({"7": NUMBER}) == ended


def test_the_hour_that_comes_twice_is_two_hours(commands):
    commands("scontrol", f"JobId=7 StartTime={NUMBER:.0f} EndTime={NUMBER + 60:.0f}")
    span = slurm.read_job_span("7", NUMBER - 5, NUMBER + 100)
    assert (span.start, span.end, span.clock) == (NUMBER, NUMBER + 61, "slurmctld")


@pytest.mark.parametrize(("answered", "start"), [(-5, 0), (0.3, 0.3), (8, 1)])
def test_the_answer_to_sbatch_sharpens_the_start_of_a_job_within_its_second(commands, answered, start):
    """A busy controller answers late: a start at that time would make the clock of the node look fast."""
    commands("scontrol", f"JobId=7 StartTime={NUMBER:.0f} EndTime={NUMBER + 10:.0f}")
    span = slurm.read_job_span("7", NUMBER + answered, NUMBER + 10.5)
    assert (span.start, span.end) == (NUMBER + start, NUMBER + 10.5)


@pytest.mark.parametrize("said", ["12", "12;cluster", "Welcome to the centre\n12;cluster"])
def test_the_number_of_an_allocation(commands, said):
    commands("sbatch", said)
    sides = [(partition(session=[f"--partition={name}"]), ["n1", "n2"]) for name in ("bare", "vm")]
    assert slurm.allocate(sides, "s") == "12"
    common = "--nodes=2 --exclusive --mem=0 --no-requeue --no-kill --output=/dev/null --error=/dev/null"
    assert f" --partition=bare {common} : --partition=vm {common}\n" in commands.asked()


@pytest.mark.parametrize(
    ("stated", "omitted", "added"),
    [
        (["--mem-per-cpu=4G"], (), ["--no-requeue"]),
        (["--mem=100G", "--requeue"], (), []),
        ([], ("--mem", "--no-requeue"), []),
    ],
)
def test_an_allocation_adds_no_option_that_is_stated_or_that_the_site_refuses(
    commands, stated, omitted, added
):
    commands("sbatch", "12")
    made = partition(session=["--partition=vm", *stated])
    extras = made.extras.model_copy(update={"omitted_options": omitted})
    slurm.allocate([(made.model_copy(update={"extras": extras}), ["n1"])], "s")
    asked = commands.asked()
    assert re.findall(r"--mem=0|--no-requeue", asked) == added
    assert all(option in asked for option in stated)


def test_all_lines_of_an_error_are_shown(commands):
    """A site's filter explains itself in a line before Slurm's own."""
    said = "sbatch: error: Name an architecture with -C.\nsbatch: error: Unspecified error"
    commands("sbatch", said, code=1)
    with pytest.raises(InfrastructureError) as error:
        slurm.allocate([(partition(session=["--partition=vm"]), ["n1"])], "s")
    assert str(error.value).startswith(
        "sbatch: error: Name an architecture with -C. error: Unspecified error"
    )


def test_an_allocation_names_no_more_nodes_than_it_asks_for(commands):
    """sbatch refuses ``--nodes=2`` with a list of three: one of them is down, or was set aside."""
    commands("sbatch", "12")
    access = ["--partition=vm", "--nodelist=vm[1-3]"]
    slurm.allocate([(partition(session=access), ["vm1", "vm3"])], "s")
    (asked,) = re.findall(r"--partition=vm .*", commands.asked())
    assert parse_options(asked.split())["--nodes"] == "2"
    assert parse_options(asked.split())["--nodelist"] == "vm1,vm3"


def test_steps_of_runs_and_of_the_probe_have_the_distribution_that_the_session_asks_for():
    """A step does not take it over from its job."""
    for options, placed in (([], "block:block"), (["-m", "block:cyclic"], "block:cyclic")):
        stated = partition(session=["--partition=long", *options]).model_copy(update={"name": "vm"})
        assert held.list_step_options({"bare": "7", "vm": "8"}, stated) == [
            *("--jobid=7", "--het-group=1"),
            f"--distribution={placed}",
        ]


def test_the_components_of_a_job_have_ids_of_their_own(commands):
    commands("squeue", "7+1|12\nslurm: a notice\n7+0|7")
    assert slurm.list_components("7") == ["7", "12"]
    commands("squeue", "7|7")
    with pytest.raises(InfrastructureError, match="names no component of job 7"):
        slurm.list_components("7")


def test_the_nodes_of_a_component_are_not_those_of_the_whole_job(commands):
    commands("squeue", "7|bare[1-2]\n12|vm[1-2]")
    commands("scontrol", "bare1\nbare2")
    assert slurm.list_job_nodes("7") == ["bare1", "bare2"]
    assert "show hostnames bare[1-2]\n" in commands.asked()


def test_an_allocation_without_a_number_is_none(commands):
    commands("sbatch", "job 12 was submitted")
    with pytest.raises(InfrastructureError, match="printed no number of a job: 'job 12 was submitted'"):
        slurm.allocate([(partition(), ["vm1"])], "s")


def test_an_allocation_ends_by_itself_without_a_heartbeat_of_its_session():
    script = slurm._ALLOCATION_SCRIPT.format(minutes=3, seconds=0.3)
    with subprocess.Popen(["sh", "-c", script]) as job:
        for _ in range(20):
            time.sleep(0.1)
            assert job.poll() is None
            job.send_signal(signal.SIGCONT)
        assert job.wait(30) == 0


def test_only_the_script_of_an_allocation_gets_a_heartbeat(commands):
    """A signal to its steps would let a program go on that has stopped."""
    commands("scancel", "")
    slurm.send_heartbeat("7")
    assert commands.asked().endswith("scancel --batch --signal=CONT 7\n")
    commands("scancel", "scancel: error: Job/step already completing or completed", code=1)
    slurm.send_heartbeat("7")


@pytest.mark.parametrize("error", [KeyboardInterrupt, InfrastructureError])
def test_the_job_of_an_srun_that_was_killed_does_not_stay_in_the_queue(commands, error):
    commands("scancel", "")
    with slurm.cancelled_after_an_error("good"):
        pass
    with pytest.raises(error), slurm.cancelled_after_an_error("virtqual-probe-7"):
        raise error
    assert re.findall(r"scancel .*", commands.asked()) == [
        f"scancel --user={os.getuid()} --name=virtqual-probe-7"
    ]


def test_steps_that_are_left_are_ended_and_slurms_own_are_not(commands):
    commands("squeue", "7.0|7.1-3\n7.12|7.1-4\n7.batch|batch\n7.extern|extern")
    commands("scancel", "")
    assert slurm.end_steps("7", "7.1-4") == ["7.12"]
    assert slurm.end_steps("7") == ["7.0", "7.12"]
    assert slurm.end_steps("7", "7.1-5") == []
    assert commands.asked().count("scancel 7.12\n") == 1


def test_nodes_that_access_names_are_those_that_are_watched(commands):
    commands("scontrol", "vm1\nvm2")
    nodes = ["vm1", "vm2", "vm3"]
    assert partitions.select_nodes(partition("-p", "vm"), nodes) == set(nodes)
    assert partitions.select_nodes(partition("--nodelist=vm[1-2]"), nodes) == {"vm1", "vm2"}
    assert partitions.select_nodes(partition("-x", "vm[1-2]"), nodes) == {"vm3"}
    # A session asks with options of its own.
    assert partitions.select_nodes(partition("-p", "vm", session=["-pvm", "-wvm[1-2]"]), nodes) == {
        "vm1",
        "vm2",
    }
    assert partition("-p", "vm", session=["--partition=long"]).slurm_name == "long"
    assert partition("-p", "vm", "--partition=other").slurm_name == "other"


@pytest.mark.parametrize(
    ("kind", "has_accounting"),
    [("accounting_storage/slurmdbd", True), ("accounting_storage/none", False), ("(null)", False)],
)
def test_slurm_has_no_accounting_if_it_is_not_set(commands, kind, has_accounting):
    """Slurm prints (null) for a setting without a value; newer versions have no plugin ``none``."""
    commands("scontrol", f"AccountingStorageHost   = login\nAccountingStorageType   = {kind}")
    assert slurm.has_accounting() is has_accounting


def test_a_line_that_is_no_answer_is_none(commands):
    commands("squeue", "slurm: some notice\n7|PENDING|Priority")
    assert slurm.list_waiting_jobs(["7"]) == {"7": "Priority"}
    commands("squeue", "no", code=1)
    with pytest.raises(slurm.SilentError):
        slurm.list_waiting_jobs(["7"])


@pytest.mark.parametrize(
    ("access", "named"),
    [
        (["--partition=vm", "--nodelist=vm[05-08]"], True),
        (["-p", "vm", "-w", "vm1"], True),
        (["-pvm", "-Cavx"], True),
        (["--partition", "vm", "--exclude", "vm1"], True),
        (["--account=x", "-p", "vm"], False),
        (["--partition=vm", "--account=hpc"], False),
    ],
)
def test_the_partition_and_the_nodes_that_access_names(access, named):
    assert partition(*access).names_nodes is named
    assert partition(*access).slurm_name == "vm"


class CountedSizes(dict):
    """Sizes of nodes that count how often all are looked at."""

    looks = 0

    def items(self):
        self.looks += 1
        return super().items()


def test_the_size_of_most_nodes_is_found_once():
    """A draft for a thousand nodes took a minute: it was found for each node, and again for each pair."""
    sizes = CountedSizes({f"vm{number}": partitions.NodeSize(8, 4, None) for number in range(8)})
    sizes["vm8"] = partitions.NodeSize(4, 2, None)
    partition = partitions.SlurmPartition("vm", sizes)
    assert (len(partition.common_nodes), partition.other_nodes) == (8, ["vm8"])
    assert partition.common_size == partitions.NodeSize(8, 4, None)
    assert partition.common_kind is partition.common_kind
    assert sizes.looks == 1
