"""Checks from program to verdict, on the stand-in site."""

import json
import os
import re
import shutil
import sys
import time

import pytest
from site_runs import (
    CHECKS,
    FAKE,
    SITE_OF_VMS,
    SMALL_VM,
    copy_stand_in,
    make_program,
    make_stack,
    outcome,
    read_cases,
    read_runs,
)

OSU = ("osu_latency", "osu_bw")
POSTGRES = {**dict.fromkeys(("postgres", "initdb", "pg_ctl"), "postgres"), "pgbench": "pgbench"}
BOTH = ("-n", r"^stream.*%threads=1\b|^osu_node.*%benchmark=(latency|bw)$")

QUALIFY = ("qualify", "--system", "testsite", "--stack", "micro", "--full")


@pytest.fixture
def equipped(site):
    """A second stack on the site, with stand-ins for the programs."""
    names = ("stream", "stress-ng", "pointer_chase", "fixed_work", "fio")
    stream, stress_ng, pointer_chase, fixed_work, fio = (copy_stand_in(site, "micro", name) for name in names)
    osu = {name: copy_stand_in(site, "micro", "osu", name) for name in OSU}
    ior = {name: copy_stand_in(site, "micro", "ior", name) for name in ("ior", "mdtest")}
    postgres = {name: copy_stand_in(site, "micro", file, name) for name, file in POSTGRES.items()}
    make_stack(
        site,
        "micro",
        make_program(stream, "stream", "5.10"),
        make_program(osu["osu_latency"], "osu", "7.4", data=osu),
        make_program(stream, "npb", "3.4.3"),
        make_program(stress_ng, "stress-ng", "0.15.06"),
        make_program(pointer_chase, "pointer-chase", "1.0"),
        make_program(fixed_work, "fixed-work", "1.0"),
        make_program(fio, "fio", "3.33"),
        make_program(ior["ior"], "ior", "4.0.0", data=ior),
        make_program(postgres["postgres"], "postgresql", "15.18", data=postgres),
        make_program(copy_stand_in(site, "micro", "events"), "events", "1.0", features=("web-events",)),
    )
    return site


def read_values(site) -> dict[str, float]:
    return {
        key.rpartition(":")[2]: entry[0]
        for case in read_cases(site)
        for key, entry in (case["perfvalues"] or {}).items()
    }


def test_stream_and_osu_are_judged(equipped):
    """STREAM by number of threads; OSU by its median, which the stand-in leaves undisturbed."""
    done = equipped.reframe(*BOTH, code=0)
    for kernel in ("copy", "scale", "add", "triad"):
        assert f"WITHIN memory_{kernel}@STREAM, 1 thread" in done.stdout
    for metric in ("latency", "bandwidth"):
        assert f"WITHIN osu_{metric}@same node, median" in done.stdout
    values = read_values(equipped)
    assert values["memory_triad"] == pytest.approx(20e3, rel=0.02)
    assert values["osu_latency_1"] == pytest.approx(0.5, rel=0.03)
    assert {f"osu_latency_{2**power:g}" for power in range(23)} <= values.keys()


def test_fresh_pages_and_forks_are_judged_by_the_time_of_one(equipped):
    equipped.fault("slow.cloud", "1.1")
    done = equipped.reframe("-n", "^paging", checks="paging.py", code=0)
    assert "WITHIN page_touch_time@4 KiB pages" in done.stdout
    assert "WITHIN fork_time@one core" in done.stdout
    values = read_values(equipped)
    assert values["page_touch_time"] == pytest.approx(0.5, rel=0.15)
    assert values["fork_time"] == pytest.approx(100, rel=0.15)


def test_a_stressor_that_did_less_or_is_of_another_version_than_it_was_asked_for_is_refused(equipped):
    equipped.fault("fault.resident")
    done = equipped.reframe("-n", "^paging", checks="paging.py", VIRTQUAL_PAIRS="0:0")
    assert done.returncode != 0
    assert "no more than 2662400 bytes were in memory, 8388608 were to be written" in outcome(done)
    equipped.fault("fault.operations")
    file = equipped.path / "site/stacks/micro/manifest.json"
    file.write_text(file.read_text().replace('"0.15.06"', '"0.18.02"'))
    done = equipped.reframe("-n", "^paging.*forks", checks="paging.py", VIRTQUAL_PAIRS="0:0")
    assert done.returncode != 0
    assert re.search(r"operations \d+9, asked for \d+00", outcome(done)), outcome(done)
    assert "version '0.15.06', asked for '0.18.02'" in outcome(done), outcome(done)


def test_memory_latency_is_judged_by_working_set_if_both_sides_got_the_same_pages(equipped):
    equipped.fault("fault.thp.cloud")
    done = equipped.reframe("-n", "^memory_latency", "-S", "scope=full", checks="memory_latency.py")
    assert done.returncode != 0
    assert "WITHIN memory_latency@4K pages" in done.stdout, outcome(done)
    assert "INVALID memory_latency@THP pages" in done.stdout
    assert re.search(r"share in huge pages is [01]\b.*, [01]\b", outcome(done)), outcome(done)
    assert read_values(equipped)["memory_latency_65536"] == pytest.approx(2, rel=0.03)


def test_rare_interruptions_of_vms_are_over_although_the_mean_is_not(equipped):
    equipped.fault("slow.cloud", "1.3")
    done = equipped.reframe("-n", "^os_noise", "-S", "scope=full", checks="os_noise.py")
    assert done.returncode != 0
    assert re.search(r"(WITHIN|UNDECIDED) work_mean@", done.stdout), outcome(done)
    assert re.search(r"OVER work_tail@\d+ cores?: .*from 10 to 1000 pieces", done.stdout), outcome(done)


def test_a_program_that_starts_a_thread_on_each_cpu_gets_one_of_each_core(equipped):
    """Bound to cores, a task may use all threads of them (Slurm's task/affinity); here nothing is bound."""
    threads = {"FAKE_SMT": "2", "FAKE_CPUS_bare": "2", "FAKE_CPUS_cloud": "2"}
    equipped.reframe("-n", "^os_noise%", checks="os_noise.py", code=1, **threads, VIRTQUAL_PAIRS="0:0")
    scripts = [file.read_text() for file in (equipped.path / "slurm/reframe").rglob("rfm_job.sh")]
    assert scripts
    assert all("--cpu-bind=threads " in script for script in scripts)
    assert all("--threads-per-core=1" in script for script in scripts)


def test_storage_is_judged_below_the_stated_directory_and_nothing_is_left_there(equipped):
    scratch = equipped.path / "scratch"
    scratch.mkdir()
    equipped.fault("slow.cloud", "2")
    extras = json.dumps({"scratch": str(scratch)})
    env = {"FAKE_EXTRAS_bare": extras, "FAKE_EXTRAS_cloud": extras}
    done = equipped.reframe("-n", "^storage.*direct", "-S", "scope=full", checks="storage.py", code=1, **env)
    for metric in ("random_read", "random_write", "read", "write", "sync", "sync_p99"):
        assert f"OVER storage_{metric}@direct" in done.stdout, outcome(done)
    assert list(scratch.iterdir()) == []


def test_a_shared_file_system_is_judged_from_two_nodes_and_nothing_is_left_there(equipped):
    shared = equipped.path / "shared"
    shared.mkdir()
    equipped.fault("slow.cloud", "2")
    extras = json.dumps({"shared_scratch": str(shared)})
    env = {"FAKE_NODES": "2", "FAKE_EXTRAS_bare": extras, "FAKE_EXTRAS_cloud": extras}
    selected = ("-n", "^ior.*hard|^mdtest", "-S", "scope=full")
    done = equipped.reframe(*selected, checks="ior.py", code=1, **env)
    for metric in ("write", "read"):
        assert f"OVER ior_{metric}@hard, 4 tasks" in done.stdout, outcome(done)
    for metric in ("create", "stat", "remove"):
        assert f"OVER mdtest_{metric}@4 tasks" in done.stdout, outcome(done)
    assert list(shared.iterdir()) == []
    equipped.fault("fault.data")
    equipped.fault("fault.capacity.cloud")
    done = equipped.reframe(*selected, checks="ior.py", code=1, VIRTQUAL_PAIRS="0:0", **env)
    assert "Incorrect data on read (512 errors found)" in outcome(done)
    assert "system, GiB is 250 in native pair 0 and 100 in virtual pair 0" in outcome(done), outcome(done)
    shared.rmdir()
    done = equipped.reframe(*selected, checks="ior.py", code=1, VIRTQUAL_PAIRS="0:0", **env)
    assert "No such file or directory" in outcome(done)


@pytest.fixture
def served(equipped):
    """The site without `setpriv`: the directories of tests are closed to other users."""
    equipped.stand_in(
        "setpriv", '#!/bin/sh\nwhile case $1 in --*) ;; *) false ;; esac; do shift; done\nexec "$@"\n'
    )
    return equipped


def test_both_sides_of_a_database_get_the_same_rates_which_are_shares_of_the_native_peak(served):
    served.fault("slow.cloud", "2")
    line = ("-n", "^db_pgbench.*load=all.*memory", "-S", "scope=full")
    done = served.reframe(*line, checks="db_pgbench.py", FAKE_SCALE="small", code=1)
    for metric in ("throughput", "p50"):
        assert f"OVER db_{metric}@memory, " in done.stdout, outcome(done)
    (peak,) = {answer["value"] for run in served.session()["runs"] for answer in run["answers"]}
    assert peak == pytest.approx(400, rel=0.05)
    scripts = served.path.glob("slurm/reframe/output/*/testsite/*/micro/db_pgbench_[0-9a-f]*/rfm_job.sh")
    loads = [re.findall(r"peak:5:|\d\d:12:[\d.]+", script.read_text()) for script in scripts]
    rates = [f"{share}:12:{peak * share / 100:.6g}" for share in (10, 25, 75)]
    assert sorted(loads) == [["peak:5:"]] * 2 + [["peak:5:", *rates]] * 8
    # The largest rate and the share of late transactions are reported, and not judged.
    assert {"db_p50_75", "db_on_time_10"} <= read_values(served).keys()
    (latency,) = [v for v in served.session()["verdicts"] if v["metric"] == "db_p50"]
    assert [point["size"] for point in latency["points"]] == [10, 25]
    report = next(served.path.rglob("report.html")).read_text()
    assert "Reported, and not judged" in report
    assert "db_on_time, memory, " in report


def test_the_client_of_a_database_is_on_another_node_if_each_side_has_two(served):
    line = ("-n", "^db_pgbench.*load=quarter.*memory", "-S", "scope=full")
    served.report("steal", "foreign-load", "node-clock")
    done = served.reframe(*line, checks="db_pgbench.py", FAKE_NODES="2", VIRTQUAL_PAIRS="0:1")
    assert re.search(r"db_p50@memory, \d+ connections, client on another node", done.stdout), outcome(done)
    assert {tuple(run["nodes"]) for run in served.session()["runs"]} == {
        ("bare-1", "bare-2"),
        ("cloud-1", "cloud-2"),
    }
    served.fault("fault.start.cloud")
    done = served.reframe(*line, checks="db_pgbench.py", FAKE_NODES="2", VIRTQUAL_PAIRS="0:0", code=1)
    assert "PostgreSQL: the start of the server failed" in " ".join(outcome(done).split()), outcome(done)


def test_vms_of_which_only_the_change_is_judged_are_offered_no_share_of_a_native_peak(equipped):
    line = ("reframe", "-c", f"{CHECKS[1]}/db_pgbench.py", *CHECKS[2:], "-L")
    listed = equipped.run(*line, FAKE_EMULATED="1")
    assert "VMs of class 'emulated' are too slow for shares of a native peak" in listed.stdout, outcome(
        listed
    )
    assert "- db_pgbench" not in listed.stdout


def test_a_client_that_is_the_limit_makes_the_latencies_invalid(served):
    served.fault("fault.client.cloud")
    done = served.reframe(
        "-n", "^db_pgbench.*load=quarter.*memory", checks="db_pgbench.py", VIRTQUAL_PAIRS="0:1", code=1
    )
    assert re.search(r"INVALID db_p50@memory, \d+ connections, quarter load", done.stdout), outcome(done)
    assert "the client is the limit: it begins requests 20 ms late (p99)" in outcome(done)


def test_a_database_that_does_not_start_and_a_peak_that_is_not_known_are_named(served):
    served.fault("fault.start.cloud")
    quarter = ("-n", "^db_pgbench.*load=quarter.*memory")
    done = served.reframe(*quarter, checks="db_pgbench.py", VIRTQUAL_PAIRS="0:0", code=1)
    why = "the start of the server failed: FATAL: could not create semaphores: No space left on device"
    assert f"PostgreSQL: {why}" in " ".join(outcome(done).split()), outcome(done)
    done = served.reframe(*quarter, checks="db_pgbench.py", VIRTQUAL_PAIRS="1:1")
    assert "the native peak is not known, of which shares are offered" in " ".join(outcome(done).split())


@pytest.fixture
def asked(served):
    """The site with a stand-in for the client of the web application."""
    served.report("steal", "foreign-load", "node-clock")
    client = f"until [ $1 = web_load.py ]; do shift; done; shift; exec {sys.executable} {FAKE}/web_load"
    for name in ("taskset", "env"):
        line = f'case "$*" in *" web_load.py "*) {client} "$@" ;; esac\nexec {shutil.which(name)} "$@"\n'
        served.stand_in(name, f"#!/bin/sh\n{line}")
    return served


@pytest.mark.skipif(os.cpu_count() == 1, reason="on one CPU the client has no cores of its own")
def test_a_web_application_is_judged_by_its_peak_and_its_response_times_at_shares_of_the_native_peak(asked):
    asked.fault("slow.cloud", "1.5")
    done = asked.reframe("-n", "^web_events", "-S", "scope=full", checks="web_events.py", code=1)
    assert re.search(r"OVER web_throughput@Java 17.0.15, \d+ cores?", done.stdout), outcome(done)
    assert re.search(r"OVER web_p50@.* at 75 % of the native peak", done.stdout), outcome(done)
    judged = {v["metric"]: [point["size"] for point in v["points"]] for v in asked.session()["verdicts"]}
    assert judged == {
        "web_throughput": [],
        "web_critical_throughput": [],
        "web_p50": [25, 50, 75],
        "web_p99": [25, 50],
    }
    # The stand-in is an M/M/1 queue: p99 is ln(100) / (400/s - rate), in the VM ln(100) / (267/s - rate).
    rates = {
        run["side"]: result["values"][0]
        for run in read_runs(asked)
        for result in run["results"]
        if result["metric"] == "web_critical_throughput"
    }
    assert rates["virtual"] / rates["native"] == pytest.approx(0.55, abs=0.12)


def test_the_client_of_a_web_application_is_on_another_node_if_each_side_has_two(asked):
    line = ("-n", "^web_events", "-S", "scope=full")
    done = asked.reframe(*line, checks="web_events.py", FAKE_NODES="2", VIRTQUAL_PAIRS="0:1")
    assert re.search(r"web_p50@Java 17.0.15, \d+ cores?, client on another node", done.stdout), outcome(done)


@pytest.mark.skipif(os.cpu_count() == 1, reason="two VMs need two CPUs")
def test_servers_in_vms_of_one_host_are_compared_with_as_many_on_one_native_node(asked):
    asked.stand_in("grep", SMALL_VM, "cloud")
    line = ("-n", "^web_events_vms", "-S", "scope=full", "--keep-stage-files")
    done = asked.reframe(*line, checks="web_events.py", **SITE_OF_VMS, VIRTQUAL_PAIRS="0:1", code=0)
    assert "WITHIN web_throughput@Java 17.0.15, 2 VMs of one host, 1 core each" in done.stdout, outcome(done)
    # Each of the stand-ins answers 400 requests a second.
    peaks = [run["results"][0]["values"] for run in read_runs(asked)]
    assert peaks == [[pytest.approx(800, rel=0.05)]] * 4
    asked.fault("fault.page.cloud")
    done = asked.reframe(*line, checks="web_events.py", **SITE_OF_VMS, VIRTQUAL_PAIRS="0:0", code=1)
    assert "the warm-up: wrong 1 of 12000" in " ".join(outcome(done).split()), outcome(done)


@pytest.mark.skipif(os.cpu_count() == 1, reason="on one CPU the client has no cores of its own")
@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("fault.client", "INVALID web_p50@.* the client is the limit: each of its threads used 0.70"),
        ("fault.page", "wrong answers: 1 of 12000: remark: no <dd>12</dd> among 3000 bytes"),
        (
            "fault.begin",
            "the application did not start: Web server failed to start. Port 8080 was already in use",
        ),
        ("fault.end", "the application ended under load: java.lang.OutOfMemoryError: Java heap space"),
    ],
)
def test_a_web_application_that_cannot_be_measured_says_why(asked, fault, why):
    asked.fault(f"{fault}.cloud")
    done = asked.reframe(
        "-n", "^web_events", "-S", "scope=full", checks="web_events.py", VIRTQUAL_PAIRS="0:1", code=1
    )
    assert re.search(why, " ".join(outcome(done).split())), outcome(done)


@pytest.mark.skipif(os.cpu_count() == 1, reason="one CPU has no second hardware thread")
def test_ranks_and_threads_have_cores_until_there_are_more_threads_than_cores(equipped):
    """All CPUs here are said to be hardware threads of one core."""
    done = equipped.reframe("-n", r"^stream(_overhead)?%", FAKE_SMT=str(os.cpu_count()), VIRTQUAL_PAIRS="0:1")
    assert "WITHIN memory_triad@STREAM, 1 thread" in done.stdout, outcome(done)
    cores_by_threads = {}
    output = equipped.path / "slurm/reframe/output"
    for script in output.glob("*/testsite/*/micro/stream_[0-9a-f]*/rfm_job.sh"):
        text = script.read_text()
        threads = int(re.search(r"OMP_NUM_THREADS=(\d+)", text)[1])
        cores_by_threads.setdefault(threads, set()).add("--threads-per-core=1" in text)
    assert cores_by_threads == {threads: {threads == 1} for threads in (1, os.cpu_count())}


def test_each_of_npb_takes_the_class_that_fits_it(equipped):
    """4 GiB hold CG's arrays of class C (1.1 GB) twice, not those of IS (2.4 GB)."""
    done = equipped.reframe("-n", "^npb.*%kernel=(is|cg)$", checks="npb.py", VIRTQUAL_PAIRS="0:0", code=1)
    for binary in ("is.B.x", "cg.C.x"):
        assert f"stack 'micro' provides no {binary}" in outcome(done), outcome(done)


NUMACTL = """#!/bin/bash
# Two sockets of two nodes each: memory of the other socket is half as fast.
if [ "$1" = --hardware ]; then
    for node in 0 1 2 3; do echo "node $node cpus: $node"; echo "node $node size: 1000 MB"; done
    echo "node distances:"; echo "node   0   1   2   3"; echo "  0:  10  12  32  32"
    exit
fi
case "$1 $2" in "--cpunodebind=0 --membind="[23]) export FAKE_SLOWER=2 ;; esac
shift 2; exec "$@"
"""


def test_stream_from_local_and_remote_memory_where_nodes_show_several(equipped):
    reason = r"needs a native partition with the feature 'numa'.*: .*stream_numa \(2 cases\)"
    assert re.search(reason, equipped.run("reframe", *CHECKS, "-L").stdout)
    equipped.stand_in("numactl", NUMACTL)
    equipped.virtqual(*QUALIFY, "-n", "stream_numa", FAKE_NUMA="4", code=0)
    results = [result for run in equipped.session()["runs"] for result in run["results"]]
    rates = {(r["metric"], r["setting"].rpartition(", ")[2]): r["values"][0] for r in results}
    ratio = rates["memory_triad", "remote memory (node 3)"] / rates["memory_triad", "local memory (node 0)"]
    assert ratio == pytest.approx(0.5, rel=0.05)


# A stand-in for `grep` on one partition: its nodes have their CPUs in two NUMA nodes.
TWO_NODES = r"""#!/bin/sh
/usr/bin/env PATH=/usr/bin:/bin grep "$@" |
    sed 's|^\(/sys/devices/system/node/node\)0/cpulist:.*|\10/cpulist:0\n\11/cpulist:1-{last}|'
"""


def test_numa_nodes_hidden_on_purpose_are_measured_and_shown_but_never_qualified(equipped):
    """The OpenStack study's VM, which shows one node of a host of two (claim D11)."""
    if os.cpu_count() < 2:
        pytest.skip("two NUMA nodes need two CPUs")
    equipped.stand_in("grep", TWO_NODES.format(last=os.cpu_count() - 1), "bare")
    # This site allows a VM as much less bandwidth as the study saw.
    term = "{family: memory, relative: 90%, margin: 0.03, reason: {policy: as the study}}"
    text = f"schema: virtqual-budgets/1\nclass: kvm\nbudgets: [{term}]\n"
    equipped.add_reference("budgets/kvm.yaml", text)
    equipped.fault("slow.cloud", "1.43")
    line = (*QUALIFY, "-n", rf"^stream(_overhead)?%.*threads={os.cpu_count()}\b")
    # What a tool wrote of the host says what the VM is, not that it is meant to be so.
    host = {"virtual_numa_nodes": 1, "vcpus": os.cpu_count(), "cpus_per_node": 1}
    refused = equipped.virtqual(*line, FAKE_HOST=json.dumps(host), code=4)
    assert "refused numa-hidden" in refused.stdout
    time.sleep(1.1)
    equipped.virtqual(*line, FAKE_EXTRAS_cloud=json.dumps({"numa_hidden": True, "host": host}), code=0)
    session = equipped.session()
    assert session["outcome"] == "WITHIN"
    assert session["qualified"] == "no (NUMA nodes hidden on purpose)"
    reported = [finding["item"] for finding in session["preflight"] if finding["action"] == "report"]
    assert {"numa-hidden", "vm-size"} <= set(reported), reported
    verdicts = [verdict for verdict in session["verdicts"] if verdict["metric"] == "memory_triad"]
    ratios = [verdict["overhead"]["ratio"] for verdict in verdicts]
    assert ratios == [pytest.approx(0.7, abs=0.005)]


def test_arrays_within_the_caches_are_not_called_memory_and_a_short_table_is_refused(equipped):
    equipped.fault("fault.arrays")
    equipped.fault("fault.short")
    done = equipped.reframe(*BOTH, VIRTQUAL_PAIRS="0:1", code=1)
    assert "WITHIN cache_triad@STREAM, 1 thread" in outcome(done)
    assert "memory_triad" not in outcome(done)
    assert "message sizes in bytes: none where" in outcome(done)
    assert "osu_latency@" not in outcome(done)


def test_a_stream_that_does_not_validate_and_a_program_that_is_not_there_are_named(equipped):
    equipped.fault("fault.valid")
    names = r"^stream.*%threads=1\b|^osu_node.*%benchmark=bibw$"
    done = equipped.reframe("-n", names, "-S", "scope=full")
    assert done.returncode != 0
    assert "Failed Validation" in outcome(done)
    assert "stack 'micro' provides no osu_bibw" in outcome(done)
    assert "WITHIN" not in outcome(done)
