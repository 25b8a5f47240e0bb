"""RDMA in VMs: what speaks against it, and what the guests say became of it."""

from pathlib import Path

import pytest

from vcluster import rdma
from vcluster.kernel import GuestKernel
from vcluster.state import State

KERNEL = GuestKernel("6.1.0-x", Path("/boot/vmlinuz"), Path("/"))
CONSOLE = "vcluster: root mounted (3.1 s)\nvcluster: RDMA: {} (3.9 s)\nvcluster: starting slurmd (4.0 s)\n"


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdma, "list_missing_modules", lambda kernel, names: list(names))
    assert rdma.find_obstacle(KERNEL) == "kernel 6.1.0-x lacks modules: rdma_rxe"
    monkeypatch.setattr(rdma, "list_missing_modules", lambda kernel, names: [])
    monkeypatch.setattr(rdma, "find", lambda name: None)
    assert "the program rdma is missing: install the Debian package iproute2" in str(
        rdma.find_obstacle(KERNEL)
    )
    monkeypatch.setattr(rdma, "find", lambda name: Path("/usr/bin/rdma"))
    assert rdma.find_obstacle(KERNEL) is None


def test_a_guest_answers_or_is_silent(tmp_path: Path) -> None:
    console = tmp_path / "vm1.console"
    assert rdma.read_answer(console) is None
    for text, answer in (
        ("vcluster: root mounted (3.1 s)\n", None),
        (CONSOLE.format("rxe0"), "rxe0"),
        (CONSOLE.format("none, error: Invalid argument"), "none, error: Invalid argument"),
    ):
        console.write_text(text)
        assert rdma.read_answer(console) == answer


@pytest.mark.parametrize(
    ("second", "device", "message"),
    [
        ("rxe0", "rxe0", "RDMA in virtual nodes: rxe0 (soft-RoCE)"),
        (
            "none, error: Invalid argument",
            None,
            "RDMA in virtual nodes: none, vm2 says: error: Invalid argument",
        ),
    ],
)
def test_the_state_has_the_device_that_all_nodes_of_a_partition_have(
    state: State, tmp_path: Path, second: str, device: str | None, message: str
) -> None:
    consoles = {}
    for name, answer in (("native1", "rxe0"), ("vm1", "rxe0"), ("vm2", second)):
        consoles[name] = tmp_path / f"{name}.console"
        consoles[name].write_text(CONSOLE.format(answer))
    added, messages = rdma.add_devices(state, consoles)
    assert added.partitions.native.rdma == "rxe0"
    assert (added.partitions.virtual.rdma, messages[1]) == (device, message)
    # Native nodes that are namespaces of this machine have no console, and no device.
    _, messages = rdma.add_devices(state, {name: consoles[name] for name in ("vm1", "vm2")})
    assert messages[0] == "RDMA in native nodes: none, their kernel is this machine's"
