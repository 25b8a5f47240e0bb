"""The facts of a hypervisor's host and of a VM, read from files and commands of the host.

Each reader returns the fields of :class:`~virtqual.identity.record.Host` that its text states.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
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
#: A vCPU counts as pinned if it may run on the threads of one core only.
MAX_PINNED_CPUS = 2


def load(path: Path) -> Host:
    """Read a ``virtqual-host/1`` file, JSON or YAML; see `make_host`."""
    # Nodes do not need the reader of YAML.
    from virtqual.files.datafile import parse, unwrap_yaml

    return make_host(unwrap_yaml(parse(path).content), str(path))


def make_host(content: Any, source: str) -> Host:
    """Return a host of a ``virtqual-host/1`` mapping; raise UsageError with its mistakes by key."""
    if isinstance(content, Mapping):
        content = {"source": source, **content}
    try:
        return Host.model_validate(content)
    except ValidationError as error:
        # A value is tried as itself first, then as "not observable": only the first message of a key helps.
        messages = {
            dotted(key[:1]): message for key, message in describe_mistakes(error, Host, content)[::-1]
        }
        problems = "; ".join(f"key {key or '(top)'}: {message}" for key, message in sorted(messages.items()))
        raise UsageError(f"{source}: {problems} (the form: docs/preflight.md)") from None


def write(host: Host) -> str:
    """Return the file that :func:`load` reads, with the facts that are known."""
    return json.dumps(host.model_dump(mode="json", by_alias=True), indent=1) + "\n"


def read_identity(identity: Identity) -> Fields:
    """Return the facts that the identity of a KVM host has (``virtqual host --here``)."""
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


def read_libvirt(text: str) -> Fields:
    """Read a domain as ``virsh dumpxml`` prints it."""
    try:
        domain = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise UsageError(f"libvirt: the domain is not XML: {error}") from None
    vcpus = domain.findtext("vcpu")
    if domain.tag != "domain" or vcpus is None:
        raise UsageError("libvirt: no <domain> with <vcpu>; hand in what `virsh dumpxml NAME` prints")
    count = _read_count(vcpus, "libvirt: <vcpu>", MAX_CPUS)
    # Some sites give all of a host's CPUs to each vCPU: that is no pin.
    cpusets = [pin.get("cpuset", "") for pin in domain.findall("cputune/vcpupin")]
    pins = [cpuset for cpuset in cpusets if _count_cpus(cpuset) <= MAX_PINNED_CPUS]
    cells = domain.findall("cpu/numa/cell")
    is_strict = domain.find("numatune/memory[@mode='strict']") is not None
    strict_cells = domain.findall("numatune/memnode[@mode='strict']")
    fields: Fields = {
        "vcpus": count,
        "vcpus_pinned": len(pins) >= count,
        "memory_pinned": is_strict or len(strict_cells) >= len(cells) > 0,
        "virtual_numa_nodes": len(cells) or 1,
        "memory_backing": _HUGE if domain.find("memoryBacking/hugepages") is not None else "base pages",
        "memory_reserved": domain.find("memoryBacking/locked") is not None,
    }
    if accelerator := {"kvm": "kvm", "qemu": "tcg"}.get(domain.get("type", "")):
        fields["accelerator"] = accelerator
    for field, path, attribute in (("hardware", "os/type", "machine"), ("cpu_mode", "cpu", "mode")):
        element = domain.find(path)
        if element is not None and (value := element.get(attribute)):
            fields[field] = value
    memory = domain.find("memory")
    if memory is not None and memory.text:
        fields["memory_mib"] = _read_mib(memory.text, memory.get("unit", "KiB"), "libvirt: <memory>")
    return fields


def read_qemu(arguments: Sequence[str]) -> Fields:
    """Read the arguments of a QEMU process (``/proc/PID/cmdline``)."""
    fields: Fields = {}
    cells, backends = 0, []
    for option, value, head, parts in _split_options(arguments):
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
            fields["vcpus"] = _count_vcpus(value, parts.get("cpus", head), parts)
        elif option == "m":
            size = parts.get("size", head)
            number = size.rstrip("kKmMgGtTiIbB")
            fields["memory_mib"] = _read_mib(number, size[len(number) :] or "M", "QEMU: memory")
        elif option == "numa":
            cells += head == "node"
        elif option == "object" and head.startswith("memory-backend"):
            backends.append(parts)
    fields["virtual_numa_nodes"] = cells or 1
    fields["memory_pinned"] = bool(backends) and all(
        parts.get("host-nodes") and parts.get("policy") in ("bind", "restrictive") for parts in backends
    )
    if any(parts.get("hugetlb") == "on" or "huge" in parts.get("mem-path", "") for parts in backends):
        fields["memory_backing"] = _HUGE
    return fields


def _split_options(arguments: Sequence[str]) -> Iterator[tuple[str, str, str, dict[str, str]]]:
    """Yield each option of QEMU with its value, the first word of the value, and its keys."""
    for word, value in zip(arguments, [*arguments[1:], ""], strict=True):
        option = word.lstrip("-")
        if not word.startswith("-"):
            continue
        if option == "object" and value.startswith("{"):
            # libvirt's form.
            parts = _read_object(value)
            yield option, value, parts.get("qom-type", ""), parts
        else:
            words = value.split(",")
            yield option, value, words[0], dict(part.split("=", 1) for part in words if "=" in part)


def _read_object(text: str) -> dict[str, str]:
    """Return the keys of an object in JSON that have a value, in the words of QEMU's other form."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"QEMU: -object {text[:60]!r} is not JSON") from None
    return {key: "on" if value is True else str(value) for key, value in content.items() if value}


def _read_count(text: str, name: str, maximum: int = 2**63) -> int:
    """Return a number that a host stated; `name` stands in errors."""
    match = re.fullmatch("[0-9]{1,19}", text.strip())
    if not match or int(match[0]) > maximum:
        raise UsageError(f"{name}: {text[:60]!r} is no whole number up to {maximum}")
    return int(match[0])


def _count_cpus(cpuset: str) -> int:
    """Return the number of CPUs in a list of libvirt, such as ``0-63,^3``."""
    words = cpuset.replace(" ", "").split(",")
    try:
        included = cpu_list(",".join(word for word in words if not word.startswith("^")))
        excluded = cpu_list(",".join(word[1:] for word in words if word.startswith("^")))
    except ValueError:
        raise UsageError(f"libvirt: cpuset {cpuset[:60]!r} is no list of CPUs") from None
    return len(included - excluded)


def _count_vcpus(option: str, stated: str, parts: Mapping[str, str]) -> int:
    """Return the number of vCPUs; if it is not stated, that of the topology."""
    levels = ("sockets", "dies", "clusters", "modules", "cores", "threads")
    counts = [stated] if stated.isdigit() else [parts[level] for level in levels if level in parts]
    name = f"QEMU: -smp {option[:60]!r}"
    if not counts:
        raise UsageError(f"{name} says no number of CPUs")
    product = math.prod(_read_count(count, name, MAX_CPUS) for count in counts)
    return _read_count(str(product), name, MAX_CPUS)


def _read_mib(number: str, unit: str, name: str) -> int:
    """Return a size in MiB; `name` stands in errors."""
    if unit.lower() not in _UNITS:
        raise UsageError(f"{name}: {number[:60]!r} {unit[:60]} is not a size")
    return _read_count(number, name) * _UNITS[unit.lower()] // 2**20


def read_vmx(text: str) -> Fields:
    """Read a VM's configuration file of ESXi (``.vmx``)."""
    keys = {
        key.lower(): value for key, value in re.findall(r'^\s*([\w.]+)\s*=\s*"(.*)"\s*$', text, re.MULTILINE)
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
        is_reserved = keys.get("sched.mem.min") == keys["memsize"]
        fields["memory_reserved"] = is_reserved or keys.get("sched.mem.pin", "FALSE").upper() == "TRUE"
    if "sched.cpu.latencysensitivity" in keys:
        fields["latency_sensitivity"] = keys["sched.cpu.latencysensitivity"]
    return fields


def read_esxcli(text: str) -> Fields:
    """Read the outputs of ``esxcli system version get``, ``hardware cpu global get`` and ``memory get``."""
    keys = dict(re.findall(r"^\s*([A-Z][\w ]+): (\S.*?)\s*$", text, re.MULTILINE))
    fields: Fields = {}
    if "Product" in keys and "Version" in keys and "Build" in keys:
        build = keys["Build"].removeprefix("Releasebuild-")
        fields |= {"vendor": keys["Product"], "build": f"{keys['Version']}-{build}", "accelerator": "esxi"}

    def read_key(key: str) -> int:
        return _read_count(keys[key].split()[0], f"ESXi: {key}") if key in keys else 0

    if nodes := read_key("NUMA Node Count"):
        fields["numa_nodes"] = nodes
        if "Physical Memory" in keys:
            fields["memory_mib_per_node"] = read_key("Physical Memory") // 2**20 // nodes
        if "CPU Threads" in keys:
            fields["cpus_per_node"] = read_key("CPU Threads") // nodes
    if "Hyperthreading Active" in keys:
        fields["smt"] = "on" if keys["Hyperthreading Active"] == "true" else "off"
    if not fields:
        raise UsageError(
            "ESXi: this is not the output of the esxcli commands that docs/add-esxi-hosts.md names"
        )
    return fields
