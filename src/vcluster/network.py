"""The cluster's network: one bridge in the namespace of the head, with no way out."""

from __future__ import annotations

from vcluster.command import run
from vcluster.errors import BootError
from vcluster.requirements import program
from vcluster.topology import HEAD_ADDRESS, INTERFACE, PREFIX, Node

BRIDGE = "br0"


def commands(namespace_nodes: tuple[Node, ...], machine_nodes: tuple[Node, ...]) -> list[str]:
    """Return the commands of ``ip -batch`` that make the bridge, and an interface of each node's name on it.

    The interface of a machine is a tap; that of a namespace, which is made here, is an end of a veth pair.
    """
    lines = [
        "link set lo up",
        # A bridge without an address takes the lowest of its ports, and changes it with them.
        f"link add {BRIDGE} address 02:00:0a:4d:00:01 type bridge",
        f"addr add {HEAD_ADDRESS}/{PREFIX} dev {BRIDGE}",
        f"link set {BRIDGE} up",
    ]
    for node in machine_nodes:
        lines += [f"tuntap add dev {node.name} mode tap", f"link set {node.name} master {BRIDGE} up"]
    for node in namespace_nodes:
        lines += [
            f"netns add {node.name}",
            f"link add {node.name} type veth peer name {INTERFACE} address {node.mac} netns {node.name}",
            f"link set {node.name} master {BRIDGE} up",
        ]
    return lines


def make_network(namespace_nodes: tuple[Node, ...], machine_nodes: tuple[Node, ...]) -> None:
    """Make the network in the namespace of the caller."""
    _run_ip([], commands(namespace_nodes, machine_nodes))
    for node in namespace_nodes:
        address = f"addr add {node.address}/{PREFIX} dev {INTERFACE}"
        _run_ip(["-n", node.name], ["link set lo up", address, f"link set {INTERFACE} up"])


def _run_ip(options: list[str], lines: list[str]) -> None:
    run([program("ip"), *options, "-batch", "-"], BootError, data="\n".join([*lines, ""]).encode())
