"""Find what a system file states otherwise than Slurm and the nodes show it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain

from virtqual.errors import UsageError
from virtqual.files.wording import list_names, node_sort_key, pluralize, suggest
from virtqual.identity import fabric, seen
from virtqual.site.hosts import shorten
from virtqual.site.limits import (
    Demand,
    explain_constraint,
    find_exceeded_limits,
    find_obstacles,
    find_wrong_selection,
)
from virtqual.site.observed import Fact, Observed, find_contradictions, observe_link_rate, reconcile
from virtqual.site.options import parse_options
from virtqual.site.partitions import SlurmPartition, read_partition, select_nodes, shorten_nodes
from virtqual.site.systems import System
from virtqual.verdict.pairs import SIDES

MAX_NODES_SHOWN = 4


def compare_with_slurm(system: System) -> Iterator[str]:
    """Yield a sentence for each value that does not agree with Slurm's configuration, with its key."""
    for side in SIDES:
        partition = system.partition(side)
        stated = {"access": partition.access, "extras.session_access": partition.extras.session_access}
        for key, words in stated.items():
            if not words:
                continue
            place, options = system.name_key(side, key), parse_options(words)
            try:
                in_slurm = read_partition(options.get("--partition", ""))
            except UsageError as error:
                yield f"{place}: {error}"
                continue
            wrong = [*find_obstacles(in_slurm, options), *find_wrong_selection(in_slurm, options)]
            yield from (f"{place}: {problem}" for problem in wrong)
            if key == "extras.session_access" or not partition.extras.session_access:
                yield from _compare_sizes(system, side, in_slurm)
                yield from _compare_limits(system, side, place, in_slurm)


def _compare_sizes(system: System, side: str, in_slurm: SlurmPartition) -> Iterator[str]:
    """Yield a sentence for each number that the nodes of a session's jobs do not have by Slurm."""
    partition = system.partition(side)
    nodes = sorted(select_nodes(partition, in_slurm.sizes), key=node_sort_key)
    if len(nodes) < partition.extras.nodes:
        yield (
            f"{system.name_key(side, 'extras.nodes')}: states {partition.extras.nodes}, but partition "
            f"{in_slurm.name} has {pluralize(len(nodes), 'node')} that the options of jobs allow"
        )
    for key, field, stated in (
        ("processor.num_cpus", "cpus", partition.processor["num_cpus"]),
        ("extras.memory_mib", "memory_mib", partition.extras.memory_mib),
    ):
        configured = {node: getattr(in_slurm.sizes[node], field) for node in nodes}
        smaller = {node: size for node, size in configured.items() if size is not None and size < stated}
        if smaller:
            least = min(smaller, key=smaller.__getitem__)
            reason = in_slurm.explain_cpus(least) if field == "cpus" else in_slurm.explain_memory(least)
            in_config = f"Slurm has {smaller[least]} for {shorten_nodes(smaller)}{reason}"
            yield f"{system.name_key(side, key)}: states {stated}, but {in_config}"
    used = in_slurm.keep(nodes)
    if len({(kind.size.cpus, kind.size.cores) for kind in used.kinds}) > 1:
        place = system.name_key(side, "access")
        yield f"{place}: allows nodes of different sizes: {used.describe_kinds()}. Use --exclude"
    yield from _compare_names(system, side, in_slurm)


def _compare_names(system: System, side: str, in_slurm: SlurmPartition) -> Iterator[str]:
    """Yield a sentence on nodes of hosts that are no nodes of the partition by the names that Slurm has."""
    named = list(chain(*system.partition(side).extras.nodes_of_hosts.values()))
    place, listed = system.name_key(side, "extras.nodes_of_hosts"), set(map(shorten, in_slurm.sizes))
    found = {vm: in_slurm.find_node([shorten(vm)]) for vm in named if shorten(vm) not in listed}
    if unknown := [vm for vm, node in found.items() if node is None]:
        shown = list_names(unknown, MAX_NODES_SHOWN)
        yield f"{place}: names {shown}, which partition {in_slurm.name} has not"
    if renamed := [f"{vm} ({node})" for vm, node in found.items() if node]:
        shown = list_names(renamed, MAX_NODES_SHOWN)
        yield f"{place}: names {shown} by their machines' names: write Slurm's, which are in brackets"


def _compare_limits(system: System, side: str, place: str, in_slurm: SlurmPartition) -> Iterator[str]:
    """Yield a sentence for each limit of partition, account or QOS that a session's jobs exceed."""
    partition = system.partition(side)
    is_held = bool(partition.extras.session_access)
    demand = Demand(
        partition.job_options, partition.extras.nodes, partition.processor["num_cpus"], 2 if is_held else 1
    )
    places = {"nodes": system.name_key(side, "extras.nodes")}
    for key, sentence in find_exceeded_limits(in_slurm, demand):
        yield f"{places.get(key, place)}: {sentence}"


def find_notes(system: System) -> Iterator[str]:
    """Yield a sentence on what Slurm alone decides, and on nodes that differ in memory or features only."""
    for side in SIDES:
        options = system.partition(side).job_options
        if note := explain_constraint(options):
            yield f"{system.name_key(side, 'access')}: {note}"
        selected = read_partition(options.get("--partition", "")).select(options)
        for note in filter(None, (selected.describe_kinds(), selected.describe_features())):
            yield f"{system.name_key(side, 'access')}: {note}"


def compare_with_nodes(system: System, native: Observed, virtual: Observed) -> Iterator[str]:
    """Yield a sentence for each value that a node of either partition shows otherwise, with its key."""
    for side, observed in zip(SIDES, reconcile(native, virtual), strict=True):
        partition = system.partition(side)
        extras = partition.extras
        stated: dict[str, object] = {**partition.processor}
        stated |= extras.model_dump(include={"llc_bytes", "numa_nodes", "link_gbit"})
        facts = {f"processor.{key}": fact for key, fact in observed.processor.items()}
        facts |= {f"extras.{key}": fact for key, fact in observed.extras.items()}
        # How the sides differ in the ports that were drafted is preflight's.
        drafted = observed.extras.get("rdma_options")
        is_drafted = drafted is not None and tuple(drafted.value) == extras.rdma_options
        if not is_drafted and (gbit := observe_link_rate(observed, extras.rdma_options)):
            facts["extras.link_gbit"] = gbit
        for key, fact in facts.items():
            value = stated.get(key.rpartition(".")[2])
            if value is not None and value != fact.value:
                yield f"{system.name_key(side, key)}: {_format_difference(value, fact)}"
        total = observed.identity.memory.total_mib
        if seen(total) and extras.memory_mib > total:
            place = system.name_key(side, "extras.memory_mib")
            message = f"{observed.node} has {total} MiB: state less, for its system"
            yield f"{place}: states {extras.memory_mib}, but {message}"
        for contradiction in find_contradictions(observed):
            yield f"{system.name_key(side, 'processor')}: {contradiction}"
        yield from _compare_rdma(system, side, observed)
    yield from _compare_layers(system, native, virtual)
    yield from _compare_hypervisor(system, virtual)


def _format_difference(value: object, fact: Fact) -> str:
    return f"states {value}, but it is {fact.value} ({fact.origin})"


def _compare_rdma(system: System, side: str, observed: Observed) -> Iterator[str]:
    """Yield what is wrong with the port that a partition's RDMA options name."""
    partition, node = system.partition(side), observed.node
    if "rdma" not in partition.features:
        return
    active = fabric.list_active_ports(observed.identity)
    if not active:
        yield f"{system.name_key(side, 'features')}: states 'rdma', but {node} has no active RDMA port"
    place, options = system.name_key(side, "extras.rdma_options"), partition.extras.rdma_options
    device, number = fabric.parse_options(options)
    devices = [hca.name for hca in observed.identity.hcas]
    if not device:
        return
    if device not in devices:
        yield f"{place}: states {device!r}, but {node} has no such device: {suggest(device, devices)}"
        return
    named = fabric.find_port(observed.identity, options)
    best = next((port for port in active if port.kind == fabric.rank_kinds(active)[0]), None)
    remedy = f": write {json.dumps(best.options)}" if best else ""
    if named is None:
        yield f"{place}: names port {number} of {device}, which {node} does not have{remedy}"
    elif not named.port.is_active:
        default = "" if any(o.startswith(("-i", "--ib-port")) for o in options) else " (no -i names another)"
        yield f"{place}: {named.name} of {node} is {named.port.state}{default}{remedy}"
    elif named.is_efa:
        yield (
            f"{system.name_key(side, 'features')}: states 'rdma', but {named.name} of {node} is EFA, which "
            "has no queue pairs of type RC: take 'rdma' from the features"
        )
    elif devices_of_mpi := partition.mpi_devices:
        if not {device, f"{device}:{number}"} & set(devices_of_mpi):
            stated = ",".join(devices_of_mpi)
            yield f"{place}: names {named.name}, but env_vars has MPI use UCX_NET_DEVICES={stated}"
    elif best and named.layer == "Ethernet" and best.layer == "InfiniBand":
        yield (
            f"{place}: {named.name} of {node} is Ethernet, and MPI takes {best.name} (InfiniBand){remedy}, "
            "or state UCX_NET_DEVICES in env_vars if MPI is to use Ethernet"
        )


def _compare_layers(system: System, native: Observed, virtual: Observed) -> Iterator[str]:
    """Yield a sentence if the RDMA options of the sides name ports of different networks."""
    ports = [
        fabric.find_port(observed.identity, system.partition(side).extras.rdma_options)
        for side, observed in zip(SIDES, (native, virtual), strict=True)
    ]
    if ports[0] and ports[1] and ports[0].layer != ports[1].layer:
        shown = " and ".join(
            f"{port.name} of {observed.node} is {port.layer}"
            for port, observed in zip(ports, (native, virtual), strict=True)
            if port
        )
        yield f"{system.name_key('virtual', 'extras.rdma_options')}: {shown}: name ports of one network"


def _compare_hypervisor(system: System, virtual: Observed) -> Iterator[str]:
    if virtual.identity.hypervisor.present is False:
        place = system.name_key("virtual", "features")
        yield f"{place}: states 'virtual', but {virtual.node} runs under no hypervisor"
    stated: Mapping[str, object] = system.virtual_extras.hypervisor.model_dump()
    for key, fact in virtual.hypervisor.items():
        if stated[key] != fact.value:
            place = system.name_key("virtual", f"extras.hypervisor.{key}")
            yield f"{place}: {_format_difference(repr(stated[key]), fact)}"
