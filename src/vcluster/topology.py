"""The nodes of a cluster: names, addresses, and the host CPUs that they run on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import BaseModel

# The network is private to the namespaces: two clusters side by side have the same addresses.
PREFIX = 16
HEAD = "head"
HEAD_ADDRESS = "10.77.0.1"
INTERFACE = "eth0"
# The first bytes of Ethernet addresses; locally administered.
MAC = "02:00:0a:4d"


class Node(BaseModel, frozen=True, extra="forbid"):
    """One node of the cluster, with its host CPUs in the order of the node's own CPUs."""

    name: str
    address: str
    mac: str
    cpus: tuple[int, ...]


def choose_cpus(index: int, cpus_per_node: int, host_cpus: Sequence[int]) -> tuple[int, ...]:
    """Return the host CPUs of node `index` (from 1).

    The nodes take the host's CPUs one after another.  If all are taken, the next round starts one CPU
    further: single tasks on two nodes then do not meet on the first CPU.
    """
    nodes_per_round = max(1, len(host_cpus) // cpus_per_node)
    turn, slot = divmod(index - 1, nodes_per_round)
    first = slot * cpus_per_node + turn
    return tuple(host_cpus[(first + k) % len(host_cpus)] for k in range(cpus_per_node))


def make_nodes(
    side: Literal["native", "virtual"],
    count: int,
    cpus_per_node: int,
    host_cpus: Sequence[int] | None,
    mac: str = MAC,
) -> tuple[Node, ...]:
    """Return the nodes of one partition; a native node and a VM of the same size and number share their CPUs.

    The nodes share a machine with these CPUs, or each has a machine of its own (None). `mac` has the first
    four bytes of their Ethernet addresses.
    """
    name, subnet = ("native", 1) if side == "native" else ("vm", 2)
    return tuple(
        Node(
            name=f"{name}{k}",
            address=f"10.77.{subnet}.{k}",
            mac=f"{mac}:{subnet:02x}:{k:02x}",
            cpus=tuple(range(cpus_per_node))
            if host_cpus is None
            else choose_cpus(k, cpus_per_node, host_cpus),
        )
        for k in range(1, count + 1)
    )


def render_hosts_file(nodes: Iterable[Node]) -> str:
    """Return ``/etc/hosts`` of all nodes; MPI and perftest resolve every name."""
    lines = ["127.0.0.1 localhost", "::1 localhost", f"{HEAD_ADDRESS} {HEAD}"]
    lines += [f"{node.address} {node.name}" for node in nodes]
    return "\n".join(lines) + "\n"
