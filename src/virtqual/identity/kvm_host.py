"""What a host of KVM guests says: modules, their parameters, IOMMU; each VM with its QEMU and its package.

:func:`script` gathers it in POSIX shell, on hosts that have no Python of ours; :func:`of_files` and
:func:`vms` read what it printed.  What is not there is :class:`~virtqual.identity.record.NotObservable`, with
the reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from virtqual.errors import UsageError
from virtqual.identity import gather, host, readers
from virtqual.identity.gather import NodeFiles
from virtqual.identity.record import NotObservable, Text, seen

#: Modules whose parameters decide how guests run, and how their memory is mapped for adapters.
MODULES = ("kvm*", "vfio_iommu_type1")
_GROUPS = "/sys/kernel/iommu_groups"
#: What is read besides what every node says of itself, as shell patterns.
FILES = (
    *(f"/sys/module/{module}/{name}" for module in MODULES for name in ("*version", "parameters/*")),
    f"{_GROUPS}/*/type",
)
_VMS = Path(__file__).with_suffix(".sh")
_OPTION = re.compile(r"(?:intel_iommu|amd_iommu|iommu(?:\.\w+)?)=\S+")
_OF_MODULE = re.compile(r"/sys/module/(\w+)/(?:parameters/)?(\w+)")


def script() -> str:
    """Return the shell script that prints what a KVM host and its VMs are, for :func:`gather.parse`."""
    return gather.script(FILES, _VMS.read_text(encoding="utf-8"))


def of_files(files: NodeFiles) -> dict[str, Any]:
    """Return the fields of a :class:`~virtqual.identity.record.Host` that its ``/proc`` and ``/sys`` say."""
    groups = files.texts.get(_GROUPS)
    fields: dict[str, Any] = {
        "module_parameters": _modules(files),
        "iommu_groups": _not_there(_GROUPS) if groups is None else len(groups.split()),
        "iommu_types": _types(files),
        "iommu_options": _options(files),
    }
    if _forbids_large_pages(fields):
        fields["iommu_large_pages"] = False
    return fields


def of_script(files: NodeFiles, vm: str = "") -> dict[str, Any]:
    """Return all that :func:`script` gathered, of the host and of one of its VMs; see `of_vm`."""
    return {**host.of_identity(readers.read(files)), **of_files(files), **of_vm(vms(files), vm)}


def _not_there(path: str) -> NotObservable:
    return NotObservable(not_observable=f"{path}: no such file or directory")


def _modules(files: NodeFiles) -> dict[str, str] | NotObservable:
    found = {}
    for path in sorted({*files.texts, *files.reasons}):
        if (match := _OF_MODULE.fullmatch(path)) and "*" not in path:
            # A module of its own build says which; those of the kernel's are the kernel's release.
            found[f"{match[1]}.{match[2]}"] = str(files.text(path))
    return found or NotObservable(not_observable="/sys/module/kvm: not there, KVM is not loaded")


def _types(files: NodeFiles) -> Text:
    """Return how many groups have which type of domain, e.g. ``DMA-FQ 12, identity 45``."""
    groups = files.texts.get(_GROUPS)
    if groups is None:
        return _not_there(_GROUPS)
    types: list[str] = []
    for group in groups.split():
        text = files.text(f"{_GROUPS}/{group}/type")
        if not seen(text):
            return text
        types.append(text)
    counted = ", ".join(f"{name} {number}" for name, number in sorted(Counter(types).items()))
    return counted or NotObservable(not_observable=f"{_GROUPS}: holds no group")


def _options(files: NodeFiles) -> Text:
    line = files.text("/proc/cmdline")
    if not seen(line):
        return line
    return " ".join(word for word in line.split() if _OPTION.fullmatch(word)) or "none"


def _forbids_large_pages(fields: Mapping[str, Any]) -> bool:
    """Return whether the IOMMU may map by 4 KiB alone; where it may map by more, nothing is known."""
    options, parameters = fields["iommu_options"], fields["module_parameters"]
    told = parameters.get("vfio_iommu_type1.disable_hugepages") if seen(parameters) else None
    return (seen(options) and re.search(r"intel_iommu=\S*\bsp_off\b", options) is not None) or told == "Y"


def vms(files: NodeFiles) -> dict[str, dict[str, Any]]:
    """Return what the host says of each of its VMs, by name: the fields of `host.Fields` that are a VM's."""
    found = {}
    domains = _domains(files)
    for process in files.under("/proc"):
        if not (cmdline := files.texts.get(f"/proc/{process}/cmdline")):
            continue
        arguments = cmdline.split("\n")
        name = _name(arguments) or f"process {process}"
        fields = host.of_qemu(arguments)
        if name in domains:
            fields |= host.of_libvirt(domains[name])
        fields["qemu_package"] = _package(files, process)
        found[name] = fields
    return found


def _domains(files: NodeFiles) -> dict[str, str]:
    """Return libvirt's descriptions by the name of the VM, which each description holds."""
    domains = {}
    for number in files.under("/virsh"):
        text = files.texts[f"/virsh/{number}"]
        try:
            name = ElementTree.fromstring(text).findtext("name")
        except ElementTree.ParseError:
            continue  # QEMU's arguments are left, as on a host whose libvirt says nothing
        domains[name or number] = text
    return domains


def _name(arguments: list[str]) -> str:
    given = dict(pairwise(arguments)).get("-name", "").removeprefix("guest=")
    # QEMU doubles the commas of a value.
    return re.split("(?<!,),(?!,)", given.replace(",,", "\0"))[0].replace("\0", ",")


def _package(files: NodeFiles, process: str) -> Text:
    binary, package = (files.texts.get(f"/proc/{process}/{name}") for name in ("exe", "package"))
    if binary is None:
        return NotObservable(
            not_observable=f"/proc/{process}/exe: permission denied, only root sees QEMU's binary"
        )
    if binary.endswith(" (deleted)"):
        # An upgrade: the VM runs on with the build before.
        return NotObservable(
            not_observable=f"{binary.removesuffix(' (deleted)')}: replaced since the VM was started"
        )
    return package or NotObservable(not_observable=f"no package of this host has {binary}")


def of_vm(found: Mapping[str, Mapping[str, Any]], name: str = "") -> dict[str, Any]:
    """Return what is said of one VM of a host, or of all of them where they are alike.

    Parameters
    ----------
    found
        What `vms` returned.
    name
        The VM's; empty for all: what differs between them is then not observable.

    Raises
    ------
    UsageError
        No VM of this name runs there.
    """
    if name and name not in found:
        raise UsageError(f"no VM {name!r} runs on this host; those that do: {', '.join(found) or 'none'}")
    chosen = [found[name]] if name else list(found.values())
    differs = NotObservable(not_observable=f"differs between the VMs {', '.join(found)}: name one by --vm")
    return {
        key: chosen[0][key] if all(one.get(key) == chosen[0].get(key) for one in chosen) else differs
        for key in dict.fromkeys(key for one in chosen for key in one)
    }
