"""Rules on network adapters: their kind, link, and place."""

from __future__ import annotations

from collections.abc import Iterator

from virtqual.identity.record import Identity, read_leading_number, seen, unseen
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
    """A port that is down on one side, or trained to a lower rate; on both, where its rate is stated."""
    all_ports = [[port for hca in node.hcas for port in hca.ports] for node in (native, virtual)]
    active = [[port for port in ports if port.is_active] for ports in all_ports]
    rates = [{port.gbit for port in ports} for ports in active]
    native_rate, virtual_rate = (max(of_side, default=0) for of_side in rates)
    stated = virtual.host.link_gbit if seen(virtual.host) else virtual.host
    if seen(stated):
        if not active[1]:
            yield f"the VM has no active RDMA port, extras.link_gbit says {stated:g} Gbit/s"
        for side, rate in (("native", native_rate), ("virtual", virtual_rate)):
            if rate and rate != stated:
                yield f"the fastest RDMA port of {side} has {rate:g} Gbit/s, extras.link_gbit says {stated:g}"
    if not all(all_ports):
        return
    # How many adapters each side has is another item's.
    if not active[0] or not active[1]:
        states = [", ".join(str(port.state) for port in ports) for ports in all_ports]
        yield f"RDMA ports are {states[0]} natively and {states[1]} in the VM"
    if not native_rate or not virtual_rate:
        yield unseen("the rate of an RDMA port: none is active, or a driver hides it")
    # A native node may have a faster adapter that the VM has not: that is another item's, too.
    elif virtual_rate < native_rate and virtual_rate not in rates[0]:
        yield f"the fastest RDMA port has {native_rate:g} Gbit/s natively and {virtual_rate:g} in the VM"


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
    for native_hca, virtual_hca in zip(native.hcas, virtual.hcas, strict=False):
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
