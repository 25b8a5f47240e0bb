"""The hosts of nodes, stated as ``extras.nodes_of_hosts`` because a guest cannot see its host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

# A single name as Slurm and the node have it; a list such as ``vm[1-4]`` is refused.
_Node = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
_Host = Annotated[str, Field(min_length=1)]
Hosts = Mapping[str, Sequence[str]]


def _check_names(hosts: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    host_of_node: dict[str, str] = {}
    for host, nodes in hosts.items():
        for node in nodes:
            if first_host := host_of_node.get(shorten(node)):
                raise ValueError(f"{node} stands twice, on {first_host} and on {host}")
            host_of_node[shorten(node)] = host
    hosts_by_name: dict[str, str] = {}
    for host in hosts:
        if (other := hosts_by_name.setdefault(shorten(host), host)) != host:
            raise ValueError(f"{other} and {host} are one host by the first part of their names")
    return hosts


def shorten(name: str) -> str:
    """Return the first part of a name: nodes may call themselves by their whole domain name."""
    return name.partition(".")[0]


#: Names of nodes by their host, in the order in which they are to be taken.
NodesOfHosts = Annotated[
    dict[_Host, Annotated[tuple[_Node, ...], Field(min_length=1)]], AfterValidator(_check_names)
]


def count_max_nodes(hosts: Hosts) -> int:
    """Return the largest number of nodes that share a host; 0 without hosts."""
    return max(map(len, hosts.values()), default=0)


def select_nodes_of_one_host(hosts: Hosts, count: int) -> tuple[str, ...]:
    """Return `count` nodes of the first host that has as many; none if no host has.

    Examples
    --------
    >>> select_nodes_of_one_host({"a": ("vm1",), "b": ("vm2", "vm3", "vm4")}, 2)
    ('vm2', 'vm3')
    """
    return next((tuple(vms[:count]) for vms in hosts.values() if len(vms) >= count), ())


def select_nodes_of_hosts(hosts: Hosts, count: int) -> tuple[str, ...]:
    """Return a node of each of `count` hosts; none if there are fewer.

    Examples
    --------
    >>> hosts = {"a": ("vm1", "vm2"), "b": ("vm3", "vm4")}
    >>> select_nodes_of_hosts(hosts, 2), select_nodes_of_hosts(hosts, 3)
    (('vm1', 'vm3'), ())
    """
    return tuple(vms[0] for vms in list(hosts.values())[:count]) if count <= len(hosts) else ()


def find_hosts(
    hosts: Hosts,
    nodes: Iterable[str],
    side: Literal["native", "virtual"],
    host_names: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the host of each node, by the first part of its name, so that both sides name it alike.

    A native node that the table does not have is its own host; such a VM is left out. `host_names` are names
    by which nodes call themselves: the table may have these.

    Examples
    --------
    >>> find_hosts({"n1.cluster.example": ["vm1"]}, ["vm1", "vm2"], "virtual")
    {'vm1': 'n1'}
    >>> find_hosts({}, ["n1.cluster.example"], "native")
    {'n1.cluster.example': 'n1'}
    >>> find_hosts({"kvm1": ["x1000c0s0b0n0"]}, ["nid000001"], "virtual", {"nid000001": "x1000c0s0b0n0"})
    {'nid000001': 'kvm1'}
    """
    host_of_node = {shorten(node): shorten(host) for host, members in hosts.items() for node in members}
    found = {}
    for node in nodes:
        names = shorten(node), shorten(host_names.get(node, node))
        host = next((host_of_node[name] for name in names if name in host_of_node), None)
        if host or side == "native":
            found[node] = host or names[0]
    return found


def are_separate(native_hosts: Hosts, native: Sequence[str], vm_hosts: Hosts, vms: Sequence[str]) -> bool:
    """Return whether nodes are known to be alone on their hosts, so that all can work at once.

    Examples
    --------
    >>> hosts = {"h1": ("vm1",), "h2": ("vm2",), "n1": ("vm3",), "h4": ("vm4", "vm5")}
    >>> are_separate({}, ["n1", "n2"], hosts, ["vm1", "vm2"])
    True
    >>> are_separate({}, ["n1", "n2"], hosts, ["vm1", "vm3"]), are_separate({}, ["n1"], hosts, ["vm4"])
    (False, False)

    Native nodes that are the VMs' own hosts by another name:

    >>> are_separate({"h1": ("n1",), "h2": ("n2",)}, ["n1", "n2"], hosts, ["vm1", "vm2"])
    False
    """
    of_vms = list(find_hosts(vm_hosts, vms, "virtual").values())
    of_native = list(find_hosts(native_hosts, native, "native").values())
    shared_hosts = {shorten(host) for host, members in vm_hosts.items() if len(members) > 1}
    return (
        len(of_vms) == len(vms)
        and len({*of_vms, *of_native}) == len(of_vms) + len(of_native)
        and shared_hosts.isdisjoint(of_vms)
    )


@dataclass(frozen=True)
class Size:
    """The size of a machine: cores, and memory in MiB. A value that is not known is None."""

    cores: int | None
    memory_mib: int | None


def find_overcommitment(vms: Sequence[Size], host: Size) -> list[str]:
    """Return a clause for each resource of which VMs have more together than their host.

    Examples
    --------
    >>> find_overcommitment([Size(8, 60000)] * 2, Size(16, 128000))
    []
    >>> find_overcommitment([Size(8, 40000)] * 3, Size(16, 128000))
    ['3 VMs have 24 cores together, their host 16']
    """
    clauses = []
    for resource, of_vms, of_host in (
        ("cores", [vm.cores for vm in vms], host.cores),
        ("MiB of memory", [vm.memory_mib for vm in vms], host.memory_mib),
    ):
        sizes = [size for size in of_vms if size is not None]
        if of_host is not None and len(sizes) == len(of_vms) and sum(sizes) > of_host:
            clauses.append(f"{len(vms)} VMs have {sum(sizes)} {resource} together, their host {of_host}")
    return clauses
