"""RDMA in nodes with a kernel of their own: soft-RoCE, which that kernel does over the node's interface."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vcluster.kernel import RDMA_MODULES, GuestKernel, lacking
from vcluster.requirements import find
from vcluster.state import State

DEVICE = "rxe0"
TOOL = "rdma"
# How a guest's console says what became of it; guest/node-init has the same words.
_SAYS = "vcluster: RDMA: "


def impossible(kernel: GuestKernel) -> str | None:
    """Return why no node can have RDMA here; None if nothing speaks against it."""
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


def add_devices(state: State, consoles: Mapping[str, Path]) -> tuple[State, list[str]]:
    """Note in the state which RDMA device all nodes of a partition have.

    Parameters
    ----------
    state
        The state of a cluster whose nodes have tried to make a device.
    consoles
        The console by node that has tried.

    Returns
    -------
    tuple of State and list of str
        The state with the devices, and one message for each partition.
    """
    answers = {node: answer(console) for node, console in consoles.items()}
    partitions, messages = {}, []
    for side, partition in (("native", state.partitions.native), ("virtual", state.partitions.virtual)):
        without = [node for node in partition.nodes if answers.get(node) != DEVICE]
        if not without:
            partitions[side] = partition.model_copy(update={"rdma": DEVICE})
            messages.append(f"RDMA in {side} nodes: {DEVICE} (soft-RoCE)")
        elif without[0] in answers:
            reason = (answers[without[0]] or "nothing").removeprefix("none, ")
            messages.append(f"RDMA in {side} nodes: none, {without[0]} says: {reason}")
        else:
            messages.append(f"RDMA in {side} nodes: none, their kernel is this machine's")
    return state.model_copy(update={"partitions": state.partitions.model_copy(update=partitions)}), messages
