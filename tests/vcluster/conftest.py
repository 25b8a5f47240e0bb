"""A cluster of its own for the tests that need one, and a state for those that do not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cluster_under_test import VCLUSTER, Cluster, make_options

from vcluster import requirements
from vcluster import state as st
from vcluster.processes import Process


@pytest.fixture(scope="session")
def guest_kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    missing = requirements.list_missing()
    if missing:
        pytest.skip(f"missing: {', '.join(requirement.name for requirement in missing)}")
    if os.environ.get("VCLUSTER_KERNEL"):
        return Path(os.environ["VCLUSTER_KERNEL"])
    folder = tmp_path_factory.getbasetemp().parent / "vcluster-kernel"
    command = [*VCLUSTER, "kernel", "--to", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    if result.returncode != 0:
        pytest.skip(f"no guest kernel: {result.stderr.strip()}")
    return folder


@pytest.fixture(scope="session")
def fresh(guest_kernel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster's state directory; tests that need the cluster up take ``cluster``."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster") / "state", guest_kernel)
    yield cluster
    cluster.vcluster("down")


@pytest.fixture
def cluster(fresh: Cluster) -> Cluster:
    """The cluster, up and whole: a damaged one is started anew."""
    fresh.up()
    return fresh


@pytest.fixture
def state(tmp_path: Path) -> st.State:
    """The state of a cluster of one native node and two VMs, held by this process."""
    native, virtual = (
        st.ClusterPartition(
            nodes=nodes, cpus_per_node=2, memory_mib=1024, host_cpus=dict.fromkeys(nodes, (0, 1))
        )
        for nodes in (("native1",), ("vm1", "vm2"))
    )
    process = Process.look_up(os.getpid())
    return st.State(
        status="up",
        created=datetime.now(UTC),
        boot_seconds=12.5,
        shared=tmp_path,
        options=make_options(),
        hypervisor=st.ClusterHypervisor(
            vendor="QEMU", build="7.2", binary=Path("/q"), sha256="0" * 64, accelerator="tcg",
            accelerator_reason="asked for", machine="pc-i440fx-7.2", adapter="e1000", arguments=(),
        ),
        guest=st.Guest(kernel="6.1", vcpus=2, memory_mib=1024, cpu="max"),
        host=st.ClusterHost(
            kernel="6.1", cpu_model="x", cpus_per_core=1, memory_mib=1, llc_bytes=1
        ),
        hosts=(st.VmHost(name="this machine", native=native.nodes, virtual=virtual.nodes),),
        partitions=st.Partitions(native=native, virtual=virtual),
        processes=st.Processes(holder=process, entry=process, namespaces=(), rootless=False),
    )  # fmt: skip
