"""Canaries fed from the runs of a session: what each takes, and why it has nothing to take."""

import io
import json

import pytest
from preflight_pairs import busy, node, quiet, run
from rich.console import Console
from test_canaries import NATIVE, shifted
from typer.testing import CliRunner

from made_runs import keep, session_of
from virtqual.cli import app
from virtqual.references import project_references
from virtqual.report.terminal import Terminal
from virtqual.runs import Result
from virtqual.session import judge as judging

HIDDEN = {r"^/sys/devices/system/node/node1/.*\n": "", r"(node0/cpulist):.*": r"\1:0-7"}
SOFTWARE = {r"^/sys/class/infiniband/mlx5_0/device/.*\n": ""}
SMALLER = {r"^(/sys/devices/system/cpu/online):.*": r"\1:0-5"}
NO_ADAPTER = {r"^/sys/class/infiniband/.*\n": ""}


def curve(metric, values, setting="two nodes"):
    return Result.curve(metric, setting, values)


def triad(bandwidth, setting="STREAM, 8 threads", family="memory"):
    return Result.scalar(f"{family}_triad", setting, bandwidth)


def measured(results, *, pairs=4, guest=None, native_load=None, check="the check"):
    """Return runs of one check: `results` gives those of a side and pair."""
    nodes = {"native": node("bare"), "virtual": guest or node("guest")}
    return [
        run(side, pair, nodes[side], native_load if side == "native" and native_load else quiet()).model_copy(
            update={
                "check": check,
                "results": (results(side, pair),),
                # Every second pair is reversed.
                "start": 100.0 * pair + 50 * ((side == "virtual") ^ (pair % 2)),
                "end": 100.0 * pair + 50 * ((side == "virtual") ^ (pair % 2)) + 40,
            }
        )
        for pair in range(pairs)
        for side in ("native", "virtual")
    ]


def sides(native, virtual):
    return lambda side, _: native if side == "native" else virtual


def says(runs, feature):
    (found,) = [
        one
        for one in judging.canaries(judging.admitted_of(session_of(runs, "esxi")).runs)
        if one.feature == feature
    ]
    return found


def sent(native=NATIVE, virtual=None, metric="rdma_send_latency", setting="two nodes", **how):
    """Runs of a latency; the VM's is the study's without write combining where nothing else is said."""
    virtual = shifted(0.4, 0.5) if virtual is None else virtual
    return measured(sides(curve(metric, native, setting), curve(metric, virtual, setting)), **how)


def test_every_canary_protects_published_claims():
    known = project_references().claims
    found = judging.canaries([])
    assert len(found) == 4
    assert {claim for one in found for claim in one.protects} <= set(known)
    assert all(one.state == "unknown" and "measured" in one.evidence for one in found)


def test_a_missing_feature_is_named_at_the_end_of_a_session_and_by_preflight(tmp_path):
    runs = sent()
    session = session_of(
        runs,
        "esxi",
        canaries=list(judging.canaries(judging.admitted_of(session_of(runs, "esxi")).runs)),
    )
    screen = Console(file=io.StringIO(), width=80)
    Terminal(screen).end(session, str(tmp_path))
    text = " ".join(screen.file.getvalue().split())
    assert "canary write combining seems to be missing (protects claims R03, R04, R05, R07)" in text
    assert "16 to 128 B lie +0.34 us off the line from 8 to 256 B (-0.16 us natively)" in text
    assert "messages of 2 to 8 B take +0.40 us against native (medians of 4 pairs)" in text
    assert "canaries not observable: IOMMU large pages, truthful virtual NUMA" in text
    session.outcome = "BROKEN"
    kept = json.loads((keep(session, tmp_path) / "session.json").read_text())["canaries"][0]
    assert (kept["feature"], kept["state"]) == ("write combining", "missing")

    done = CliRunner().invoke(app, ["preflight", str(tmp_path / "s")])
    assert done.exit_code == 0, done.output
    shown = " ".join(done.output.split())
    assert "canary write combining seems to be missing" in shown
    assert "IOMMU large pages is not observable: no message rate by number of registered buffers" in shown


@pytest.mark.parametrize(
    ("what", "runs", "state", "evidence"),
    [
        ("both gone", {"virtual": NATIVE}, "present", "+0.00 us against native"),
        ("MPI with the bump", {"metric": "osu_latency"}, "missing", "osu_latency@two nodes"),
        ("an MPI offset alone", {"metric": "osu_latency", "virtual": shifted(0.4)}, "present", "osu_latency"),
        (
            "MPI over TCP",
            {"metric": "osu_latency", "native": shifted(20), "virtual": shifted(300, 9)},
            "unknown",
            "20.9 us natively: MPI did not go over RDMA",
        ),
        ("inside a node", {"metric": "osu_latency", "setting": "same node"}, "unknown", "none of rdma_send"),
        ("an adapter in software", {"guest": node("guest", **SOFTWARE)}, "unknown", "is software"),
        ("no adapter", {"guest": node("guest", **NO_ADAPTER)}, "unknown", "has no RDMA adapter"),
        ("runs that were disturbed", {"native_load": busy()}, "unknown", "none of rdma_send"),
    ],
)
def test_write_combining_is_asked_of_latencies_that_can_tell(what, runs, state, evidence):
    found = says(sent(**runs), "write combining")
    assert (found.state, evidence in found.evidence) == (state, True), (what, found.text)


def test_one_pair_that_disagrees_does_not_decide_and_half_of_them_leave_it_open():
    def virtual(bad):
        return lambda side, pair: curve(
            "rdma_send_latency", shifted(0.4, 0.5) if side == "virtual" and pair < bad else NATIVE
        )

    assert says(measured(virtual(1)), "write combining").state == "present"
    assert says(measured(virtual(3)), "write combining").state == "missing"
    found = says(measured(virtual(2)), "write combining")
    assert (found.state, "only 2 of them bear out" in found.evidence) == ("unknown", True), found.text


def test_iommu_large_pages_from_the_number_of_buffers():
    native = {1: 2.0, 4: 0.5, 16: 0.5, 64: 0.5, 256: 0.5}
    slow = {count: us * (1.2 if count >= 64 else 1.0) for count, us in native.items()}
    found = says(
        measured(sides(curve("rdma_buffers", native), curve("rdma_buffers", slow))), "IOMMU large pages"
    )
    assert (found.state, "rising at 64" in found.evidence) == ("missing", True), found.text
    found = says(
        measured(sides(curve("rdma_buffers", native), curve("rdma_buffers", native))), "IOMMU large pages"
    )
    assert found.state == "present", found.text


def numa(remote, family="memory"):
    """Runs of STREAM from local and remote memory; `remote` is the VM's share, the hardware's is a half."""
    runs = []
    for memory, bandwidth in (
        ("local memory (node 0)", {"native": 2e4, "virtual": 2e4}),
        ("remote memory (node 3)", {"native": 1e4, "virtual": 2e4 * remote}),
    ):
        setting = f"STREAM, 4 threads, {memory}"
        runs += measured(
            lambda side, _, b=bandwidth, s=setting: triad(b[side], s, family), check=f"stream_numa {memory}"
        )
    return runs


def test_virtual_numa_from_local_and_remote_memory():
    assert says(numa(0.52), "truthful virtual NUMA").state == "present"
    found = says(numa(0.98), "truthful virtual NUMA")
    assert (found.state, "0.98 of the local bandwidth, 0.50 natively" in found.evidence) == ("missing", True)
    assert says(numa(0.98, "cache"), "truthful virtual NUMA").state == "unknown"


@pytest.mark.parametrize(
    ("ratio", "guest", "family", "state", "evidence"),
    [
        (0.70, HIDDEN, "memory", "missing", "0.70 of the host's bandwidth where 1 is its share"),
        (0.99, {}, "memory", "present", "beside its CPUs"),
        (0.70, SMALLER, "memory", "unknown", "the VM has 6 CPUs, a node of its host 4 of 8"),
        (0.70, HIDDEN, "cache", "unknown", "do not exceed the caches"),
    ],
)
def test_a_vm_larger_than_a_node_from_triad(ratio, guest, family, state, evidence):
    runs = measured(
        sides(triad(3e4, family=family), triad(3e4 * ratio, family=family)), guest=node("guest", **guest)
    )
    # What one thread gets says nothing of the whole host, nor does the sum of several.
    runs += measured(
        sides(triad(1e4, "STREAM, 1 thread"), triad(1e4, "STREAM, 1 thread")), check="one thread"
    )[: 0 if family == "cache" else None]
    runs += measured(
        sides(triad(6e4, "STREAM, 2 nodes, 8 threads each"), triad(6e4, "STREAM, 2 nodes, 8 threads each")),
        check="nodes",
    )
    found = says(runs, "a VM that fits its NUMA nodes")
    assert (found.state, evidence in found.evidence) == (state, True), found.text
