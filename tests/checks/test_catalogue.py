"""What `reframe -L` and a session say there is, and what cannot run here."""

import json
import re
from pathlib import Path

from virtqual.references import load_references
from virtqual.stack import manifest
from virtqual.stack.manifest import Manifest, Program

LONGER = "in the full scope only (reframe -S scope=full, virtqual qualify --full)"


def test_the_list_reads_like_a_catalogue(site):
    done = site.run("reframe", "-c", f"{site.env['VIRTQUAL_ROOT']}/checks", "-L", "--system", "testsite")
    assert done.returncode == 0, done.stdout + done.stderr
    entry = done.stdout[done.stdout.index("- lammps problem=lj") :].splitlines()[:4]
    assert entry[1].startswith("    LAMMPS")
    assert "quick" in entry[2]
    assert entry[3] == "    asks for: +lammps"
    # One entry a check, not one a sample; and what this stack has no program for is named.
    assert "sample" not in done.stdout
    assert "  linpack: no program with the feature 'hpcc' in the stack" in done.stdout


def test_a_system_that_is_not_there_is_no_system_that_lacks_every_program(site):
    checks = f"{site.env['VIRTQUAL_ROOT']}/checks"
    for option in ("-L", "-r"):
        done = site.run("reframe", "-c", checks, option, "--system", "vcluster")
        assert done.returncode != 0
        assert "the one-machine cluster is not up: run `vcluster up`" in done.stdout + done.stderr
        assert "no program with the feature" not in done.stdout


# Four VMs of one core each share a host of two cores.
SHARING = {"nodes_of_hosts": {"host": [f"cloud-{k}" for k in range(1, 5)]}, "memory_mib": 1024, "nodes": 4}


# What `-t` selects by (docs/checks.md).
TOPICS, SCOPES = {"memory", "mpi", "rdma", "linpack", "app"}, {"quick", "full"}
FEATURES = (
    "stream", "memory-bandwidth", "mpi-latency", "mpi-bandwidth", "osu", "perftest", "hpcc", "xhpl", "npb",
    "lammps", "namd", "wrf-ideal", "wrf-real", "milc", "stress-ng",
)  # fmt: skip


def test_every_entry_is_described_and_found_by_topic_and_scope(site):
    path = Path("/bin/true")
    program = Program(
        name="all",
        version="1",
        origin="the tests",
        path=path,
        sha256=manifest.sha256(path),
        features=FEATURES,
    )
    (site.path / "state/stack/all").mkdir()
    Manifest(name="all", pins="none", programs=(program,)).write(site.path / "state/stack/all")
    checks = Path(site.env["VIRTQUAL_ROOT"]) / "checks"
    env = {"FAKE_NODES": "2", "FAKE_NUMA": "2", "FAKE_FEATURES_bare": "rdma", "FAKE_FEATURES_cloud": "rdma"}
    env |= {"FAKE_CPUS_cloud": "4", "FAKE_CPUS_bare": "8", "FAKE_EXTRAS_cloud": json.dumps(SHARING)}
    done = site.run("reframe", "--mode=full", "-c", str(checks), "-L", "--system", "testsite", **env)
    assert done.returncode == 0, done.stdout + done.stderr
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
        for file in checks.glob("*.py")
        for name in re.findall(r"^@overhead\.simple_test\nclass (\w+)", file.read_text(), re.MULTILINE)
    }
    fetched = {"namd_stmv", "namd_stmv_nodes", "namd_stmv_vms", "wrf_conus12km", "wrf_conus12km_scaling"}
    assert {name for name, *_ in entries} == defined - fetched
    assert set(re.findall(r"^  (\w+).*: the input .* is not here", done.stdout, re.MULTILINE)) == fetched
    # What is asked for of a build before it is called qualified exists, in the scope that is said.
    asked = {
        (one.check.replace(" %", " "), found.scope)
        for found in load_references(checks.parent / "references").qualifications.values()
        for one in found.checks
    }
    named = re.findall(r"^- (\w+.*)\n    .*\n    tags: (.*)\n", done.stdout, re.MULTILINE)
    there = {(name, scope) for name, tags in named for scope in tags.split(", ")}
    there |= {(name.split(" ")[0], scope) for name, scope in there}
    assert asked
    assert asked <= there
    assert "asks for: +stream, 2 VMs of one host" in done.stdout
    why = r"^  (\w+).*: overcommitted.*: 4 VMs have 16 cores together, their host 8$"
    overcommitted = set(re.findall(why, done.stdout, re.MULTILINE))
    assert overcommitted == {"stream_vms", "namd_water_vms", "namd_stmv_vms"}
    # What runs without something is told, too.
    lost = (
        "its share of communication is not observable: no program with the feature 'mpi-profile' in the stack"
    )
    assert f"  wrf_ideal_scaling: {lost}" in done.stdout.splitlines()


def test_rdma_is_measured_if_both_partitions_have_it(site):
    path = Path("/bin/true")
    perftest = Program(
        name="perftest", version="4.5", origin="the tests", path=path, sha256=manifest.sha256(path),
        features=("perftest",),
    )  # fmt: skip
    (site.path / "state/stack/micro").mkdir()
    Manifest(name="micro", pins="none", programs=(perftest,)).write(site.path / "state/stack/micro")

    def listed(how, **features):
        checks = f"{site.env['VIRTQUAL_ROOT']}/checks"
        line = ("reframe", "-S", "scope=full", "-c", checks, "--system", "testsite", "-n", "^rdma_lat", how)
        return re.sub(" /[0-9a-f]+", "", site.run(*line, FAKE_NODES="2", **features).stdout)

    native, virtual = {"FAKE_FEATURES_bare": "rdma"}, {"FAKE_FEATURES_cloud": "rdma"}
    concrete = listed("-LC", **native, **virtual)
    for sample, partition in (("warm-up-N", "bare"), ("warm-up-V", "cloud"), ("0N", "bare"), ("1V", "cloud")):
        assert f"rdma_latency %sample={sample} %operation=write @testsite:{partition}+micro" in concrete
    assert "rdma_latency_overhead %operation=write @testsite:cloud+micro" in concrete
    for features, side in ((virtual, "native"), (native, "virtual")):
        needed = f"rdma_latency (3 cases): needs a {side} partition with the feature 'rdma'"
        assert needed in listed("-L", **features)


def test_a_session_says_what_was_not_run(site):
    done = site.virtqual("qualify", "--system", "testsite")
    (file,) = (site.path / "state/sessions").glob("*/session.json")
    session = json.loads(file.read_text())
    (programs,) = [line for line in session["not_run"] if line.startswith("no program in the stack for: ")]
    assert ", linpack (hpcc), " in programs
    (longer,) = [line for line in session["not_run"] if line.startswith(LONGER)]
    assert set(longer.removeprefix(f"{LONGER}: ").split(", ")) >= {"lammps_scaling", "lammps (3 of 4 cases)"}
    assert "Not run here:" in done.stdout
