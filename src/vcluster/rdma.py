"""RDMA in nodes with a kernel of their own: soft-RoCE, which that kernel does over the node's interface."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vcluster.directory import read_log
from vcluster.kernel import RDMA_MODULES, GuestKernel, list_missing_modules
from vcluster.requirements import find
from vcluster.state import State

DEVICE = "rxe0"
TOOL = "rdma"
# The line of a guest's console that names the device or a reason; guest/node-init prints it.
CONSOLE_PREFIX = "vcluster: RDMA: "


def find_obstacle(kernel: GuestKernel) -> str | None:
    """Return why no node can have RDMA, or None."""
    if missing := list_missing_modules(kernel, RDMA_MODULES):
        return f"kernel {kernel.release} lacks modules: {', '.join(missing)}"
    if find(TOOL) is None:
        return f"the program {TOOL} is missing: install the Debian package iproute2"
    return None


def read_answer(console: Path) -> str | None:
    """Return the device that a guest has made, or ``none, REASON``; None if the guest has not answered."""
    for line in read_log(console).splitlines():
        if line.startswith(CONSOLE_PREFIX):
            return line.removeprefix(CONSOLE_PREFIX).partition(" (")[0].strip()
    return None


def add_devices(state: State, consoles: Mapping[str, Path]) -> tuple[State, list[str]]:
    """Return the state with the device that all nodes of a partition have, and a message for each partition.

    `consoles` has the console of each node that has tried to make a device.
    """
    answers = {node: read_answer(console) for node, console in consoles.items()}
    partitions, messages = {}, []
    for side, partition in (("native", state.partitions.native), ("virtual", state.partitions.virtual)):
        failed = [node for node in partition.nodes if answers.get(node) != DEVICE]
        if not failed:
            partitions[side] = partition.model_copy(update={"rdma": DEVICE})
            messages.append(f"RDMA in {side} nodes: {DEVICE} (soft-RoCE)")
        elif failed[0] in answers:
            reason = (answers[failed[0]] or "nothing").removeprefix("none, ")
            messages.append(f"RDMA in {side} nodes: none, {failed[0]} says: {reason}")
        else:
            messages.append(f"RDMA in {side} nodes: none, their kernel is this machine's")
    return state.model_copy(update={"partitions": state.partitions.model_copy(update=partitions)}), messages
