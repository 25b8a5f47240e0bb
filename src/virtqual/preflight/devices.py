"""Rules on network adapters: their kind, link, and place."""

from __future__ import annotations

from collections.abc import Iterator

from virtqual.identity import fabric
from virtqual.identity.fabric import RdmaPort
from virtqual.identity.record import Hca, Identity, read_leading_number, seen, unseen
from virtqual.preflight.rules import Found, differs, rule, sides
from virtqual.runs import Run

#: Metrics of half a round trip, us.
MPI_LATENCIES = ("mpi_latency", "osu_latency")


@rule("nodes", "nic-emulated")
def nic_emulated(native: Identity, virtual: Identity) -> Found:
    """An emulated adapter leaves the guest for every packet."""
    for nic in virtual.nics:
        if nic.kind == "emulated":
            yield f"{nic.name} of the VM is an emulated adapter ({nic.driver})"


@rule("nodes", "mtu")
def mtu(native: Identity, virtual: Identity) -> Found:
    """Interfaces of one name carry the same frames."""
    virtual_nics = {nic.name: nic for nic in virtual.nics}
    common = [nic for nic in native.nics if nic.name in virtual_nics]
    if not common:
        yield unseen("no network interface has the same name on both sides")
    for nic in common:
        yield from differs(f"the MTU of {nic.name}", nic.mtu, virtual_nics[nic.name].mtu)


@rule("nodes", "hca-missing")
def hca_missing(native: Identity, virtual: Identity) -> Found:
    """RDMA on one side only compares a fabric with something else."""
    native_count, virtual_count = len(native.hcas), len(virtual.hcas)
    if native_count != virtual_count:
        yield f"{native_count} RDMA devices natively, {virtual_count} in the VM"


@rule("nodes", "link-rate")
def link_rate(native: Identity, virtual: Identity) -> Found:
    """A port that is down on one side, or trained to a lower rate; on both, where its rate is stated.

    Where the system file names no port, the fastest ports of one network are compared.
    """
    ports = fabric.select_ports(native), fabric.select_ports(virtual)
    active = _select_active_ports(native, virtual)
    native_rate, virtual_rate = (max((port.port.gbit for port in of_side), default=0) for of_side in active)
    stated = virtual.host.link_gbit if seen(virtual.host) else virtual.host
    if seen(stated):
        if not active[1]:
            yield f"the VM has no active RDMA port, extras.link_gbit says {stated:g} Gbit/s"
        for (side, node), rate in zip(sides(native, virtual), (native_rate, virtual_rate), strict=True):
            if rate and rate != stated:
                yield f"{_name_port(node)} of {side} has {rate:g} Gbit/s, extras.link_gbit says {stated:g}"
    layers = [{port.layer for port in of_side} for of_side in active]
    if native.rdma_port and virtual.rdma_port and all(layers) and layers[0] != layers[1]:
        yield f"the RDMA port is {', '.join(layers[0])} natively and {', '.join(layers[1])} in the VM"
    if not all(ports):
        yield from _find_missing_ports(native, virtual)
        return
    # How many adapters each side has is another item's.
    if not active[0] or not active[1]:
        states = [", ".join(str(port.port.state) for port in of_side) for of_side in ports]
        yield f"RDMA ports are {states[0]} natively and {states[1]} in the VM"
    if not native_rate or not virtual_rate:
        yield unseen("the rate of an RDMA port: none is active, or a driver hides it")
    # A native node may have a faster adapter that the VM has not: that is another item's, too.
    elif virtual_rate < native_rate and virtual_rate not in {port.port.gbit for port in active[0]}:
        yield f"{_name_port(native)} has {native_rate:g} Gbit/s natively and {virtual_rate:g} in the VM"


def _select_active_ports(native: Identity, virtual: Identity) -> list[list[RdmaPort]]:
    """Return the active ports on either side: those that the system file names, or of one network."""
    if native.rdma_port or virtual.rdma_port:
        return [
            [port for port in fabric.select_ports(node) if port.port.is_active] for node in (native, virtual)
        ]
    ports = [fabric.list_active_ports(node) for node in (native, virtual)]
    layers = {port.layer for port in ports[0]} & {port.layer for port in ports[1]}
    # Without a common network it is not known which port carries messages.
    layer = next((layer for layer in fabric.LAYERS if layer in layers), None)
    return [[port for port in of_side if layer in (None, port.layer)] for of_side in ports]


def _name_port(node: Identity) -> str:
    return f"RDMA port {node.rdma_port}" if node.rdma_port else "the fastest RDMA port"


def _find_missing_ports(native: Identity, virtual: Identity) -> Iterator[str]:
    """Yield a sentence for a port that the system file names and a node that has adapters has not."""
    for side, node in sides(native, virtual):
        if node.rdma_port and fabric.list_ports(node) and not fabric.select_ports(node):
            names = ", ".join(port.name for port in fabric.list_ports(node))
            yield f"extras.rdma_options names {node.rdma_port}, {side} has {names}"


@rule("nodes", "pcie-link")
def pcie_link(native: Identity, virtual: Identity) -> Found:
    """A PCIe link that runs below what the adapter could do."""
    for side, node in sides(native, virtual):
        links = [(hca.name, hca.link) for hca in node.hcas] + [(nic.name, nic.link) for nic in node.nics]
        for name, link in links:
            if not seen(link):
                continue
            for what, now, best in (
                ("speed", link.speed, link.best_speed),
                ("width", link.width, link.best_width),
            ):
                if seen(now) and seen(best) and read_leading_number(now) < read_leading_number(best):
                    yield f"{side}: the PCIe link of {name} has the {what} {now}, it could have {best}"


@rule("nodes", "nic-rate")
def nic_rate(native: Identity, virtual: Identity) -> Found:
    """Interfaces of one name; which of them carries messages is not known here."""
    virtual_rates = {nic.name: nic.rate_mbit for nic in virtual.nics}
    for nic in native.nics:
        other = virtual_rates.get(nic.name)
        if seen(nic.rate_mbit) and isinstance(other, int) and other < nic.rate_mbit:
            yield f"{nic.name} has {nic.rate_mbit} Mbit/s natively and {other} in the VM"


@rule("nodes", "hca-locality")
def hca_locality(native: Identity, virtual: Identity) -> Found:
    """An adapter on another NUMA node than the CPUs in use adds a hop to every message.

    An adapter that is remote on both sides slows both. A node may have an adapter for each socket.
    """
    reasons = []
    for side, node in sides(native, virtual):
        nodes, numa = node.topology.spanned(node.topology.numa), node.topology.numa
        hcas = [hca for hca in node.hcas if hca.kind != "software"]
        if not hcas or (seen(numa) and len(numa) == 1):
            continue
        hidden = [hca.name for hca in hcas if not seen(hca.numa_node)]
        if not seen(nodes) or hidden:
            yield unseen(f"{side}: the NUMA node of {', '.join(hidden or [hca.name for hca in hcas])}")
            return
        if not any(str(hca.numa_node) in nodes for hca in hcas):
            where = ", ".join(f"{hca.name} is on NUMA node {hca.numa_node}" for hca in hcas)
            reasons.append(f"{side}: {where}, the CPUs in use are on {', '.join(nodes)}")
    if len(reasons) == 1:
        yield from reasons


@rule("nodes", "hca-firmware")
def hca_firmware(native: Identity, virtual: Identity) -> Found:
    """Same firmware, or two adapters are compared."""
    hcas: list[list[Hca]] = [list(native.hcas), list(virtual.hcas)]
    if native.rdma_port and virtual.rdma_port:
        hcas = [[port.hca for port in fabric.select_ports(node)] for node in (native, virtual)]
    for native_hca, virtual_hca in zip(*hcas, strict=False):
        yield from differs(f"the firmware of {native_hca.name}", native_hca.firmware, virtual_hca.firmware)


@rule("nodes", "write-combining")
def write_combining(native: Identity, virtual: Identity) -> Found:
    """ESXi maps device memory write-combining for Intel processors only, as the study says."""
    accelerator, vendor = virtual.hypervisor.accelerator, virtual.cpu.signature
    if virtual.hcas and accelerator == "esxi" and seen(vendor) and not vendor.startswith("GenuineIntel"):
        yield f"ESXi on {vendor.split()[0]} with an RDMA device: the study's write combining is Intel only"


@rule("rdma", "mpi-transport")
def mpi_transport(run: Run, *, latency_us: float) -> Iterator[str]:
    """A small message that takes too long for RDMA went over TCP: on both sides alike, it would pass."""
    nodes = run.identity.values()
    has_adapters = bool(nodes) and all(any(hca.kind != "software" for hca in node.hcas) for node in nodes)
    for result in run.results:
        is_between_nodes = result.metric in MPI_LATENCIES and result.setting.startswith("two nodes")
        if is_between_nodes and has_adapters and min(result.values) > latency_us:
            yield (
                f"MPI went over TCP: a message takes {min(result.values):.3g} us at least ({result.series}), "
                f"and over RDMA less than {latency_us:g} us"
            )
