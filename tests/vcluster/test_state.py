"""The state file: what is written is read back, and what is wrong is named."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from vcluster import cluster, namespaces
from vcluster import state as st
from vcluster.errors import StateError
from vcluster.options import Options
from vcluster.processes import Process


@pytest.fixture
def state(tmp_path: Path) -> st.State:
    options = Options(qemu=Path("/usr/bin/qemu"), shared=tmp_path)
    partition = st.ClusterPartition(nodes=("a",), cpus_per_node=2, memory_mib=1024, host_cpus={"a": (0, 1)})
    return st.State(
        status="up",
        created=datetime.now(UTC),
        shared=tmp_path,
        options=options,
        hypervisor=st.ClusterHypervisor(
            vendor="QEMU", build="7.2", binary=Path("/q"), sha256="0" * 64, accelerator="tcg",
            accelerator_reason="asked for", machine="pc-i440fx-7.2", adapter="e1000", arguments=(),
        ),
        guest=st.Guest(kernel="6.1", vcpus=2, memory_mib=1024, cpu="max"),
        host=st.ClusterHost(
            kernel="6.1", cpu_model="x", cpus=2, cpus_per_core=1, sockets=1, memory_mib=1, llc_bytes=1
        ),
        hosts=(st.VmHost(name="this machine", native=("a",), virtual=("a",)),),
        slurm=st.Slurm(version="22.05", conf=Path("/c"), licence="host:1", mpi=("pmi2",)),
        network=st.Network(cidr="10.0.0.0/8", interface="eth0", head="10.0.0.1", native={}, virtual={}),
        partitions=st.Partitions(native=partition, virtual=partition),
    )  # fmt: skip


def test_round_trip(state: st.State, tmp_path: Path) -> None:
    path = tmp_path / "new/state.json"
    state.save(path)
    assert st.load_state(path) == state
    assert json.loads(path.read_text())["schema"] == "vcluster/2"
    assert [entry.name for entry in path.parent.iterdir()] == ["state.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "vcluster/1"}, "vcluster/1"),
        ({"schema": None}, "wanted is 'vcluster/2'"),
        ({"status": "sideways"}, "status"),
        ({"unheard_of": 1}, "unheard_of"),
        ({"guest": {"kernel": "6.1"}}, r"guest\.vcpus"),
    ],
)
def test_a_wrong_state_names_file_and_key(
    state: st.State, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps(state.model_dump(mode="json", by_alias=True) | change))
    with pytest.raises(StateError, match=message) as caught:
        st.load_state(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", [None, "", "{", "[]", '"x"'])
def test_no_state(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "state.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(StateError, match="no cluster was started" if text is None else str(path)):
        st.load_state(path)


def answers(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let a shell script stand for ``sinfo`` on the head of the cluster."""
    monkeypatch.setattr(namespaces, "enter_command", lambda *_: ["/bin/sh", "-c", script])


@pytest.fixture
def four_nodes(state: st.State) -> st.State:
    process = Process.look_up(os.getpid())
    held = st.Processes(holder=process, entry=process, namespaces=(), rootless=False)
    native, virtual = (
        state.partitions.native.model_copy(update={"nodes": names}) for names in (("n1", "n2"), ("v1", "v2"))
    )
    partitions = st.Partitions(native=native, virtual=virtual)
    return state.model_copy(update={"processes": held, "partitions": partitions})


def test_a_dead_controller_is_named_once_and_not_as_four_lost_nodes(
    four_nodes: st.State, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, "echo 'Unable to contact slurm controller' >&2; exit 1")
    known = cluster.list_nodes(four_nodes)
    assert set(known) == {"n1", "n2", "v1", "v2"}
    assert (
        cluster.describe_damage(known)
        == "slurmctld does not answer: sinfo failed: Unable to contact slurm controller"
    )


def test_each_lost_node_is_named_with_its_reason(
    four_nodes: st.State, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, "echo 'n1|idle|none'; echo 'n2|idle*|none'; echo 'v1|down|VM v1 died (signal 9)'")
    assert (
        cluster.describe_damage(cluster.list_nodes(four_nodes))
        == "n2 idle*; v1 down: VM v1 died (signal 9); v2 unknown: Slurm does not list it"
    )
    answers(monkeypatch, 'for name in n1 n2 v1 v2; do echo "$name|mixed|none"; done')
    assert cluster.describe_damage(cluster.list_nodes(four_nodes)) == ""
