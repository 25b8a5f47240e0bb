"""Network interfaces and RDMA devices of a node, and what kind of virtual device each is."""

from __future__ import annotations

import re

from virtqual.identity import record
from virtqual.identity.gather import NodeFiles
from virtqual.identity.record import Count, Kind, NotObservable, Text, seen

_NET, _IB = "/sys/class/net", "/sys/class/infiniband"
_PARAVIRTUAL = {"virtio_net", "vmxnet3", "hv_netvsc", "xen_netfront", "vif", "gve"}
_EMULATED = {"e1000", "pcnet32", "8139cp", "8139too", "ne2k-pci", "vmxnet", "tulip"}
# PCI ids that hypervisors give to emulated devices whose drivers serve real hardware too.
_EMULATED_IDS = {"8086:10d3"}
_VF_DRIVERS = {"ixgbevf", "iavf", "i40evf", "igbvf", "efa", "ena", "mana"}
# Virtual functions that share a driver with the whole device: the PCI ID database calls them so.
_VF_IDS = {
    *(f"15b3:{number}" for number in ("1002", "1004")),
    *(f"15b3:{number}" for number in ("1012", "1014", "1016", "1018", "101a", "101c", "101e")),
    *(f"14e4:{number}" for number in ("1606", "16dc", "1806")),
}


def kind(driver: Text, pci_id: Text, *, virtual_function: bool, guest: bool) -> Kind | NotObservable:
    """Return what kind of device it is.

    Parameters
    ----------
    driver, pci_id
        Kernel driver, and vendor and device as ``15b3:1017``.
    virtual_function
        Whether the kernel shows the physical function that it belongs to (a host sees that, a guest not).
    guest
        Whether the node runs under a hypervisor.
    """
    if seen(driver) and driver in _PARAVIRTUAL:
        return "paravirtual"
    if virtual_function or (seen(driver) and driver in _VF_DRIVERS) or (seen(pci_id) and pci_id in _VF_IDS):
        return "virtual function"
    if not guest:
        return "physical"
    if (seen(driver) and driver in _EMULATED) or (seen(pci_id) and pci_id in _EMULATED_IDS):
        return "emulated"
    if seen(pci_id):
        return "passthrough"
    return NotObservable(not_observable="neither its driver nor a PCI id tells it")


def nics(files: NodeFiles, *, guest: bool) -> tuple[record.Nic, ...]:
    """Return all network interfaces but the loopback."""
    found = []
    for name in files.under(_NET):
        if name == "lo":
            continue
        base = f"{_NET}/{name}"
        device = bool(files.under(f"{base}/device"))
        driver, pci_id = _driver(files, base), _pci_id(files, base)
        found.append(
            record.Nic(
                name=name,
                kind=_kind(files, base, guest=guest) if device else "software",
                driver=driver,
                pci_id=pci_id,
                mtu=_whole(files.text(f"{base}/mtu"), 0),
                rate_mbit=_whole(files.text(f"{base}/speed"), 0),
                numa_node=_whole(files.text(f"{base}/device/numa_node"), 0),
                link=_link(files, base),
            )
        )
    return tuple(found)


def hcas(files: NodeFiles, *, guest: bool) -> tuple[record.Hca, ...]:
    """Return all RDMA devices."""
    found = []
    for name in files.under(_IB):
        base = f"{_IB}/{name}"
        device = bool(files.under(f"{base}/device"))
        ports = tuple(
            record.Port(
                number=number,
                state=files.text(f"{base}/ports/{number}/state"),
                rate=files.text(f"{base}/ports/{number}/rate"),
                link_layer=files.text(f"{base}/ports/{number}/link_layer"),
            )
            for number in files.under(f"{base}/ports")
        )
        found.append(
            record.Hca(
                name=name,
                kind=_kind(files, base, guest=guest) if device else "software",
                type=files.text(f"{base}/hca_type"),
                board=files.text(f"{base}/board_id"),
                firmware=files.text(f"{base}/fw_ver"),
                numa_node=_whole(files.text(f"{base}/device/numa_node"), 0),
                link=_link(files, base),
                ports=ports,
            )
        )
    return tuple(found)


def _kind(files: NodeFiles, base: str, *, guest: bool) -> Kind | NotObservable:
    virtual_function = seen(files.text(f"{base}/device/physfn/vendor"))
    return kind(_driver(files, base), _pci_id(files, base), virtual_function=virtual_function, guest=guest)


def _driver(files: NodeFiles, base: str) -> Text:
    text = files.text(f"{base}/device/uevent")
    match = re.search(r"^DRIVER=(\S+)", text, re.MULTILINE) if seen(text) else None
    return match[1] if match else NotObservable(not_observable=f"{base}: no device names a driver")


def _pci_id(files: NodeFiles, base: str) -> Text:
    text = files.text(f"{base}/device/uevent")
    match = re.search(r"^PCI_ID=(\S+)", text, re.MULTILINE) if seen(text) else None
    return match[1].lower() if match else NotObservable(not_observable=f"{base}: no PCI device")


def _whole(value: Text, least: int) -> Count:
    # The kernel prints -1 for a rate or a NUMA node that it does not know.
    if not seen(value):
        return value
    if re.fullmatch(r"\d+", value) and int(value) >= least:
        return int(value)
    return NotObservable(not_observable=f"the kernel says {value!r}")


def _link(files: NodeFiles, base: str) -> record.PcieLink | NotObservable:
    def of(name: str) -> Text:
        text = files.text(f"{base}/device/{name}")
        # Virtual functions and emulated bridges have none: the kernel prints that in three ways.
        if seen(text) and (text.lower().startswith("unknown") or text in ("0", "255")):
            return NotObservable(not_observable=f"the kernel says {text!r}")
        return text

    if all(f"{base}/device/{name}" not in files.texts for name in ("current_link_speed", "max_link_speed")):
        return NotObservable(not_observable="its device shows no PCIe link")
    return record.PcieLink(
        speed=of("current_link_speed"),
        width=of("current_link_width"),
        best_speed=of("max_link_speed"),
        best_width=of("max_link_width"),
    )
