"""Which nodes a cluster has, where they are, and which host CPUs they run on."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict

# Private to the namespaces: nothing routes here, two clusters side by side use the same.
NETWORK = "10.77.0.0/16"
PREFIX = 16
HEAD = "head"
HEAD_ADDRESS = "10.77.0.1"
INTERFACE = "eth0"
# The first bytes of the VMs' Ethernet addresses; locally administered.
MAC = "02:00:0a:4d"


class Node(BaseModel):
    """One node of the cluster.

    Attributes
    ----------
    name : str
        ``native1``, ``vm1`` and so on.
    address : str
        IP address on the cluster's own network.
    mac : str
        Ethernet address of the node's only interface.
    cpus : tuple of int
        Host CPUs, in the order in which the node's CPUs 0, 1, ... lie on them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    address: str
    mac: str
    cpus: tuple[int, ...]


def owned_cpus(index: int, vcpus: int, host: list[int]) -> tuple[int, ...]:
    """Choose the host CPUs of node ``index`` (from 1).

    Nodes follow one another round the host's CPUs, so that single tasks on two nodes do not meet on the
    first CPU of a host that is too small to give every node CPUs of its own.

    Parameters
    ----------
    index : int
        Number of the node, from 1.
    vcpus : int
        CPUs of a node.
    host : list of int
        The CPUs there are.
    """
    nodes_per_round = max(1, len(host) // vcpus)
    # Once all CPUs are given away, the next round starts one CPU further.
    turn, slot = divmod(index - 1, nodes_per_round)
    return tuple(host[(slot * vcpus + turn + k) % len(host)] for k in range(vcpus))


def native_nodes(count: int, vcpus: int, host: list[int]) -> list[Node]:
    """Return the native nodes."""
    return [
        Node(
            name=f"native{k}",
            address=f"10.77.1.{k}",
            mac=f"{MAC}:01:{k:02x}",
            cpus=owned_cpus(k, vcpus, host),
        )
        for k in range(1, count + 1)
    ]


def virtual_nodes(count: int, vcpus: int, host: list[int], mac: str = MAC) -> list[Node]:
    """Return the VMs; of as many CPUs as native nodes have, VM k has the host CPUs of native node k.

    Parameters
    ----------
    count : int
        How many there are.
    vcpus : int
        CPUs of each.
    host : list of int
        The CPUs of the machine that they share.
    mac : str
        The first four bytes of their Ethernet addresses.
    """
    return [
        Node(
            name=f"vm{k}",
            address=f"10.77.2.{k}",
            mac=f"{mac}:02:{k:02x}",
            cpus=owned_cpus(k, vcpus, host),
        )
        for k in range(1, count + 1)
    ]


def host_cpus() -> list[int]:
    """Return the CPUs that this process may run on."""
    return sorted(os.sched_getaffinity(0))


def hosts_file(nodes: list[Node]) -> str:
    """Render ``/etc/hosts`` of all nodes; MPI and perftest need every name resolved."""
    lines = ["127.0.0.1 localhost", "::1 localhost", f"{HEAD_ADDRESS} {HEAD}"]
    lines += [f"{node.address} {node.name}" for node in nodes]
    return "\n".join(lines) + "\n"


def last_level_cache_bytes(root: Path = Path("/sys/devices/system/cpu")) -> int:
    """Return the size of all last-level caches together in bytes, 0 if the kernel does not say."""
    caches: dict[tuple[int, str], int] = {}
    for index in root.glob("cpu[0-9]*/cache/index[0-9]*"):
        try:
            if (index / "type").read_text(encoding="utf-8").strip() == "Instruction":
                continue
            level = int((index / "level").read_text(encoding="utf-8"))
            size = (index / "size").read_text(encoding="utf-8").strip()
            sharers = (index / "shared_cpu_list").read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            continue
        factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1:], 1)
        caches[level, sharers] = int(size.rstrip("KMG")) * factor
    if not caches:
        return 0
    last = max(level for level, _ in caches)
    return sum(size for (level, _), size in caches.items() if level == last)
