"""Other people's sites: what `virtqual system init` writes, and what `check` says to it.

tests/fakeslurm/replay answers as their Slurm and their nodes do, by a directory of tests/outputs/sites.
"""

import json
import os
import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from virtqual.site import systems

ROOT = Path(__file__).parents[3]
SITES = ROOT / "tests/outputs/sites"
COMMANDS = ("sinfo", "scontrol", "srun", "squeue", "sbatch", "scancel", "sacct", "sacctmgr")
PEOPLE_KNOW = {
    "vendor": "KVM",
    "build": "8.2.0",
    "accelerator": "kvm",
    "hypervisor_class": "kvm",
}


@pytest.fixture
def at(site, tmp_path):
    """Return how to be at another site, which is the `site` with the answers of another Slurm."""
    commands = tmp_path / "replay"
    commands.mkdir()
    for name in COMMANDS:
        (commands / name).symlink_to(ROOT / "tests/fakeslurm/replay")
    site.env["PATH"] = f"{commands}:{site.env['PATH']}"

    def arrive(name):
        site.env["FAKE_SITE"] = str(SITES / name)
        return site

    return arrive


def initialise(site, *options, native="standard", virtual="virt", code=0):
    """Call `virtqual system init`, and return what it printed, as one line."""
    named = [f"--{side}={name}" for side, name in (("native", native), ("virtual", virtual)) if name]
    return site.words(site.virtqual("system", "init", "mysite", *named, *options, code=code))


def complete(site, **changes):
    """Put in what only people know, and return the system that the file defines."""
    file = site.path / "site/systems/mysite.py"
    text = file.read_text("utf-8")
    for key, value in {**PEOPLE_KNOW, **changes}.items():
        text = re.sub(rf'"{key}": "TODO: [^"]*"', f'"{key}": {json.dumps(value)}', text)
    text = re.sub(r'"nodes_of_hosts": "TODO: [^"]*"', '"nodes_of_hosts": {}', text)
    file.write_text(text, "utf-8")
    return systems.read(file).load()


def read_draft(site):
    """Return the partitions that a drafted file defines, which may not be complete yet."""
    return runpy.run_path(str(site.path / "site/systems/mysite.py"))["system"]["partitions"]


def change(site, before, after):
    """Change the file of the system."""
    file = site.path / "site/systems/mysite.py"
    text = file.read_text("utf-8")
    assert before in text
    file.write_text(text.replace(before, after), "utf-8")


def check(site, *options, code=0):
    """Call `virtqual system check`, and return what it printed, as one line."""
    return site.words(site.virtqual("system", "check", "mysite", *options, code=code))


def test_a_usual_site(at):
    site = at("baseline")
    initialise(site)
    system = complete(site)
    assert (system.native_extras.nodes, system.virtual_extras.nodes) == (8, 8)
    assert dict(system.partition("native").processor) == {
        **{"arch": os.uname().machine, "num_cpus": 128, "num_cpus_per_core": 1, "num_sockets": 2}
    }
    assert system.native_extras.memory_mib == 230400
    assert "Slurm agrees with it, and so do the nodes" in check(site, "--on-nodes")


def test_cores_and_memory_that_slurm_keeps_are_not_stated(at):
    site = at("corespec")
    initialise(site, native="batch")
    text = (site.path / "site/systems/mysite.py").read_text("utf-8")
    assert '"num_cpus": 63,  # Slurm\'s CPUs of node088 (jobs get 63 of its 64: CoreSpecCount=1' in text
    system = complete(site)
    assert [system.partition(side).processor["num_cpus"] for side in ("native", "virtual")] == [63, 63]
    check(site, "--on-nodes")
    change(site, '"num_cpus": 63', '"num_cpus": 64')
    change(site, '"memory_mib": 231151', '"memory_mib": 510000')
    said = check(site, code=2)
    assert "num_cpus: states 64, but Slurm has 63 for node[081-088] (jobs get 63 of its 64: CoreSpec" in said
    assert (
        "states 510000, but Slurm has 507386 for node[081-088] (jobs get 507386 of its 515578: MemSp" in said
    )


def test_nodes_whose_memory_differs_by_some_mib_are_all_used(at):
    site = at("dynamic-memory")
    initialise(site)
    system = complete(site)
    assert (system.native_extras.nodes, "--exclude" in str(system.partition("native").access)) == (8, False)
    text = (site.path / "site/systems/mysite.py").read_text("utf-8")
    assert '"memory_mib": 216002,  # 90% of the 240003 MiB of the smallest node like cn0008' in text
    check(site)


def test_the_file_is_about_the_most_common_kind_of_nodes(at):
    site = at("pcs-mixed")
    said = initialise(site, native="general")
    kinds = "2 kinds of nodes: 4 nodes of 4 CPUs and 15564 MiB (c-2xl-[1-4]); 4 nodes of 16 CPUs and 249036"
    assert f"partition general has {kinds} MiB (r-8xl-[1-4])" in said
    system = complete(site)
    assert system.native_extras.session_access[:2] == ("--partition=general", "--exclude=r-8xl-[1-4]")
    assert (system.partition("native").processor["num_cpus"], system.native_extras.nodes) == (4, 4)
    check(site, "--on-nodes")
    change(site, ', "--exclude=r-8xl-[1-4]"', "")
    said = check(site, code=2)
    assert f"access: allows nodes of different sizes: partition general has {kinds}" in said


def test_a_job_that_comes_to_another_node_decides_what_is_stated(at):
    site = at("pcs-mixed")
    site.env["FAKE_ANY_NODE"] = "1"
    initialise(site, native="general")
    native, _ = read_draft(site)
    assert native["access"] == ["--partition=general", "--exclude=c-2xl-[1-4]"]
    assert (native["processor"]["num_cpus"], native["extras"]["nodes"]) == (16, 4)


def test_a_partition_that_is_split_by_a_feature(at):
    site = at("feature-split")
    said = initialise(site, native="normal", virtual="normal", code=2)
    assert "tell the nodes of one apart by --native-options and --virtual-options" in said
    options = ("--native-options=-C bare --time=4:00:00", "--virtual-options=--constraint=vm")
    initialise(site, *options, native="normal", virtual="normal")
    system = complete(site)
    assert [system.partition(side).name for side in ("native", "virtual")] == ["native", "virtual"]
    assert system.native_extras.session_access == (
        "--partition=normal",
        "--constraint=bare",
        "--time=4:00:00",
    )
    assert (system.native_extras.nodes, system.virtual_extras.nodes) == (8, 8)
    assert system.cores("native") == system.cores("virtual") == 120
    check(site, "--on-nodes")
    change(site, "--constraint=vm", "--constraint=gpu")
    assert "selects none of the nodes of partition normal: their features are bare, hdr, vm" in check(
        site, code=2
    )
    change(site, "--constraint=gpu", "--constraint=[vm|gpu]")
    said = check(site, code=2)
    assert "allows nodes of different sizes" in said


def test_the_default_partition_need_not_be_named(at):
    site = at("default-partition")
    said = initialise(site, native="", virtual="", code=2)
    assert "--native and --virtual name nothing" in said
    initialise(site, "--native-options=-C mc", "--virtual-options=-C vm", native="", virtual="")
    system = complete(site)
    assert system.partition("native").access == ("--constraint=mc",)
    assert system.native_extras.session_access == ("--constraint=mc", "--time=8:00:00")
    check(site, "--on-nodes")


def test_a_reservation_gives_its_nodes(at):
    site = at("reserved")
    initialise(site, "--native-options=--reservation=tests")
    system = complete(site)
    assert (system.native_extras.nodes, system.virtual_extras.nodes) == (4, 8)
    assert system.partition("native").access == ("--partition=standard", "--reservation=tests")
    change(site, '"nodes": 4,', '"nodes": 5,')
    assert "states 5, but partition standard has 4 nodes that the options of jobs allow" in check(
        site, code=2
    )


def test_a_hidden_partition_is_found(at):
    site = at("hidden")
    initialise(site)
    assert complete(site).virtual_extras.nodes == 8
    check(site, "--on-nodes")


def test_every_question_goes_to_the_cluster_that_access_names(at):
    site = at("multi-cluster")
    assert "Slurm has no partition 'standard'" in initialise(site, code=2)
    initialise(site, "--native-options=-M other", "--virtual-options=-M other")
    system = complete(site)
    assert "--clusters=other" in system.virtual_extras.session_access
    check(site, "--on-nodes")
    change(site, '"--partition=virt", "--clusters=other"', '"--partition=virt"')
    assert "access: --clusters must be the same" in check(site, code=2)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("part-inactive", (), "--virtual: partition virt is INACTIVE: it takes no jobs and begins none"),
        ("deny-maxnodes", ("--account=HPCops",), "partition virt takes all but hpcops (DenyAccounts)"),
        ("deny-maxnodes", (), "takes jobs in a reservation alone (ReqResv=YES)"),
        ("hidden", ("--native-options=bare",), "--native-options: 'bare' is no option of Slurm"),
        ("hidden", ("--virtual-options=-M a",), "--clusters differs between --native-options and --virtual-"),
    ],
)
def test_what_slurm_would_not_run_is_said_before_a_node_is_asked_for(at, name, options, says):
    said = initialise(at(name), *options, code=2)
    assert says in said
    assert "a short job" not in said


def test_a_session_asks_for_no_more_than_limits_allow(at):
    site = at("deny-maxnodes")
    options = ("--account=staff", "--virtual-options=--reservation=vms")
    site.env["FAKE_RESERVATION"] = "vms vm[0001-0008]"
    initialise(site, *options)
    text = (site.path / "site/systems/mysite.py").read_text("utf-8")
    assert '"nodes": 2,  # MaxNodes of partition virt; virt has 8' in text
    assert '"num_cpus": 64,  # Slurm\'s CPUs of vm0008 (jobs get 64 of its 128: MaxCPUsPerNode=64 of' in text


@pytest.mark.parametrize(
    "name", ["notice", "taskepilog", "states", "1024cpus", "cpus1", "nps4", "cpu0-offline"]
)
def test_sites_that_differ_in_what_they_print(at, name):
    site = at(name)
    native = {"1024cpus": "smp", "cpus1": "general"}.get(name, "standard")
    initialise(site, native=native)
    draft, _ = read_draft(site)
    size = {"1024cpus": 1024, "cpus1": 1, "cpu0-offline": 126}.get(name, 128)
    assert draft["processor"]["num_cpus"] == size
    nodes = {"1024cpus": 2, "cpus1": 2, "states": 12}.get(name, 8)
    assert draft["extras"]["nodes"] == nodes


def test_a_template_without_slurm(at, tmp_path):
    site = at("baseline")
    path, site.env["PATH"] = site.env["PATH"], f"{Path(sys.executable).parent}:/usr/bin:/bin"
    # A machine may have Slurm's commands and no cluster.
    has_commands = shutil.which("scontrol", path=site.env["PATH"])
    said = "(--offline writes a template" if has_commands else "run this on a login node, or write a template"
    assert said in initialise(site, code=5)
    said = initialise(site, "--offline", "--virtual-options=-C vm", virtual="standard")
    assert "processor.num_cpus: TODO: the CPUs that jobs get of a node" in said
    site.env["PATH"] = path
    assert "system.partitions[native].extras.nodes: TODO: how many nodes" in check(site, code=2)
    file = site.path / "site/systems/mysite.py"
    numbers = {"num_cpus": 128, "num_cpus_per_core": 1, "num_sockets": 2, "nodes": 8, "memory_mib": 200000}
    text = file.read_text("utf-8").replace('"TODO: a directory that all', '"/tmp", # "')
    for key, value in {**numbers, "llc_bytes": 2**29, "numa_nodes": 2}.items():
        text = re.sub(rf'"{key}": "TODO: [^"]*"', f'"{key}": {value}', text)
    file.write_text(text, "utf-8")
    assert complete(site).native_extras.session_access == ("--partition=standard", "--time=8:00:00")
