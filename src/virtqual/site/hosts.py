"""The machines below the nodes, as ``extras.nodes_of_hosts`` of a partition says, and whether VMs fit.

A guest cannot see which host it runs on: the system file says it, and a run must be where that says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

# As Slurm and the node itself call it; a list such as ``vm[1-4]`` is none.
_Node = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
_Host = Annotated[str, Field(min_length=1)]


def _each_once(hosts: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    where: dict[str, str] = {}
    for host, nodes in hosts.items():
        for node in nodes:
            before = where.setdefault(_short(node), host)
            if before != host or nodes.count(node) > 1:
                raise ValueError(f"{node} stands twice, on {before} and on {host}")
    for host, other in combinations(hosts, 2):
        if _short(host) == _short(other):
            raise ValueError(f"{host} and {other} are one host by the first part of their names")
    return hosts


def _short(name: str) -> str:
    """Return the first part of a name: nodes may call themselves by their whole domain name."""
    return name.partition(".")[0]


#: Names of nodes by their host, in the order in which they are to be taken.
NodesOfHosts = Annotated[
    dict[_Host, Annotated[tuple[_Node, ...], Field(min_length=1)]], AfterValidator(_each_once)
]


def most(hosts: Mapping[str, Sequence[str]]) -> int:
    """Return how many nodes share a host at most; 0 where nothing is said."""
    return max(map(len, hosts.values()), default=0)


def beside(hosts: Mapping[str, Sequence[str]], count: int) -> tuple[str, ...]:
    """Return `count` nodes of the first host that has as many; none where no host has.

    Examples
    --------
    >>> beside({"a": ("vm1",), "b": ("vm2", "vm3", "vm4")}, 2)
    ('vm2', 'vm3')
    """
    return next((tuple(vms[:count]) for vms in hosts.values() if len(vms) >= count), ())


def host_of(hosts: Mapping[str, Sequence[str]], nodes: Collection[str]) -> str | None:
    """Return the host that has all these nodes; None where no host has.

    Nodes may call themselves by their whole name where the system file has the first part of it.

    Examples
    --------
    >>> hosts = {"a": ("vm1", "vm2"), "b": ("vm3",)}
    >>> host_of(hosts, ["vm1", "vm2.cluster.example"]), host_of(hosts, ["vm2", "vm3"])
    ('a', None)
    """
    short = set(map(_short, nodes))
    return next((host for host, its in hosts.items() if short <= set(map(_short, its))), None)


def names_of(hosts: Iterable[str]) -> frozenset[str]:
    """Return hosts by the names that `hosts_of` gives them."""
    return frozenset(map(_short, hosts))


def hosts_of(
    hosts: Mapping[str, Sequence[str]], nodes: Iterable[str], side: Literal["native", "virtual"]
) -> dict[str, str]:
    """Return the host of each node, by the first part of its name, so that both sides name it alike.

    A native node that the table does not have is a host of its own; of a VM that it does not have nobody
    knows the host, and it is left out.

    Examples
    --------
    >>> hosts_of({"n1.cluster.example": ["vm1"]}, ["vm1", "vm2"], "virtual")
    {'vm1': 'n1'}
    >>> hosts_of({}, ["n1.cluster.example"], "native")
    {'n1.cluster.example': 'n1'}
    """
    found = {}
    for node in nodes:
        host = host_of(hosts, [node]) or (node if side == "native" else None)
        if host is not None:
            found[node] = _short(host)
    return found


def separate(
    of_native: Mapping[str, Sequence[str]],
    native: Sequence[str],
    of_vms: Mapping[str, Sequence[str]],
    vms: Sequence[str],
) -> bool:
    """Return whether it is known that nodes can all work at once without disturbing each other.

    Every node must be alone on a machine of its own, and that of each VM must be known.

    Parameters
    ----------
    of_native, of_vms
        The nodes of hosts of either partition.
    native, vms
        The nodes that are to work.

    Examples
    --------
    >>> hosts = {"h1": ("vm1",), "h2": ("vm2",), "n1": ("vm3",), "h4": ("vm4", "vm5")}
    >>> separate({}, ["n1", "n2"], hosts, ["vm1", "vm2"])
    True
    >>> separate({}, ["n1", "n2"], hosts, ["vm1", "vm3"]), separate({}, ["n1", "n2"], hosts, ["vm1", "vm4"])
    (False, False)

    Native nodes that are the VMs' own hosts by another name:

    >>> separate({"h1": ("n1",), "h2": ("n2",)}, ["n1", "n2"], hosts, ["vm1", "vm2"])
    False
    """
    below, under = hosts_of(of_vms, vms, "virtual"), hosts_of(of_native, native, "native")
    if len(below) < len(vms):
        return False
    machines = [*below.values(), *under.values()]
    beside = [len(its) for host, its in of_vms.items() if _short(host) in below.values()]
    return len(set(machines)) == len(machines) and max(beside, default=1) == 1


@dataclass(frozen=True)
class Size:
    """The size of a machine: cores, and memory in MiB. A value that is not known is None."""

    cores: int | None
    memory_mib: int | None


def overcommitted(vms: Sequence[Size], host: Size) -> list[str]:
    """Return a clause for each thing of which VMs have more together than their host.

    Examples
    --------
    >>> overcommitted([Size(8, 60000)] * 2, Size(16, 128000))
    []
    >>> overcommitted([Size(8, 40000)] * 3, Size(16, 128000))
    ['3 VMs have 24 cores together, their host 16']
    """
    found = []
    for what, of_vms, of_host in (
        ("cores", [vm.cores for vm in vms], host.cores),
        ("MiB of memory", [vm.memory_mib for vm in vms], host.memory_mib),
    ):
        known = [size for size in of_vms if size is not None]
        if of_host is not None and len(known) == len(of_vms) and sum(known) > of_host:
            found.append(f"{len(vms)} VMs have {sum(known)} {what} together, their host {of_host}")
    return found
