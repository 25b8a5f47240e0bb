"""`virtqual qualify --plan`: what would run, how long, and at what cost, before anything does."""

import json
import shutil

import pytest
from test_qualify import QUALIFIED
from test_rotation import ON_THREE, ON_TWO

from made_runs import keep, made_run, session_of
from virtqual.harness import catalogue
from virtqual.runs import Result


def planned(site, *options, names=("-n", "lj"), **env):
    done = site.qualify(*names, "--plan", *options, code=0, **env)
    assert max(map(len, done.stdout.splitlines())) <= 80
    return " ".join(done.stdout.split())


def test_what_was_never_run_takes_what_the_system_file_states_and_nothing_is_written(site):
    said = planned(site, FAKE_RUN_SECONDS="20")
    assert "1 case, 10 runs in the first round with its warm-ups: 10 jobs, one a run." in said
    # 5 s for ReFrame, and for each run 21 to 65 s.
    assert "About 3.6 to 11 min if every metric is decided by the first round, 13 to 41 min if none" in said
    assert "and what the jobs wait in the queue; the first round costs 0.056 to 0.17 node-hours." in said
    assert "1 case was never run here: 20 to 60 s a run, and a few to start it, are assumed" in said
    assert not (site.path / "state/sessions").exists()
    assert not list((site.path / "slurm").glob("job.*"))


def test_durations_are_those_of_the_last_session(site):
    runs = [
        made_run(side, 0, check="lammps %problem=lj", end=seconds)
        for side, seconds in (("native", 20.0), ("virtual", 30.0))
    ]
    last = session_of(runs, name="20260101-000000-testsite", system="testsite", stack={"name": "fake"})
    entry = catalogue.Entry(name="lammps problem=lj", description="d", tags=("quick",))
    catalogue.write([entry], keep(last, site.path / "state/sessions") / catalogue.FILE)
    said = planned(site, "--pairs", "6")
    assert "native, s virtual, s lammps problem=lj 1 14 20.0 30.0 1 case" in said
    # Seven runs of 21 s, seven of 31 s, and 5 s for ReFrame.
    assert "About 6.2 min if every metric is decided by the first round" in said
    assert "the first round costs 0.097 node-hours." in said
    assert "never run" not in said


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("20", "is 20 min: it may cut the session off"),
        ("3", "is 3 min: it cuts the session off"),
        ("9-0", ""),
    ],
)
def test_a_job_that_may_end_before_the_session_is_told(site, limit, says):
    held = {"session_access": ["--partition=cloud", f"--time={limit}"]}
    env = {
        "FAKE_EXTRAS_bare": json.dumps({"session_access": ["--partition=bare"]}),
        "FAKE_EXTRAS_cloud": json.dumps(held),
    }
    said = planned(site, FAKE_RUN_SECONDS="20", **env)
    assert ("--time in extras.session_access" in said, says in said) == (bool(says), True)


def test_nodes_that_are_held_and_all_work_at_once(site):
    said = planned(site, **ON_TWO)
    assert "1 case, 20 runs in the first round with its warm-ups: 1 job, held for the whole session." in said
    assert "Checks of one node go over 2 nodes a side, all of them at work at once." in said


def test_nodes_that_the_system_file_leaves_out_are_not_planned_for(site):
    cloud = json.loads(ON_THREE["FAKE_EXTRAS_cloud"])
    cloud["session_access"] = [*cloud["session_access"], "--exclude=cloud-3"]
    said = planned(site, **ON_THREE | {"FAKE_EXTRAS_cloud": json.dumps(cloud)})
    assert "Checks of one node go over 2 nodes a side" in said
    assert "Checks of one node go over 3 nodes a side" in planned(site, **ON_THREE)


def test_without_slurm_and_without_a_stack_both_are_assumed(site):
    shutil.rmtree(site.path / "site/stacks")
    said = planned(site, **ON_THREE | {"PATH": str(site.path / "none")}, names=())
    assert "Checks of one node go over 3 nodes a side, all of them at work at once." in said
    assert "Slurm does not say which nodes there are (sinfo: No such file or directory)" in said
    assert "No stack is set up: all programs of the spack stack are assumed" in said
    runs, _, not_run = said.partition("Not run here:")
    assert "osu_nodes" in runs
    assert "mpi_latency_nodes" not in runs
    assert "mpi_latency_nodes (mpi-latency)" in not_run
    env = ON_THREE | {"PATH": str(site.path / "none")}
    assert "mpi_latency_nodes" in planned(site, "--stack", "registry", names=(), **env)
    runs, _, not_run = planned(site, "--full", names=(), **env).partition("Not run here:")
    assert "db_pgbench" in runs
    assert "web_events (web-events)" in not_run
    done = site.qualify("--plan", "--stack", "spak", code=2)
    assert "no stack 'spak' is set up: did you mean spack? Known are" in site.words(done)
    assert "`virtqual stack register --modules FILE`" in site.words(done)


def test_a_check_states_how_long_its_runs_take(site):
    shutil.rmtree(site.path / "site/stacks")
    env = {f"FAKE_EXTRAS_{name}": json.dumps({"scratch": "/tmp"}) for name in ("bare", "cloud")}
    said = planned(site, "--full", names=("-n", "^storage"), **env)
    assert "2 cases were never run here: 75 to 115 s a run, and a few to start it, are assumed" in said


def test_what_is_not_asked_for_is_not_listed(site):
    assert "stream" in planned(site, names=()).partition("Not run here:")[2]
    assert "Not run here" not in planned(site)


@pytest.mark.parametrize(
    ("options", "checks", "env", "answer"),
    [
        ((), "", {}, "This session can be called qualified if every metric is within its budget."),
        (
            (),
            "  - {check: namd_water, where: namd}\n  - {check: rdma_latency, where: rdma}\n",
            {},
            "This session can be called qualified (without namd, rdma) if every metric is within its budget.",
        ),
        (
            (),
            "  - {check: hpl}\n  - {check: wrf_ideal}\n",
            {},
            "This session cannot be called qualified: class kvm also asks for hpl, wrf_ideal "
            "(--full; no -n and no -t; ci/build-stack hpl wrf).",
        ),
        (
            (),
            "  - {check: lammps %problem=eam}\n",
            {},
            "class kvm also asks for lammps %problem=eam (--full; no -n and no -t).",
        ),
        (("--fast",), "", {}, "qualified: --fast takes two pairs, which can lack rare slow runs."),
        (
            (),
            "",
            {"recreate_vms": []},
            "qualified: the VM has one boot (extras.recreate_vms creates VMs anew).",
        ),
        ((), "", {"nodes_of_hosts": {}}, "the hosts of the VMs are not stated (extras.nodes_of_hosts)."),
    ],
)
def test_the_last_line_says_whether_the_build_could_be_called_qualified(site, options, checks, env, answer):
    site.add_reference("qualifications/own.yaml", QUALIFIED + checks)
    extras = {"recreate_vms": ["true"], **env}
    assert planned(site, *options, FAKE_EXTRAS_cloud=json.dumps(extras)).endswith(answer)


def test_a_survey_counts_for_the_checks_that_it_measured(site):
    """A survey of the quick scope bounds nothing of the full one."""
    site.add_reference("qualifications/own.yaml", QUALIFIED)
    entry = {
        "family": "paging",
        "native": ["bare-1"],
        "virtual": ["host-1"],
        "bound": 0.01,
        "source": "tests",
    }
    survey = {
        "schema": "virtqual-hosts/1",
        "made_of": {"sessions": ["s"], "date": "2026-01-01", "cpu": "c", "stack": "fake"},
    }

    def answer(**target):
        hosts = [entry, {**entry, "family": None, **target}]
        site.add_reference("systems/testsite/hosts.yaml", json.dumps({**survey, "hosts": hosts}))
        return planned(site, **ON_THREE)

    lj = {"metric": "lammps_loop_time", "setting": "lj"}
    unsurveyed = "no survey says how far hosts differ in lammps (docs/system-file.md, A survey of hosts)."
    # Of which metrics the check has nothing is known yet.
    assert answer(**lj).endswith(unsurveyed)
    results = (Result.scalar("lammps_loop_time", "lj", 4.0),)
    run = made_run("native", 0, check="lammps %problem=lj", results=results)
    keep(session_of([run], name="20260101-000000-testsite", system="testsite"), site.path / "state/sessions")
    assert answer(metric="lammps_loop_time", setting="eam").endswith(unsurveyed)
    assert answer(**lj).endswith("can be called qualified if every metric is within its budget.")


def test_a_check_on_most_of_the_nodes_takes_the_same_boots_in_each_pair(site):
    site.add_reference("qualifications/own.yaml", QUALIFIED)
    said = planned(site, "--full", names=("-n", "^lammps"), **ON_THREE)
    assert "the VMs of lammps_scaling have one boot (extras.recreate_vms creates VMs anew)." in said


def test_a_class_that_qualifies_no_build_says_so(site):
    answer = "cannot be called qualified: class kvm-on-emulated-hosts qualifies no build (emulated hosts)."
    assert planned(site, FAKE_CLASS="kvm-on-emulated-hosts").endswith(answer)


def test_what_makes_no_sense_is_refused_as_a_session_would_be(site):
    done = site.qualify("--plan", "--resume", "last", code=2)
    assert "--resume takes no option but --system and --wait" in " ".join(done.stderr.split())


def test_a_session_uses_eight_nodes_of_forty_unless_more_are_asked_for(site):
    hosts = {f"host-{k}": [f"cloud-{k}"] for k in range(1, 41)}
    cloud = {"session_access": ["--partition=cloud"], "nodes_of_hosts": hosts}
    env = {**ON_TWO, "FAKE_NODES": "40", "FAKE_EXTRAS_cloud": json.dumps(cloud)}
    assert "80 runs in the first round with its warm-ups" in planned(site, **env)
    assert "120 runs in the first round" in planned(site, "--nodes", "12", **env)
    done = site.qualify("--plan", "--nodes", "41", code=2, **env)
    assert "--nodes 41: system 'testsite' states 40 nodes of each side (extras.nodes)" in site.words(done)
