"""MPI that went over TCP although the partition has RDMA refuses the checks between nodes."""

import pytest
from preflight_pairs import node, quiet, run

from made_runs import session_of
from virtqual.runs import Result
from virtqual.session import judge
from virtqual.stack.loaded import LoadedSoftware

RDMA, TCP = {1: 1.2, 8: 1.2, 4096: 3.0}, {1: 18.3, 8: 18.4, 4096: 30.0}
LAMMPS = Result.scalar("lammps_loop_time", "two nodes, lj", 20.0)
OTHER = {"osu_nodes": "Open MPI v4.1.7", "lammps_scaling": "Open MPI v4.1.7", "rdma_latency": None}


def load(mpi):
    says = {"mpi": mpi} if mpi else {}
    return LoadedSoftware(node="x", program="/p", files={}, says=says, coretype="", cpu=frozenset())


def make_runs(native, virtual, *, software_adapter=False):
    """Return a pair of a latency between two nodes, of an application and perftest there, and of one node."""
    edits = {r"^/sys/class/infiniband/mlx5_0/device/.*\n": ""} if software_adapter else {}
    runs = []
    for side, name, curve in (("native", "bare", native), ("virtual", "guest", virtual)):
        identity = node(name, **edits)
        one = run(side, 0, identity, quiet())
        # An application on one node has messages that do not leave it.
        runs.append(one.model_copy(update={"software": (load("Open MPI v4.1.7"),)}))
        for check, mpi in OTHER.items():
            result = (
                Result.curve("osu_latency", "two nodes, median", curve) if check == "osu_nodes" else LAMMPS
            )
            update = {"check": check, "nodes": ("a", "b"), "results": (result,), "software": (load(mpi),)}
            runs.append(one.model_copy(update=update))
    return runs


def find_refused(runs, features=("rdma",)):
    session = session_of(
        runs, "kvm", identity={side: {"features": list(features)} for side in ("native", "virtual")}
    )
    admitted = judge.admitted_of(session)
    return {
        check: reasons
        for check, reasons in admitted.refused.items()
        if any("mpi-transport" in reason for reason in reasons)
    }


@pytest.mark.parametrize(("native", "virtual", "side"), [(TCP, TCP, "native"), (RDMA, TCP, "virtual")])
def test_checks_of_mpi_between_nodes_are_refused(native, virtual, side):
    refused = find_refused(make_runs(native, virtual))
    assert refused.keys() == {"osu_nodes", "lammps_scaling"}
    says = f"preflight: mpi-transport: {side}: MPI went over TCP: a message takes 18.3 us at least (osu_"
    assert refused["lammps_scaling"][0].startswith(says)


@pytest.mark.parametrize(
    ("runs", "features"),
    [
        (make_runs(RDMA, RDMA), ("rdma",)),
        (make_runs(TCP, TCP), ("multinode",)),
        (make_runs(TCP, TCP, software_adapter=True), ("rdma",)),
    ],
)
def test_rdma_and_partitions_without_it_are_not_refused(runs, features):
    assert find_refused(runs, features) == {}


def test_one_native_node_beside_several_vms_has_no_messages_that_are_refused():
    runs = make_runs(TCP, RDMA)
    native, virtual = (r for r in runs if r.check == "lammps_scaling")
    shares = (native.model_copy(update={"nodes": ("a",)}), virtual)
    runs += [r.model_copy(update={"check": "namd_water_vms"}) for r in shares]
    assert find_refused(runs).keys() == {"osu_nodes", "lammps_scaling"}
