"""The records of VMs' hosts: one file a host, in the directory that ``extras.host`` names.

A record is a ``virtqual-host/1`` file (``HOST.json``), or the output of ``virtqual host --script`` or
of ESXi's ``esxcli`` (``HOST.txt``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from virtqual.errors import UsageError, VirtqualError
from virtqual.files import reading
from virtqual.identity import Host, gather, kvm_host, seen
from virtqual.identity import host as host_facts
from virtqual.identity.record import unseen

#: Hosts that differ in one of these have different builds.
BUILD_FIELDS = (
    *("vendor", "build", "accelerator", "hardware", "kernel", "qemu_package"),
    *("module_parameters", "iommu_options"),
)


def find_files(directory: Path, hosts: Collection[str] = ()) -> dict[str, Path]:
    """Return the record of each host by its name, or of some hosts; raise `UsageError` if one has two."""
    files: dict[str, Path] = {}
    for path in sorted(directory.glob("*")):
        if path.suffix in (".json", ".yaml", ".txt") and (not hosts or path.stem in hosts):
            other = files.setdefault(path.stem, path)
            if other != path:
                raise UsageError(f"{directory}: two records of host {path.stem}: {other.name}, {path.name}")
    return files


def read(directory: Path, hosts: Collection[str] = (), *, all_required: bool = True) -> dict[str, Host]:
    """Read the records of some hosts; of all that a directory has, if none is named.

    Raises
    ------
    UsageError
        A host that is named has no record (if `all_required`), none has one, or a record is not of its form.
    """
    files = find_files(directory, hosts)
    missing_hosts = sorted(set(hosts) - files.keys()) if all_required else []
    if missing_hosts or not files:
        missing = f"host {', '.join(missing_hosts)}" if missing_hosts else "any host"
        raise UsageError(f"{directory}: no record of {missing} (HOST.json or HOST.txt)")
    try:
        return {name: _read_record(path, path.stat().st_mtime_ns) for name, path in files.items()}
    except OSError as error:
        raise UsageError(f"{error.filename or directory}: cannot be read ({error.strerror})") from None


@lru_cache(maxsize=1024)
def _read_record(path: Path, written_ns: int) -> Host:
    """Return a record; `written_ns` is part of the cache's key, because every run reads all records."""
    if path.suffix != ".txt":
        return host_facts.load(path)
    text = reading.read_bytes(path).decode("utf-8", "replace")
    is_script = gather.FIRST_LINE in text
    try:
        fields = kvm_host.read_script(gather.parse(text)) if is_script else host_facts.read_esxcli(text)
    except (ValueError, VirtqualError) as error:
        other_form = "" if is_script else "is not what `virtqual host --script` printed. "
        raise UsageError(f"{path}: {other_form}{error}") from None
    return host_facts.make_host(fields, str(path))


def merge(records: Mapping[str, Host]) -> Host:
    """Return the facts that all hosts have in common; facts that differ are not observable."""
    names = ", ".join(records)
    differs = unseen(f"differs between the hosts {names}", differs=True)
    first, *other_records = records.values()
    update: dict[str, Any] = {
        field: differs
        for field in Host.model_fields
        if any(getattr(record, field) != getattr(first, field) for record in other_records)
    }
    return first.model_copy(update={**update, "source": f"hosts {names}"})


def find_different_builds(records: Mapping[str, Host]) -> list[str]:
    """Return a clause for each field of the build in which hosts differ, with their names.

    A host of which a VM runs another QEMU than the others, or than is installed, has a clause of its own.

    Examples
    --------
    >>> old, new = (Host(source="x", build=build) for build in ("8.0.2", "8.0.3"))
    >>> find_different_builds({"esx1": new, "esx2": old, "esx3": new})
    ['build is 8.0.2 on esx2, and 8.0.3 on esx1, esx3']
    """
    clauses = []
    for field in BUILD_FIELDS:
        hosts_by_value = defaultdict(list)
        for host, record in records.items():
            if seen(value := getattr(record, field)):
                hosts_by_value[format_setting(value)].append(host)
        if len(hosts_by_value) > 1:
            values = [f"{value} on {', '.join(hosts)}" for value, hosts in hosts_by_value.items()]
            clauses.append(f"{field} is {', and '.join(sorted(values, key=len))}")
    for host, record in records.items():
        if not seen(record.qemu_package) and record.qemu_package.differs:
            clauses.append(f"qemu_package is {record.qemu_package} on {host}: restart its VMs")
    return clauses


def format_setting(value: object) -> str:
    """Return a value of a record in words; a mapping name by name, a list part by part."""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{name}={part}" for name, part in sorted(value.items()))
    return str(value)


def find_build(host: Host) -> str | None:
    """Return the hypervisor's build that a host states, or QEMU's package with the kernel of KVM.

    Examples
    --------
    >>> find_build(Host(source="x", qemu_package="qemu-kvm 8.2.0-11.el9", kernel="5.14.0-427.el9.x86_64"))
    'qemu-kvm 8.2.0-11.el9, KVM of kernel 5.14.0-427.el9.x86_64'
    """
    if seen(host.build):
        return host.build
    if seen(host.qemu_package) and seen(host.kernel):
        return f"{host.qemu_package}, KVM of kernel {host.kernel}"
    return None
