"""The facts that a hypervisor's host tells of itself and of a VM, read from its files and commands.

Each function is pure and returns the fields of :class:`~virtqual.identity.record.Host` that its text states.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from pydantic import ValidationError

from virtqual.errors import UsageError
from virtqual.files.wording import describe_mistakes, dotted
from virtqual.identity.cpus import MAX_CPUS, cpu_list
from virtqual.identity.record import Host, Identity, seen

Fields = dict[str, Any]
_UNITS = {"b": 1, "bytes": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
for _power, _letter in enumerate("kmgt", 1):
    _UNITS[_letter] = _UNITS[f"{_letter}ib"] = 2 ** (10 * _power)
_HUGE = "huge pages"
#: A core's threads: to no more CPUs may a vCPU be bound that counts as pinned.
ONE_CORE = 2


def load(path: Path) -> Host:
    """Read a ``virtqual-host/1`` file, JSON or YAML.

    Raises
    ------
    UsageError
        Naming the file and each key that is wrong.
    """
    from virtqual.files.datafile import parse, unwrap_yaml

    return of(unwrap_yaml(parse(path).content), str(path))


def of(content: Any, where: str) -> Host:
    """Check a ``virtqual-host/1`` mapping; `where` names it in errors.

    Raises
    ------
    UsageError
        Naming each key that is wrong.
    """
    if isinstance(content, Mapping):
        content = {"source": where, **content}
    try:
        return Host.model_validate(content)
    except ValidationError as error:
        # A value is tried as itself and as "not observable": the first complaint of each key says it.
        said = {dotted(key[:1]): message for key, message in describe_mistakes(error, Host, content)[::-1]}
        problems = "; ".join(f"key {key or '(top)'}: {message}" for key, message in sorted(said.items()))
        raise UsageError(f"{where}: {problems} (the form: docs/preflight.md)") from None


def write(host: Host) -> str:
    """Return the file that :func:`load` reads, without what the host did not say."""
    return json.dumps(host.model_dump(mode="json", by_alias=True), indent=1) + "\n"


def of_identity(identity: Identity) -> Fields:
    """Return what the host's own identity says (``virtqual host --here`` on a KVM host)."""
    fields: Fields = {
        "kernel": identity.kernel.release,
        "smt": identity.topology.smt,
        "governor": identity.power.governor,
        "turbo": identity.power.turbo,
    }
    if seen(identity.topology.numa):
        nodes = [cpu_list(cpus) for cpus in identity.topology.numa.values()]
        fields |= {"numa_nodes": len(nodes), "cpus_per_node": max(map(len, nodes))}
        if seen(identity.memory.total_mib):
            fields["memory_mib_per_node"] = identity.memory.total_mib // len(nodes)
    return fields


def of_libvirt(text: str) -> Fields:
    """Read a domain as ``virsh dumpxml`` prints it.

    Raises
    ------
    UsageError
        The file does not describe a domain of libvirt.
    """
    try:
        domain = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise UsageError(f"libvirt: the domain is not XML: {error}") from None
    vcpus = domain.findtext("vcpu")
    if domain.tag != "domain" or vcpus is None:
        raise UsageError("libvirt: no <domain> with <vcpu>; hand in what `virsh dumpxml NAME` prints")
    count = _read_count(vcpus, "libvirt: <vcpu>", MAX_CPUS)
    # All of a host's CPUs, as some give to each vCPU, are no pin.
    pins = [pin for pin in domain.findall("cputune/vcpupin") if _cpus(pin.get("cpuset", "")) <= ONE_CORE]
    memory = domain.find("memory")
    tuned = domain.find("numatune/memory")
    cells = domain.findall("cpu/numa/cell")
    bound = [one for one in domain.findall("numatune/memnode") if one.get("mode") == "strict"]
    backing = domain.find("memoryBacking")
    kind, cpu, machine = domain.get("type"), domain.find("cpu"), domain.find("os/type")
    fields: Fields = {
        "vcpus": count,
        "vcpus_pinned": len(pins) >= count,
        "memory_pinned": (tuned is not None and tuned.get("mode") == "strict")
        or bool(cells and len(bound) >= len(cells)),
        "virtual_numa_nodes": len(cells) or 1,
        "memory_backing": _HUGE if domain.find("memoryBacking/hugepages") is not None else "base pages",
        "memory_reserved": backing is not None and backing.find("locked") is not None,
    }
    if kind in ("kvm", "qemu"):
        fields["accelerator"] = {"kvm": "kvm", "qemu": "tcg"}[kind]
    if machine is not None and machine.get("machine"):
        fields["hardware"] = machine.get("machine")
    if cpu is not None and cpu.get("mode"):
        fields["cpu_mode"] = cpu.get("mode")
    if memory is not None and memory.text:
        unit = memory.get("unit", "KiB").lower()
        if unit not in _UNITS:
            raise UsageError(f"libvirt: memory {memory.text[:60]!r} {unit[:60]} is not a size")
        fields["memory_mib"] = _read_count(memory.text, "libvirt: <memory>") * _UNITS[unit] // 2**20
    return fields


def of_qemu(arguments: Sequence[str]) -> Fields:
    """Read the arguments of a QEMU process (``/proc/PID/cmdline``)."""
    fields: Fields = {}
    options = [
        (word.lstrip("-"), value)
        for word, value in zip(arguments, [*arguments[1:], ""], strict=True)
        if word.startswith("-")
    ]
    cells, backends = 0, []
    for option, value in options:
        head, parts = _parts(value)
        if option == "enable-kvm":
            fields["accelerator"] = "kvm"
        elif option in ("machine", "M"):
            fields["hardware"] = parts.get("type", head)
            if "accel" in parts:
                fields["accelerator"] = parts["accel"].split(":")[0]
        elif option == "accel":
            fields["accelerator"] = parts.get("accel", head)
        elif option == "cpu":
            fields["cpu_mode"] = head
        elif option == "smp":
            fields["vcpus"] = _vcpus(value, parts.get("cpus", head), parts)
        elif option == "m":
            fields["memory_mib"] = _mib(parts.get("size", head))
        elif option == "numa":
            cells += head == "node"
        elif option == "object" and head.startswith("memory-backend"):
            backends.append((head, parts))
    fields["virtual_numa_nodes"] = cells or 1
    fields["memory_pinned"] = bool(backends) and all(
        "host-nodes" in parts and parts.get("policy") in ("bind", "restrictive") for _, parts in backends
    )
    if any(parts.get("hugetlb") == "on" or "huge" in parts.get("mem-path", "") for _, parts in backends):
        fields["memory_backing"] = _HUGE
    return fields


def _read_count(text: str, what: str, most: int = 2**63) -> int:
    """Return a number that a host stated; `what` names it in errors."""
    match = re.fullmatch("[0-9]{1,19}", text.strip())
    if not match or int(match[0]) > most:
        raise UsageError(f"{what}: {text[:60]!r} is no whole number up to {most}")
    return int(match[0])


def _parts(value: str) -> tuple[str, dict[str, str]]:
    words = value.split(",")
    return words[0], dict(word.split("=", 1) for word in words if "=" in word)


def _cpus(cpuset: str) -> int:
    """Return how many CPUs libvirt names, such as ``0-63,^3``."""
    words = cpuset.replace(" ", "").split(",")
    try:
        named = cpu_list(",".join(word for word in words if not word.startswith("^")))
        without = cpu_list(",".join(word[1:] for word in words if word.startswith("^")))
    except ValueError:
        raise UsageError(f"libvirt: cpuset {cpuset[:60]!r} is no list of CPUs") from None
    return len(named - without)


def _vcpus(option: str, stated: str, parts: Mapping[str, str]) -> int:
    """Return the number of vCPUs; where it is not stated, that of the topology."""
    shape = [
        parts[name]
        for name in ("sockets", "dies", "clusters", "modules", "cores", "threads")
        if name in parts
    ]
    counts = [stated] if stated.isdigit() else shape
    if not counts:
        raise UsageError(f"QEMU: -smp {option[:60]!r} says no number of CPUs")
    what = f"QEMU: -smp {option[:60]!r}"
    return _read_count(str(math.prod(_read_count(count, what, MAX_CPUS) for count in counts)), what, MAX_CPUS)


def _mib(text: str) -> int:
    match = re.fullmatch(r"(\d+)([kKmMgGtT]?)i?[bB]?", text)
    if not match:
        raise UsageError(f"QEMU: memory {text[:60]!r} is not a size")
    return _read_count(match[1], "QEMU: memory") * _UNITS[(match[2] or "m").lower()] // 2**20


def of_vmx(text: str) -> Fields:
    """Read a VM's configuration file of ESXi (``.vmx``)."""
    keys = {
        match[1].lower(): match[2]
        for match in re.finditer(r'^\s*([\w.]+)\s*=\s*"(.*)"\s*$', text, re.MULTILINE)
    }
    if "virtualhw.version" not in keys:
        raise UsageError("ESXi: the .vmx file has no virtualHW.version; is it whole?")
    fields: Fields = {
        "accelerator": "esxi",
        "hardware": f"vmx-{keys['virtualhw.version']}",
        "vcpus": _read_count(keys.get("numvcpus", "1"), "ESXi: numvcpus", MAX_CPUS),
        "prefer_ht": keys.get("numa.vcpu.preferht", "FALSE").upper() == "TRUE",
        "vcpus_pinned": keys.get("sched.cpu.affinity", "all") != "all",
        "memory_pinned": "numa.nodeaffinity" in keys or "sched.mem.affinity" in keys,
    }
    if "memsize" in keys:
        fields["memory_mib"] = _read_count(keys["memsize"], "ESXi: memSize")
        whole = keys.get("sched.mem.min") == keys["memsize"]
        fields["memory_reserved"] = whole or keys.get("sched.mem.pin", "FALSE").upper() == "TRUE"
    if "sched.cpu.latencysensitivity" in keys:
        fields["latency_sensitivity"] = keys["sched.cpu.latencysensitivity"]
    return fields


def of_esxcli(text: str) -> Fields:
    """Read what ``esxcli system version get``, ``hardware cpu global get`` and ``hardware memory get`` print.

    The outputs may follow each other in one file.
    """
    keys = dict(re.findall(r"^\s*([A-Z][\w ]+): (.+?)\s*$", text, re.MULTILINE))
    fields: Fields = {}
    if "Product" in keys and "Version" in keys and "Build" in keys:
        build = keys["Build"].removeprefix("Releasebuild-")
        fields |= {"vendor": keys["Product"], "build": f"{keys['Version']}-{build}", "accelerator": "esxi"}

    def read_key(key: str) -> int:
        return _read_count(keys[key].split()[0], f"ESXi: {key}")

    if nodes := "NUMA Node Count" in keys and read_key("NUMA Node Count"):
        fields["numa_nodes"] = nodes
        if "Physical Memory" in keys:
            fields["memory_mib_per_node"] = read_key("Physical Memory") // 2**20 // nodes
        if "CPU Threads" in keys:
            fields["cpus_per_node"] = read_key("CPU Threads") // nodes
    if "Hyperthreading Active" in keys:
        fields["smt"] = "on" if keys["Hyperthreading Active"] == "true" else "off"
    if not fields:
        raise UsageError("ESXi: this is not the output of the esxcli commands that docs/preflight.md names")
    return fields
