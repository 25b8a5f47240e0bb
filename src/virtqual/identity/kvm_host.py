"""Facts of a host of KVM guests: modules, options of its kernel; each VM with its QEMU and its package."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from virtqual.errors import UsageError
from virtqual.identity import gather, host, readers
from virtqual.identity.gather import NodeFiles
from virtqual.identity.record import Text, seen, unseen

#: Modules whose parameters decide how guests run, and how their memory is mapped for adapters.
MODULES = ("kvm*", "vfio_iommu_type1")
_OPTION = re.compile(r"(?:intel_iommu|amd_iommu|iommu(?:\.\w+)?)=\S+")
_MODULE_FILE = re.compile(r"/sys/module/(\w+)/(?:parameters/)?(\w+)")


def script() -> str:
    """Return the shell script that prints the facts of a KVM host and its VMs, for :func:`gather.parse`."""
    files = [f"/sys/module/{module}/{name}" for module in MODULES for name in ("*version", "parameters/*")]
    return gather.script(files, Path(__file__).with_suffix(".sh").read_text(encoding="utf-8"))


def read_script(files: NodeFiles, vm: str | None = None) -> dict[str, Any]:
    """Return all that :func:`script` gathered, of the host and of one of its VMs; see `select_vm`."""
    return {
        **host.read_identity(readers.read(files)),
        **read_files(files),
        **select_vm(read_vms(files, readers.cores(files)), vm),
    }


def read_files(files: NodeFiles) -> dict[str, Any]:
    """Return the fields of a :class:`~virtqual.identity.record.Host` by its ``/proc`` and ``/sys``."""
    modules = {}
    for path in sorted({*files.texts, *files.reasons}):
        if (match := _MODULE_FILE.fullmatch(path)) and "*" not in path:
            # Only modules of an own build have a version; the others have that of the kernel.
            modules[f"{match[1]}.{match[2]}"] = str(files.text(path))
    command_line = files.text("/proc/cmdline")
    options: Text = command_line
    if seen(command_line):
        options = " ".join(word for word in command_line.split() if _OPTION.fullmatch(word)) or "none"
    fields: dict[str, Any] = {
        "module_parameters": modules or unseen("/sys/module/kvm: not there, KVM is not loaded"),
        "iommu_options": options,
    }
    # Without these settings the IOMMU may map by larger pages, but need not.
    has_sp_off = seen(options) and re.search(r"intel_iommu=\S*\bsp_off\b", options)
    if has_sp_off or modules.get("vfio_iommu_type1.disable_hugepages") == "Y":
        fields["iommu_large_pages"] = False
    return fields


def read_vms(
    files: NodeFiles, cores: Mapping[int, frozenset[int]] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the fields of each VM of a host by its name; `cores` are those of the host, by CPU."""
    vms = {}
    domains = _read_domains(files)
    for process in files.under("/proc"):
        if not (cmdline := files.texts.get(f"/proc/{process}/cmdline")):
            continue
        arguments = cmdline.split("\n")
        # QEMU doubles the commas of a value.
        option = dict(pairwise(arguments)).get("-name", "").removeprefix("guest=").replace(",,", "\0")
        name = option.split(",")[0].replace("\0", ",") or f"process {process}"
        fields = host.read_qemu(arguments)
        if name in domains:
            fields |= host.read_libvirt(domains[name], cores)
        if affinities := files.texts.get(f"/proc/{process}/vcpu"):
            fields["vcpus_pinned"] = host.are_pinned(affinities.split("\n"), cores)
        vms[name] = {**fields, "qemu_package": _read_package(files, process)}
    return vms


def _read_domains(files: NodeFiles) -> dict[str, str]:
    """Return libvirt's descriptions by the name of the VM, which each description holds."""
    domains = {}
    for number in files.under("/virsh"):
        text = files.texts[f"/virsh/{number}"]
        try:
            name = ElementTree.fromstring(text).findtext("name")
        except ElementTree.ParseError:
            continue  # The VM is read from QEMU's arguments alone, as on a host without libvirt.
        domains[name or number] = text
    return domains


def _read_package(files: NodeFiles, process: str) -> Text:
    names = "exe", "package", "version"
    binary, package, version = (files.texts.get(f"/proc/{process}/{name}") for name in names)
    if binary is None:
        return unseen(f"/proc/{process}/exe: permission denied, only root sees QEMU's binary")
    if binary.endswith(" (deleted)"):
        # After an upgrade the VM runs on with the build before.
        return unseen(f"{binary.removesuffix(' (deleted)')}: replaced since the VM was started", differs=True)
    if not package and version:
        # It runs in a container, or was built by the site.
        running = version.removeprefix("QEMU emulator version ")
        return f"QEMU {running}, not of this host's packages"
    return package or unseen(f"no package of this host has {binary}")


def select_vm(vms: Mapping[str, Mapping[str, Any]], name: str | None = None) -> dict[str, Any]:
    """Return the fields of one VM of a host; without a name those of all, where differences are unseen."""
    if name and name not in vms:
        raise UsageError(f"no VM {name!r} runs on this host; those that do: {', '.join(vms) or 'none'}")
    selected = [vms[name]] if name else list(vms.values())
    differs = unseen(f"differs between the VMs {', '.join(vms)}: name one by --vm", differs=True)
    fields = {}
    for key in dict.fromkeys(key for vm in selected for key in vm):
        values = [vm.get(key) for vm in selected]
        fields[key] = values[0] if all(value == values[0] for value in values) else differs
    return fields
