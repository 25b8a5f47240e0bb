"""Every question to Slurm, answered in the words of four of its releases.

What is right is in their configuration. The recordings and how they were made: ``tests/outputs/slurm``.
"""

import json
import os
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

import recorded_commands as recorded
from virtqual.errors import InfrastructureError, UsageError
from virtqual.files import execute
from virtqual.site import held, limits, partitions, slurm
from virtqual.site.extras import PartitionExtras
from virtqual.site.options import parse_options
from virtqual.site.partitions import NodeSize
from virtqual.site.systems import Partition

RECORDINGS = Path(__file__).parents[2] / "outputs/slurm"
VERSIONS = sorted(path.name for path in RECORDINGS.iterdir() if path.is_dir())
#: slurm.conf of the cluster, which the recorder starts (benchmarks/slurm-versions/etc).
NATIVE, VIRTUAL = {"n1", "n2"}, {"v1", "v2"}
PARTITIONS = [
    *("closed", "empty", "hidden", "inactive", "limited", "misc", "native", "reserved", "smp"),
    *("spec", "split", "staff", "strict", "virtual", "whole"),
]
RUNNING = {"running": ("native", "virtual"), "running-hidden": ("split", "hidden")}


@pytest.fixture(params=VERSIONS)
def at(request, monkeypatch):
    """Return how to have Slurm answer as in a scene; it returns what the recorder knew of the scene."""
    monkeypatch.delenv("SLURM_LABELIO", raising=False)
    # The user of the recordings, who has no other group.
    monkeypatch.setenv("LOGNAME", "user")
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "getgid", lambda: 1000)
    monkeypatch.setattr(os, "getgroups", list)

    def scene(name):
        monkeypatch.setattr(execute, "run", recorded.replay(RECORDINGS / request.param / name))
        facts = RECORDINGS / request.param / name / "facts.json"
        return SimpleNamespace(**json.loads(facts.read_text("utf-8"))) if facts.exists() else None

    scene.version = request.param
    scene.recordings = lambda name: recorded.index(RECORDINGS / request.param / name)
    return scene


def test_there_are_recordings_of_four_releases():
    assert VERSIONS == ["20.11", "22.05", "24.11", "26.05"]


def test_a_command_that_was_not_recorded_fails(at):
    at("idle")
    with pytest.raises(slurm.SilentError, match="not recorded: sinfo --noheader --format=%Z"):
        slurm.ask(["sinfo", "--noheader", "--format=%Z"])


def test_states_of_nodes_and_their_reasons(at):
    at("idle")
    states = slurm.list_node_states("misc")
    # Older ones show no node of a cloud that is off.
    clouds = {"cloud1", "cloud2"} if at.version > "23" else set()
    others = {"node05", "plain1", "drained1", "down1", "lost1", "lost2"}
    assert states.keys() == others | clouds
    assert states["node05"] == slurm.NodeState("idle", None)
    assert states["drained1"] == slurm.NodeState("drained", "DIMM 3 | replaced on Friday")
    assert states["down1"] == slurm.NodeState("down", "no fan")
    assert states["lost1"].state == "unknown"
    assert {states[name].state for name in clouds} <= {"idle~"}
    assert slurm.list_node_states("virtual")["v2"].reason == "kernel=5.14 State=bad"


def test_nodes_of_a_hidden_partition_and_of_one_for_others_have_states(at):
    at("idle")
    assert slurm.list_node_states("hidden").keys() == VIRTUAL
    assert slurm.list_node_states("staff").keys() == NATIVE
    assert slurm.list_node_states("nosuch") == {}


#: What jobs get of nodes: CPUs, cores, memory in MiB.
SIZES = {
    "native": {"n1": (32, 16, 64000), "n2": (32, 16, 64000)},
    "virtual": {"v1": (16, 16, 60001), "v2": (16, 16, 59998)},
    "hidden": {"v1": (16, 16, 60001), "v2": (16, 16, 59998)},
    # CoreSpecCount=2 of two threads each, MemSpecLimit=4096; CpuSpecList=0,32.
    "spec": {"c1": (124, 62, 251904), "c2": (62, 62, 256000)},
    "smp": {"big1": (1024, 512, 4000000)},
    # MaxCPUsPerNode=16, MaxMemPerNode=32000
    "limited": {"n1": (16, 8, 32000), "n2": (16, 8, 32000)},
    "staff": {"n1": (32, 16, 64000), "n2": (32, 16, 64000)},
    "": {"n1": (32, 16, 64000), "n2": (32, 16, 64000)},
}


@pytest.mark.parametrize("name", SIZES)
def test_what_jobs_get_of_nodes(at, name):
    at("idle")
    partition = partitions.read_partition(name)
    assert partition.sizes == {node: NodeSize(*size) for node, size in SIZES[name].items()}
    # Nodes whose memory differs by some MiB are of one kind; RealMemory of c1 and c2 is the same.
    assert len(partition.kinds) == (2 if name == "spec" else 1)


def test_a_node_without_memory_in_the_configuration_has_none(at):
    at("idle")
    assert partitions.read_partition("misc").sizes["plain1"] == NodeSize(8, 8, None)


def test_a_node_is_found_by_the_name_of_its_machine(at):
    at("idle")
    assert partitions.read_partition("misc").find_node(["ip-10-0-0-5"]) == "node05"


@pytest.mark.parametrize(("name", "minutes"), [("native", 2880), ("split", 60), ("virtual", float("inf"))])
def test_time_limits(at, name, minutes):
    at("idle")
    assert partitions.read_partition(name).max_minutes == minutes


def test_names_of_partitions(at):
    at("idle")
    assert partitions.list_partitions() == sorted([*PARTITIONS, "filtered"])
    with pytest.raises(UsageError, match="Slurm has no partition 'nosuch': known are closed, empty"):
        partitions.read_partition("nosuch")
    with pytest.raises(UsageError, match="no node of partition empty"):
        partitions.read_partition("empty")


@pytest.mark.parametrize(
    ("constraint", "nodes"),
    [("native", NATIVE), ("virtual", VIRTUAL), ("hdr&native", NATIVE), ("native|virtual", NATIVE | VIRTUAL)],
)
def test_nodes_that_a_feature_selects(at, constraint, nodes):
    at("features")
    partition = partitions.read_partition("split")
    assert partitions.filter_nodes({"--constraint": constraint}, partition.sizes) == nodes


def test_nodes_that_a_reservation_selects(at):
    at("features")
    partition = partitions.read_partition("split")
    assert partitions.filter_nodes({"--reservation": "course"}, partition.sizes) == {"n2"}


def test_licences(at):
    at("idle")
    assert slurm.list_licenses() == ["host", "matlab"]


def test_whether_there_is_accounting(at):
    at("idle")
    assert not slurm.has_accounting()
    slurm.check_scheduler()
    at("accounts")
    assert slurm.has_accounting()


def test_empty_settings_are_not_those_of_the_next_line(at):
    at("idle")
    assert slurm.read_setting("LaunchParameters") is None
    assert slurm.read_setting("MailDomain") is None
    assert slurm.read_setting("MailProg") == "/bin/true"


def test_lists_of_nodes(at):
    at("idle")
    assert slurm.expand_nodes("n[1-2],lost[1-2],node05") == ["n1", "n2", "lost1", "lost2", "node05"]
    assert slurm.expand_nodes("vm[08-11]") == ["vm08", "vm09", "vm10", "vm11"]
    assert slurm.expand_nodes("rack[1-2]n[1-2]") == ["rack1n1", "rack1n2", "rack2n1", "rack2n2"]


def test_a_job_that_waits(at):
    facts = at("waiting")
    job, other = facts.components
    assert facts.job == job
    assert slurm.list_components(job) == [job, other]
    assert slurm.list_waiting_jobs([job, other]) == dict.fromkeys([job, other], "BeginTime")
    for component in (job, other):
        with pytest.raises(InfrastructureError, match=f"Slurm names no node of allocation {component}"):
            slurm.list_job_nodes(component)
    assert slurm.cancel_jobs({job: facts.submitted}) == facts.cancelled == [job]
    assert slurm.cancel_jobs({job: facts.submitted + 3600}) == []


@pytest.mark.parametrize("scene", RUNNING)
def test_a_job_that_runs(at, scene):
    facts = at(scene)
    job, other = facts.components
    assert slurm.list_components(job) == [job, other]
    assert slurm.list_waiting_jobs([job, other]) == {}
    assert slurm.list_job_nodes(job) == ["n1"]
    assert slurm.list_job_nodes(other) == ["v1"]
    slurm.send_heartbeat(job)
    assert slurm.cancel_jobs({job: facts.submitted}) == [job]


@pytest.mark.parametrize("scene", RUNNING)
def test_steps_that_are_ended(at, scene):
    """Up to 24.11 scancel fails for a step of a job of two components, although the step ends."""
    facts = at(scene)
    if at.version > "25":
        assert slurm.end_steps(facts.job, "slow") == [f"{facts.job}.4"]
    else:
        with pytest.raises(slurm.SilentError, match=f"job step id {facts.job}: Invalid job id"):
            slurm.end_steps(facts.job, "slow")
    # Which node cancelled the step is not always said.
    assert "srun: error: n1: task 0: Killed" in facts.killed
    assert facts.code == 137
    assert slurm.end_steps(facts.job, "other") == []


@pytest.mark.parametrize(("scene", "sides"), RUNNING.items())
def test_a_step_runs_in_its_component(at, scene, sides):
    """Prologs and epilogs print before and after it."""
    facts = at(scene)
    jobs = dict(zip(sides, facts.components, strict=True))
    for side, node in zip(sides, ("n1", "v1"), strict=True):
        extras = PartitionExtras.model_construct()
        stated = Partition.model_construct(name=side, access=(), extras=extras)
        options = held.list_step_options(jobs, stated)
        output = slurm.ask(["srun", *options, "--overlap", "--nodes=1", "--ntasks=2", "hostname"])
        first, *lines, last = output.splitlines()
        assert (first, last) == ("Your step begins", "Your step used 0.1 core hours")
        assert sorted(lines) == [f"Welcome to {node}"] * 2 + [node] * 2


def test_jobs_that_have_ended(at):
    facts = at("ended")
    span = slurm.read_job_span(facts.job, facts.submitted, facts.seen)
    assert span.clock == "slurmctld"
    assert facts.submitted <= span.start <= span.end <= facts.seen
    assert slurm.read_job_span("99999", 1, 2) == slurm.Span(1, 2, "submission")
    failed = {facts.job: ("FAILED", "NonZeroExitCode")}
    others = dict.fromkeys(facts.others, "CANCELLED")
    assert slurm.read_job_states([facts.job]) == failed
    assert slurm.read_job_states([facts.job, "99999"]) == failed
    states = slurm.read_job_states([facts.job, *facts.others])
    assert {job: state for job, (state, _) in states.items()} == {facts.job: "FAILED", **others}
    assert slurm.cancel_jobs({facts.job: facts.submitted}) == []


def test_jobs_that_slurm_does_not_know(at):
    at("ended")
    assert slurm.read_job_states(["99999"]) == {}
    assert slurm.read_job_states(["99998", "99999"]) == {}
    with pytest.raises(slurm.EndedError, match="allocation 99999 is unknown to it"):
        slurm.list_waiting_jobs(["99999"])
    with pytest.raises(slurm.SilentError, match="Invalid job id specified"):
        slurm.list_components("99999")


#: What keeps the jobs waiting that the recorder submits; the words of releases differ.
REASONS = {
    "down": {"PartitionDown"},
    "max-nodes": {"PartitionNodeLimit"},
    "max-time": {"PartitionTimeLimit"},
    "max-memory": {"MaxMemPerLimit"},
    "drained-node": {
        "ReqNodeNotAvail, UnavailableNodes:v2",
        "ReqNodeNotAvail, May be reserved for other job",
    },
}


@pytest.mark.parametrize("name", REASONS)
def test_why_a_job_waits(at, name):
    at("refused")
    (reason,) = slurm.list_pending_reasons(f"virtqual-{name}")
    assert reason in REASONS[name]


#: What Slurm and the filters of the site say to a job that they refuse.
WORDS = {
    "-p strict": [
        "This partition has nodes of two kinds.",
        "Please say which, with -C native or -C virtual.",
        'See the centre\'s documentation: "Kinds of nodes".',
    ],
    "-p strict -C native --mem=0": ["Do not ask for memory: leave out --mem and --mem-per-cpu."],
    "-p filtered": ["Job request does not name a kind of node.", "Please add -C native or -C virtual."],
    "-p native --nosuch=1": ["unrecognized option '--nosuch=1'"],
    "-p nosuch": ["invalid partition specified: nosuch", "Invalid partition name specified"],
}


@pytest.mark.parametrize("options", WORDS)
def test_all_words_of_a_refusal_are_shown(at, options):
    at("refused")
    job = next(key for key in at.recordings("refused") if key.startswith(f"sbatch {options} --job-name="))
    with pytest.raises(slurm.SilentError) as refused:
        slurm.ask(shlex.split(job))
    for line in WORDS[options]:
        assert line in str(refused.value)


def test_a_job_that_failed_in_the_database(at):
    """The form in which ReFrame asks (without a database, `sacct` fails)."""
    fields = ["-o", "jobid,state,exitcode,end,nodelist"]
    facts = at("accounts-job")
    header, job, *steps = slurm.ask(["sacct", "-P", "-j", facts.job, *fields]).splitlines()
    assert header == "JobID|State|ExitCode|End|NodeList"
    assert job.split("|")[:3] == [facts.job, "FAILED", "3:0"]
    assert {line.split("|")[0] for line in steps} == {f"{facts.job}.batch", f"{facts.job}.0"}
    ended = at("ended")
    with pytest.raises(slurm.SilentError, match="Slurm accounting storage is disabled"):
        slurm.ask(["sacct", "-P", "-j", ended.job, *fields])


def find_submission(recordings, options):
    """Return the recording of an sbatch with options."""
    return next(done for key, done in recordings.items() if key.startswith(f"sbatch {options} --job-name="))


#: Options of jobs, with what is said about them before they are asked for: Slurm refuses them.
FORESEEN = {
    "-p native -w n1 -A staff --time=1": "",
    "-p native -w n1 -A STAFF --time=1": "",
    "-p native -A nosuch": "states --account=nosuch, but your accounts are staff, students",
    "-p native -A projects": "states --account=projects, but your accounts are staff, students",
    "-p limited --mem=1000 -A students": "partition limited takes all but guests or students (DenyAccounts)",
    "-p staff -A students": "partition staff takes projects or staff alone",
    "-p priority -A staff --qos=normal": "states --qos=normal, but partition priority takes high alone",
    "-p native -A staff --qos=nosuch": "states --qos=nosuch, but your QOS are normal",
    "-p limited --mem=1000 -A staff --nodes=2": "states 2, but MaxNodes of partition limited is 1",
    "-p native -A staff --time=3-00:00:00": "states --time=3-00:00:00, but MaxTime of partition native is",
}


@pytest.mark.parametrize("options", FORESEEN)
def test_what_slurm_refuses_is_foreseen(at, options):
    at("accounts")
    done = find_submission(at.recordings("accounts"), options)
    assert bool(done.code) == bool(FORESEEN[options])
    sentences = list(foresee(options))
    assert bool(sentences) == bool(done.code)
    assert FORESEEN[options] in "; ".join(sentences)


def foresee(words):
    """Yield what virtqual says about jobs with these options."""
    options = parse_options(words.split())
    partition = partitions.read_partition(options["--partition"])
    yield from limits.find_obstacles(partition, options)
    yield from limits.find_wrong_selection(partition, options)
    demand = limits.Demand(options, nodes=int(options.get("--nodes", 1)))
    yield from (sentence for _, sentence in limits.find_exceeded_limits(partition, demand))


#: The same without accounts: Slurm refuses these jobs, or never begins them.
FORESEEN_WITHOUT_ACCOUNTS = {
    "-p inactive": "partition inactive is INACTIVE",
    "-p closed": "partition closed is DOWN",
    "-p reserved": "(ReqResv=YES)",
    "-p native --licenses=nosuch": "a licence 'nosuch' that Slurm does not have",
    "-p native -C nosuch": "none of the nodes of partition native: their features are hdr, native",
    "-p virtual -C native": "which selects none of the nodes of partition virtual",
    "-p native -w v1": "which selects none of the nodes of partition native",
    "-p staff -A guests": "takes jobs of the group root alone",
    "-p native --time=3-00:00:00": "MaxTime of partition native is",
}


@pytest.mark.parametrize("options", FORESEEN_WITHOUT_ACCOUNTS)
def test_what_slurm_never_begins_is_foreseen(at, options):
    name = next(
        key.partition(" --job-name=")[2].split()[0]
        for key in at.recordings("refused")
        if key.startswith(f"sbatch {options} --job-name=")
    )
    waiting = at.recordings("refused")["squeue --all --noheader '--format=%i|%j|%T|%r|%P|%D'"].stdout
    assert find_submission(at.recordings("refused"), options).code or f"|{name}|PENDING|" in waiting
    at("idle")
    assert FORESEEN_WITHOUT_ACCOUNTS[options] in "; ".join(foresee(options))


def test_another_cluster(at, monkeypatch):
    at("other-cluster")
    monkeypatch.setenv("SLURM_CLUSTERS", "beta")
    assert partitions.list_partitions() == ["remote"]
    assert partitions.read_partition("remote").sizes == dict.fromkeys(["b1", "b2"], NodeSize(8, 8, 8000))
    assert partitions.read_partition("").name == "remote"
    assert slurm.list_node_states("remote").keys() == {"b1", "b2"}
