"""The facts about a host of KVM guests in its own files: modules, their parameters, IOMMU, QEMU's package.

Each function returns what it read, or :class:`~virtqual.identity.record.NotObservable` with the reason.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from virtqual.files import execute
from virtqual.identity.record import NotObservable, Text, seen

#: Modules whose parameters decide how guests run, and how their memory is mapped for adapters.
MODULES = ("kvm*", "vfio_iommu_type1")
_GROUPS = "/sys/kernel/iommu_groups"
_OPTION = re.compile(r"(?:intel_iommu|amd_iommu|iommu(?:\.\w+)?)=\S+")


def of_root(root: Path = Path("/")) -> dict[str, Any]:
    """Return the fields of :class:`~virtqual.identity.record.Host` that a host's ``/proc`` and ``/sys`` say.

    Parameters
    ----------
    root
        Directory that holds them.
    """
    groups = _entries(root, _GROUPS)
    fields: dict[str, Any] = {
        "module_parameters": _modules(root),
        "iommu_groups": len(groups) if seen(groups) else groups,
        "iommu_types": _types(root, groups),
        "iommu_options": _options(root),
    }
    if _forbids_large_pages(fields):
        fields["iommu_large_pages"] = False
    return fields


def _no(path: str, error: OSError) -> NotObservable:
    return NotObservable(not_observable=f"{path}: {(error.strerror or str(error)).lower()}")


def _read(root: Path, path: str) -> Text:
    try:
        return (root / path[1:]).read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        return _no(path, error)


def _entries(root: Path, path: str) -> list[str] | NotObservable:
    try:
        return [entry.name for entry in (root / path[1:]).iterdir()]
    except OSError as error:
        return _no(path, error)


def _modules(root: Path) -> dict[str, str] | NotObservable:
    found = {}
    base = root / "sys/module"
    for module in sorted(place for pattern in MODULES for place in base.glob(pattern)):
        # A module of its own build says which; those of the kernel's are the kernel's release.
        builds = [module / name for name in ("version", "srcversion") if (module / name).exists()]
        for file in (*builds, *sorted((module / "parameters").glob("*"))):
            found[f"{module.name}.{file.name}"] = str(_read(root, f"/{file.relative_to(root)}"))
    return found or NotObservable(not_observable="/sys/module/kvm: not there, KVM is not loaded")


def _types(root: Path, groups: list[str] | NotObservable) -> Text:
    """Return how many groups have which type of domain, e.g. ``DMA-FQ 12, identity 45``."""
    if not seen(groups):
        return groups
    if not groups:
        return NotObservable(not_observable=f"{_GROUPS}: holds no group")
    types: list[str] = []
    for group in groups:
        text = _read(root, f"{_GROUPS}/{group}/type")
        if not seen(text):
            return text
        types.append(text)
    return ", ".join(f"{name} {number}" for name, number in sorted(Counter(types).items()))


def _options(root: Path) -> Text:
    line = _read(root, "/proc/cmdline")
    if not seen(line):
        return line
    return " ".join(word for word in line.split() if _OPTION.fullmatch(word)) or "none"


def _forbids_large_pages(fields: dict[str, Any]) -> bool:
    """Return whether the IOMMU may map by 4 KiB alone; where it may map by more, nothing is known."""
    options, parameters = fields["iommu_options"], fields["module_parameters"]
    told = parameters.get("vfio_iommu_type1.disable_hugepages") if seen(parameters) else None
    return (seen(options) and re.search(r"intel_iommu=\S*\bsp_off\b", options) is not None) or told == "Y"


def running(cmdline: Path) -> Path | NotObservable | None:
    """Return the binary of the process whose ``/proc/PID/cmdline`` this is; None if it is another file."""
    if not re.fullmatch(r"/proc/\d+/cmdline", str(cmdline)):
        return None
    try:
        binary = cmdline.with_name("exe").readlink()
    except OSError as error:
        return _no(str(cmdline.with_name("exe")), error)
    if binary.name.endswith(" (deleted)"):
        # An upgrade: the VM runs on with the build before.
        return NotObservable(not_observable=f"{binary}: replaced since the VM was started")
    return binary


def package(binary: Path | NotObservable) -> Text:
    """Return the package that a binary of this machine is from, with its version: QEMU's exact build."""
    if not seen(binary):
        return binary
    there = shutil.which(binary)
    if there is None:
        return NotObservable(not_observable=f"{binary}: no program of this machine")
    path = str(Path(there).resolve())
    owner = _said("dpkg-query", "-S", path).partition(": ")[0]
    found = owner and _said("dpkg-query", "-W", "-f", "${binary:Package} ${Version}", owner)
    found = found or _said("rpm", "-qf", "--qf", "%{NAME} %{VERSION}-%{RELEASE}", path)
    return found or NotObservable(not_observable=f"no package of this machine has {path}")


def _said(*command: str) -> str:
    return execute.said(command, seconds=60).strip()
