"""What `reframe -L` and a session say there is, and what cannot run here."""

import json
import re
from pathlib import Path

import pytest
from site_runs import CHECKS, ROOT, make_program, make_stack, outcome

from virtqual.references import load_references

LONGER = "only with --full (reframe --mode=full)"


def test_a_system_that_is_not_there_is_no_system_that_lacks_every_program(site):
    for option in ("-L", "-r"):
        done = site.run("reframe", *CHECKS[:2], option, "--system", "vcluster", code=1)
        assert "the one-machine cluster is not up: run `vcluster up`" in outcome(done)
        assert "no program with the feature" not in done.stdout


# Four VMs of one core each share a host of two cores.
SHARING = {"nodes_of_hosts": {"host": [f"cloud-{k}" for k in range(1, 5)]}, "memory_mib": 1024, "nodes": 4}


# What `-t` selects by (docs/checks.md).
TOPICS, SCOPES = {"memory", "noise", "storage", "service", "mpi", "rdma", "linpack", "app"}, {"quick", "full"}
FEATURES = (
    "stream", "memory-bandwidth", "mpi-latency", "mpi-bandwidth", "osu", "perftest", "hpcc", "xhpl", "npb",
    "lammps", "namd", "wrf-ideal", "wrf-real", "milc", "stress-ng",
    "pointer-chase", "fixed-work", "fio", "ior", "postgresql", "openfoam", "web-events",
)  # fmt: skip


def missing(text, reason):
    """Return the checks that a detailed list has under a reason."""
    lines = re.findall(f"^  {reason}: (.*)$", text, re.MULTILINE)
    return {name for line in lines for name in re.sub(r" \(.*?\)", "", line).split(", ")}


def test_every_entry_is_described_and_found_by_topic_and_scope(site):
    make_stack(site, "all", make_program(Path("/bin/true"), "all", "1", features=FEATURES))
    env = {"FAKE_NODES": "2", "FAKE_NUMA": "2", "FAKE_FEATURES_bare": "rdma", "FAKE_FEATURES_cloud": "rdma"}
    env |= {"FAKE_CPUS_cloud": "4", "FAKE_CPUS_bare": "8"}
    scratch = {"scratch": "/scratch", "shared_scratch": "/lustre"}
    env |= {"FAKE_EXTRAS_cloud": json.dumps(SHARING | scratch), "FAKE_EXTRAS_bare": json.dumps(scratch)}
    done = site.run("reframe", "--mode=full", *CHECKS, "-L", code=0, **env)
    entries = re.findall(r"^- (\w+).*\n    (.*)\n    tags: (.*)\n", done.stdout, re.MULTILINE)
    assert len(entries) == len(re.findall("^- ", done.stdout, re.MULTILINE))
    for name, description, tags in entries:
        words = set(tags.split(", "))
        assert len(description.split()) > 2, name
        assert words & TOPICS, (name, tags)
        # The full scope has all; the quick one some of it.
        assert "full" in words & SCOPES, (name, tags)
    # All that there is, but for what has to be fetched first.
    defined = {
        name
        for file in (ROOT / "checks").glob("*.py")
        for name in re.findall(r"^@overhead\.simple_test\nclass (\w+)", file.read_text(), re.MULTILINE)
    }
    fetched = {"namd_stmv", "namd_stmv_nodes", "namd_stmv_vms", "wrf_conus12km", "wrf_conus12km_scaling"}
    assert {name for name, *_ in entries} == defined - fetched
    assert missing(done.stdout, "the input .* is not here.*") == fetched
    # What is asked for of a build before it is called qualified exists, in the scope that is said.
    needed = {
        (needed_check.check.replace(" %", " "), qualification.scope)
        for qualification in load_references(ROOT / "references").qualifications.values()
        for needed_check in qualification.checks
    }
    named = re.findall(r"^- (\w+.*)\n    .*\n    tags: (.*)\n", done.stdout, re.MULTILINE)
    listed = {(name, scope) for name, tags in named for scope in tags.split(", ")}
    listed |= {(name.split(" ")[0], scope) for name, scope in listed}
    assert needed
    assert needed <= listed
    assert "asks for: +stream, 2 nodes" in done.stdout
    overcommitted = missing(done.stdout, "overcommitted.*: 4 VMs have 16 cores together, their host 8")
    assert overcommitted == {
        "stream_vms",
        "namd_water_vms",
        "namd_stmv_vms",
        "throughput_vms",
        "web_events_vms",
    }
    # What runs without something is told, too.
    lost = (
        "its share of communication is not observable: no program with the feature 'mpi-profile' in the stack"
    )
    assert missing(done.stdout, lost) >= {"wrf_ideal_scaling"}


def test_rdma_is_measured_if_both_partitions_have_it(site):
    make_stack(site, "micro", make_program(Path("/bin/true"), "perftest", "4.5"))

    def listed(how, **features):
        line = ("reframe", "-S", "scope=full", *CHECKS, "-n", "^rdma_lat", how)
        return re.sub(" /[0-9a-f]+", "", site.run(*line, FAKE_NODES="2", **features).stdout)

    native, virtual = {"FAKE_FEATURES_bare": "rdma"}, {"FAKE_FEATURES_cloud": "rdma"}
    concrete = listed("-LC", **native, **virtual)
    for sample, partition in (("warm-up-N", "bare"), ("warm-up-V", "cloud"), ("0N", "bare"), ("1V", "cloud")):
        assert f"rdma_latency %sample={sample} %operation=write @testsite:{partition}+micro" in concrete
    assert "rdma_latency_overhead %operation=write @testsite:cloud+micro" in concrete
    for features, side in ((virtual, "native"), (native, "virtual")):
        needed = f"needs a {side} partition with the feature 'rdma'.*"
        assert missing(listed("-L", **features), needed) >= {"rdma_latency"}


@pytest.mark.parametrize("database", [(), ("postgresql",)])
def test_a_web_application_without_its_database_is_named(site, database):
    make_stack(site, "web", make_program(Path("/bin/true"), "web", "1", features=("web-events", *database)))
    done = site.run("reframe", "-c", str(ROOT / "checks/web_events.py"), *CHECKS[2:], "--mode=full", "-L")
    why = "needs a stack with both features 'web-events' and 'postgresql'.*"
    assert ("web_events" in missing(done.stdout, why)) == (not database), outcome(done)


def test_a_session_says_what_was_not_run(site):
    done = site.qualify("--pairs", "2")
    session = site.session()
    (programs,) = [line for line in session["not_run"] if line.startswith("no program in the stack for: ")]
    assert ", linpack (hpcc), " in programs
    (longer,) = [line for line in session["not_run"] if line.startswith(LONGER)]
    assert set(longer.removeprefix(f"{LONGER}: ").split(", ")) >= {"lammps_scaling", "lammps (3 of 4 cases)"}
    assert "Not run here:" in done.stdout
