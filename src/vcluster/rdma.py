"""RDMA in the VMs: soft-RoCE, which the guest kernel does over the node's one interface."""

from __future__ import annotations

from pathlib import Path

from vcluster.kernel import RDMA_MODULES, GuestKernel, lacking
from vcluster.requirements import find
from vcluster.state import State

DEVICE = "rxe0"
TOOL = "rdma"
# How a guest's console says what became of it; guest/node-init has the same words.
_SAYS = "vcluster: RDMA: "


def impossible(kernel: GuestKernel) -> str | None:
    """Return why no VM can have RDMA here; None if nothing speaks against it."""
    if missing := lacking(kernel, RDMA_MODULES):
        return f"kernel {kernel.release} lacks modules: {', '.join(missing)}"
    if find(TOOL) is None:
        return f"the program {TOOL} is missing: install the Debian package iproute2"
    return None


def answer(console: Path) -> str | None:
    """Return what a guest says of its RDMA device: the name, or ``none, WHY``; None while it is silent."""
    try:
        text = console.read_text(errors="replace", encoding="utf-8")
    except FileNotFoundError:
        return None
    line = next((line for line in text.splitlines() if line.startswith(_SAYS)), None)
    return line and line.removeprefix(_SAYS).partition(" (")[0].strip()


def noted(state: State, logs: Path) -> tuple[State, str]:
    """Note in the state which device all VMs have.

    Parameters
    ----------
    state : State
        The state of a cluster whose VMs have tried to make a device.
    logs : Path
        Folder of what they printed.

    Returns
    -------
    tuple of State and str
        With the device, if every VM has it; and one clause for people.
    """
    virtual = state.partitions.virtual
    said = {name: answer(logs / f"{name}.console") for name in virtual.nodes}
    without = {name: word for name, word in said.items() if word != DEVICE}
    for name, word in without.items():
        return state, f"none, {name} says: {(word or 'nothing').removeprefix('none, ')}"
    partitions = state.partitions.model_copy(update={"virtual": virtual.model_copy(update={"rdma": DEVICE})})
    return state.model_copy(update={"partitions": partitions}), f"{DEVICE} (soft-RoCE)"
