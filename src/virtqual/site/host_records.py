"""What each host of VMs says of itself: one record a host, in the directory that ``extras.host`` names.

A record is a ``virtqual-host/1`` file (``HOST.json``) or what ``virtqual host --script`` printed there
(``HOST.txt``).  The build is read from them, and a host with another one is named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from virtqual.errors import UsageError
from virtqual.files import reading
from virtqual.identity import Host, gather, kvm_host, seen
from virtqual.identity import host as hosts
from virtqual.identity.record import NotObservable

#: What must be alike on all hosts of a partition: with another one it is another build.
BUILD = (
    *("vendor", "build", "accelerator", "hardware", "kernel", "qemu_package"),
    *("module_parameters", "iommu_options"),
)


def files(directory: Path) -> dict[str, Path]:
    """Return the record of each host by its name.

    Raises
    ------
    UsageError
        A host has two.
    """
    found: dict[str, Path] = {}
    for path in sorted(directory.glob("*")):
        if path.suffix in (".json", ".yaml", ".txt"):
            other = found.setdefault(path.stem, path)
            if other != path:
                raise UsageError(f"{directory}: two records of host {path.stem}: {other.name}, {path.name}")
    return found


def read(directory: Path, of: Iterable[str] = ()) -> dict[str, Host]:
    """Read the records of a directory.

    Parameters
    ----------
    directory
        See the module's text.
    of
        Hosts that must have one.

    Raises
    ------
    UsageError
        A host has none, or a record is not of its form.
    """
    found = files(directory)
    if lacking := sorted(set(of) - found.keys()):
        raise UsageError(f"{directory}: no record of host {', '.join(lacking)} (HOST.json or HOST.txt)")
    if not found:
        raise UsageError(f"{directory}: no record of any host (HOST.json or HOST.txt)")
    return {name: _record(path, path.stat().st_mtime_ns) for name, path in found.items()}


@lru_cache(maxsize=1024)
def _record(path: Path, written: int) -> Host:
    """Return a record as it was written at some time (ns): every run of a session asks for all of them."""
    if path.suffix != ".txt":
        return hosts.load(path)
    text = reading.read_bytes(path).decode("utf-8", "replace")
    try:
        return hosts.of(kvm_host.of_script(gather.parse(text)), str(path))
    except gather.GatherError as error:
        raise UsageError(f"{path}: {error}") from error


def together(records: Mapping[str, Host]) -> Host:
    """Return what all hosts say alike; what differs is not observable."""
    names = ", ".join(records)
    differs = NotObservable(not_observable=f"differs between the hosts {names}")
    first, *others = records.values()
    update: dict[str, Any] = {
        name: differs
        for name in Host.model_fields
        if any(getattr(other, name) != getattr(first, name) for other in others)
    }
    return first.model_copy(update={**update, "source": f"hosts {names}"})


def mixed(records: Mapping[str, Host]) -> list[str]:
    """Return a clause for each thing of the build that hosts say differently, with their names.

    Examples
    --------
    >>> old, new = (Host(source="x", build=build) for build in ("8.0.2", "8.0.3"))
    >>> mixed({"esx1": new, "esx2": old, "esx3": new})
    ['build is 8.0.2 on esx2, and 8.0.3 on esx1, esx3']
    """
    found = []
    for field in BUILD:
        names = defaultdict(list)
        for host, record in records.items():
            if seen(value := getattr(record, field)):
                names[text_of(value)].append(host)
        if len(names) > 1:
            each = sorted((f"{value} on {', '.join(said)}" for value, said in names.items()), key=len)
            found.append(f"{field} is {', and '.join(each)}")
    return found


def text_of(value: object) -> str:
    """Return a value of a record in words; of several, name by name."""
    if isinstance(value, Mapping):
        return " ".join(f"{name}={one}" for name, one in sorted(value.items()))
    return str(value)


def build(host: Host) -> str | None:
    """Return a hypervisor's build as a host says it: its own word, or QEMU's package and the kernel of KVM.

    Examples
    --------
    >>> build(Host(source="x", qemu_package="qemu-kvm 8.2.0-11.el9", kernel="5.14.0-427.el9.x86_64"))
    'qemu-kvm 8.2.0-11.el9, KVM of kernel 5.14.0-427.el9.x86_64'
    """
    if seen(host.build):
        return host.build
    if seen(host.qemu_package) and seen(host.kernel):
        return f"{host.qemu_package}, KVM of kernel {host.kernel}"
    return None
