"""The cluster's network: one bridge in the namespace of the head, with no way out."""

from __future__ import annotations

from vcluster.command import run
from vcluster.errors import BootError
from vcluster.requirements import program
from vcluster.topology import HEAD_ADDRESS, INTERFACE, PREFIX, Node

BRIDGE = "br0"


def commands(native: tuple[Node, ...], virtual: tuple[Node, ...]) -> list[str]:
    """Return the commands of ``ip -batch`` that make bridge, interfaces and native nodes' namespaces.

    A VM's tap and a native node's end of its veth pair on the bridge are named after the node.
    """
    lines = [
        "link set lo up",
        # A bridge takes the lowest address of its ports, and changes it with them, unless it has its own.
        f"link add {BRIDGE} address 02:00:0a:4d:00:01 type bridge",
        f"addr add {HEAD_ADDRESS}/{PREFIX} dev {BRIDGE}",
        f"link set {BRIDGE} up",
    ]
    for node in virtual:
        lines += [f"tuntap add dev {node.name} mode tap", f"link set {node.name} master {BRIDGE} up"]
    for node in native:
        lines += [
            f"netns add {node.name}",
            f"link add {node.name} type veth peer name {INTERFACE} address {node.mac} netns {node.name}",
            f"link set {node.name} master {BRIDGE} up",
        ]
    return lines


def node_commands(node: Node) -> list[str]:
    """Return the commands of ``ip -batch`` inside the namespace of a native node."""
    return [
        "link set lo up",
        f"addr add {node.address}/{PREFIX} dev {INTERFACE}",
        f"link set {INTERFACE} up",
    ]


def build(native: tuple[Node, ...], virtual: tuple[Node, ...]) -> None:
    """Make the network in the namespace of the caller.

    Raises
    ------
    BootError
        With what ``ip`` said.
    """
    _ip([], commands(native, virtual))
    for node in native:
        _ip(["-n", node.name], node_commands(node))


def _ip(options: list[str], lines: list[str]) -> None:
    run([program("ip"), *options, "-batch", "-"], BootError, data="\n".join([*lines, ""]).encode())
