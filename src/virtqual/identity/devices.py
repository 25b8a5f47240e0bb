"""Network interfaces and RDMA devices of a node, and what kind of virtual device each is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtqual.identity import record
from virtqual.identity.gather import LINK_FILES, NodeFiles
from virtqual.identity.record import Count, Kind, NotObservable, Text, seen, unseen

_NET, _IB = "/sys/class/net", "/sys/class/infiniband"
_PARAVIRTUAL = {"virtio_net", "vmxnet3", "hv_netvsc", "xen_netfront", "vif", "gve", "vmw_pvrdma"}
_EMULATED = {"e1000", "pcnet32", "8139cp", "8139too", "ne2k-pci", "vmxnet", "tulip"}
# PCI ids that QEMU gives to emulated devices (e1000e, igb, igbvf) whose drivers serve real hardware too.
_EMULATED_IDS = {"8086:10d3", "8086:10c9", "8086:10ca"}
# Vendors of the subsystem of an emulated device: QEMU, VMware. Devices of a host keep that of their maker.
_EMULATORS = ("1af4:", "15ad:")
_VF_DRIVERS = {"ixgbevf", "iavf", "i40evf", "igbvf", "efa", "ena", "mana"}
# Virtual functions that share a driver with the whole device: the PCI ID database calls them so.
_VF_IDS = {
    *(f"15b3:{number}" for number in ("1002", "1004")),
    *(f"15b3:{number}" for number in ("1012", "1014", "1016", "1018", "101a", "101c", "101e")),
    *(f"14e4:{number}" for number in ("1606", "16dc", "1806")),
}


def kind(
    driver: Text,
    pci_id: Text,
    *,
    virtual_function: bool,
    guest: bool,
    subsystem: str = "",
) -> Kind | NotObservable:
    """Return the kind of a device; `pci_id` is its vendor and device, such as ``15b3:1017``.

    `subsystem` is the same of its subsystem, and empty if that is not seen. `virtual_function` tells that the
    kernel shows its physical function, which a guest cannot see.
    """
    if driver in _PARAVIRTUAL:
        return "paravirtual"
    if guest and subsystem.startswith(_EMULATORS):
        return "emulated"
    if virtual_function or driver in _VF_DRIVERS or pci_id in _VF_IDS:
        return "virtual function"
    if not guest:
        return "physical"
    # An 82576 (igb) of the host's has the subsystem of its maker, which QEMU's e1000e shows, too.
    is_hosts = driver == "igb" and subsystem
    if driver in _EMULATED or (pci_id in _EMULATED_IDS and not is_hosts):
        return "emulated"
    if seen(pci_id):
        return "passthrough"
    return unseen("neither its driver nor a PCI id tells it")


def nics(files: NodeFiles, *, guest: bool) -> tuple[record.Nic, ...]:
    """Return all network interfaces but the loopback."""
    devices = [_Device(files, f"{_NET}/{name}", guest) for name in files.under(_NET) if name != "lo"]
    return tuple(
        record.Nic(
            name=device.name,
            kind=device.kind,
            driver=device.driver,
            pci_id=device.pci_id,
            mtu=device.read_number("mtu"),
            rate_mbit=device.read_number("speed"),
            numa_node=device.read_number("device/numa_node"),
            link=device.link,
        )
        for device in devices
    )


def hcas(files: NodeFiles, *, guest: bool) -> tuple[record.Hca, ...]:
    """Return all RDMA devices."""
    devices = [_Device(files, f"{_IB}/{name}", guest) for name in files.under(_IB)]
    return tuple(
        record.Hca(
            name=device.name,
            kind=device.kind,
            type=device.read("hca_type"),
            board=device.read("board_id"),
            firmware=device.read("fw_ver"),
            numa_node=device.read_number("device/numa_node"),
            link=device.link,
            ports=tuple(
                record.Port(
                    number=number,
                    state=device.read(f"ports/{number}/state"),
                    rate=device.read(f"ports/{number}/rate"),
                    link_layer=device.read(f"ports/{number}/link_layer"),
                )
                for number in files.under(f"{device.path}/ports")
            ),
        )
        for device in devices
    )


@dataclass(frozen=True)
class _Device:
    """A device of a node, by its directory below ``/sys/class``; `guest` nodes run under a hypervisor."""

    files: NodeFiles
    path: str
    guest: bool

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def read(self, name: str) -> Text:
        return self.files.text(f"{self.path}/{name}")

    def read_number(self, name: str) -> Count:
        text = self.read(name)
        if not seen(text):
            return text
        # The kernel prints -1 for an unknown rate or NUMA node.
        return int(text) if re.fullmatch(r"\d+", text) else unseen(f"the kernel says {text!r}")

    def _read_uevent(self, key: str, absence: str) -> Text:
        text = self.read("device/uevent")
        match = re.search(rf"^{key}=(\S+)", text, re.MULTILINE) if seen(text) else None
        return match[1] if match else unseen(f"{self.path}: {absence}")

    @property
    def driver(self) -> Text:
        return self._read_uevent("DRIVER", "no device names a driver")

    @property
    def pci_id(self) -> Text:
        text = self._read_uevent("PCI_ID", "no PCI device")
        return text.lower() if seen(text) else text

    @property
    def kind(self) -> Kind | NotObservable:
        if not self.files.under(f"{self.path}/device"):
            return "software"
        is_virtual_function = seen(self.read("device/physfn/vendor"))
        subsystem = self._read_uevent("PCI_SUBSYS_ID", "no PCI device")
        return kind(
            self.driver,
            self.pci_id,
            virtual_function=is_virtual_function,
            guest=self.guest,
            subsystem=subsystem.lower() if seen(subsystem) else "",
        )

    @property
    def link(self) -> record.PcieLink | NotObservable:
        speed_files = (f"{self.path}/device/{LINK_FILES[field]}" for field in ("speed", "best_speed"))
        if self.files.texts.keys().isdisjoint(speed_files):
            return unseen("its device shows no PCIe link")
        return record.PcieLink(**{field: self._read_link(name) for field, name in LINK_FILES.items()})

    def _read_link(self, name: str) -> Text:
        text = self.read(f"device/{name}")
        # The kernel prints the absent link of a virtual function or an emulated bridge in three ways.
        if seen(text) and (text.lower().startswith("unknown") or text in ("0", "255")):
            return unseen(f"the kernel says {text!r}")
        return text
