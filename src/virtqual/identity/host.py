"""The facts of a hypervisor's host and of a VM, read from files and commands of the host.

Each reader returns the fields of :class:`~virtqual.identity.record.Host` that its text states.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from pydantic import ValidationError

from virtqual.errors import UsageError
from virtqual.files.wording import describe_mistakes, dotted
from virtqual.identity.cpus import MAX_CPUS, cpu_list, cpu_text
from virtqual.identity.record import Host, Identity, NotObservable, seen, unseen

Fields = dict[str, Any]
_UNITS = {"b": 1, "bytes": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
for _power, _letter in enumerate("kmgt", 1):
    _UNITS[_letter] = _UNITS[f"{_letter}ib"] = 2 ** (10 * _power)
_HUGE = "huge pages"
#: So many CPUs of a vCPU may be the threads of one core.
MAX_THREADS_OF_PIN = 2


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


def read_libvirt(text: str, cores: Mapping[int, frozenset[int]] | None = None) -> Fields:
    """Read a domain as ``virsh dumpxml`` prints it; `cores` are the host's threads of a core, by CPU."""
    domain = _parse_domain(text)
    vcpu = domain.find("vcpu")
    if domain.tag != "domain" or vcpu is None:
        raise UsageError("libvirt: no <domain> with <vcpu>; hand in what `virsh dumpxml NAME` prints")
    # A VM may have fewer vCPUs than it could get while it runs.
    count = _read_count(vcpu.get("current") or vcpu.text or "", "libvirt: <vcpu>", MAX_CPUS)
    cells = domain.findall("cpu/numa/cell")
    fields: Fields = {
        "vcpus": count,
        "vcpus_pinned": _are_vcpus_pinned(domain, vcpu, count, cores),
        "memory_pinned": _is_memory_pinned(domain, len(cells)),
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
    # A balloon may have taken a part of the memory.
    elements = [domain.find(name) for name in ("currentMemory", "memory")]
    memory = next((element for element in elements if element is not None and element.text), None)
    if memory is not None:
        fields["memory_mib"] = _read_mib(
            memory.text or "", memory.get("unit", "KiB"), f"libvirt: <{memory.tag}>"
        )
    return fields


def _parse_domain(text: str) -> ElementTree.Element:
    """Return a domain; virsh may print notices before it."""
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        match = re.search(r"<domain[\s>].*</domain>", text, re.DOTALL)
        if match and not text.lstrip().startswith("<"):
            with suppress(ElementTree.ParseError):
                return ElementTree.fromstring(match[0])
        raise UsageError(f"libvirt: the domain is not XML: {error}") from None


def _are_vcpus_pinned(
    domain: ElementTree.Element,
    vcpu: ElementTree.Element,
    count: int,
    cores: Mapping[int, frozenset[int]] | None,
) -> bool | NotObservable:
    """Return whether each vCPU that is there may only run on one CPU of the host, or on one core."""
    pins = {pin.get("vcpu"): pin.get("cpuset", "") for pin in domain.findall("cputune/vcpupin")}
    listed = domain.findall("vcpus/vcpu")
    numbers = {str(number) for number in range(count)}
    if listed and len(listed) >= count:
        numbers = {element.get("id", "") for element in listed if element.get("enabled") != "no"}
    everywhere = vcpu.get("cpuset", "")
    return are_pinned([pins.get(number, everywhere) for number in numbers], cores)


def are_pinned(lists: Sequence[str], cores: Mapping[int, frozenset[int]] | None) -> bool | NotObservable:
    """Return whether vCPUs are pinned that may run on these lists of the host's CPUs."""
    wide = [cpuset for cpuset in map(_read_cpuset, lists) if len(cpuset) != 1]
    if cores:
        return all(cpuset and cpuset <= cores.get(min(cpuset), frozenset()) for cpuset in wide)
    # Two CPUs may be the threads of one core, if no other vCPU may run there.
    if not all(len(cpuset) == MAX_THREADS_OF_PIN for cpuset in wide) or len(set(wide)) < len(wide):
        return False
    if wide:
        cpus = cpu_text(min(wide, key=min))
        return unseen(
            f"a vCPU may run on CPUs {cpus}; whether they are one core is only known with the host's topology"
        )
    return True


def _is_memory_pinned(domain: ElementTree.Element, cells: int) -> bool:
    """Return whether all memory of a VM, or of each of its NUMA nodes, must be on one node of the host."""

    def is_on_one_node(element: ElementTree.Element) -> bool:
        is_bound = element.get("mode", "strict") in ("strict", "restrictive")
        return is_bound and len(_read_cpuset(element.get("nodeset", ""))) == 1

    bound_cells = list(filter(is_on_one_node, domain.findall("numatune/memnode")))
    memory = domain.find("numatune/memory")
    return (memory is not None and is_on_one_node(memory)) or len(bound_cells) >= cells > 0


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
        parts.get("policy") in ("bind", "restrictive") and _is_one_node(parts.get("host-nodes", ""))
        for parts in backends
    )
    if any(parts.get("hugetlb") == "on" or "huge" in parts.get("mem-path", "") for parts in backends):
        fields["memory_backing"] = _HUGE
    return fields


def _is_one_node(text: str) -> bool:
    """Return whether a list of QEMU, as JSON or in words, names one NUMA node of the host."""
    return re.fullmatch(r"\[?([0-9]+)(?:-\1)?\]?", text) is not None


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
            parts = {}
            for key, part in (word.split("=", 1) for word in words if "=" in word):
                # A list may be one key several times, such as host-nodes.
                parts[key] = f"{parts[key]},{part}" if key in parts else part
            yield option, value, words[0], parts


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


def _read_cpuset(cpuset: str) -> frozenset[int]:
    """Return the CPUs, or NUMA nodes, in a list of libvirt, such as ``0-63,^3``."""
    words = cpuset.replace(" ", "").split(",")
    try:
        included = cpu_list(",".join(word for word in words if not word.startswith("^")))
        excluded = cpu_list(",".join(word[1:] for word in words if word.startswith("^")))
    except ValueError:
        raise UsageError(f"libvirt: cpuset {cpuset[:60]!r} is no list of CPUs") from None
    return included - excluded


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
        if text.lstrip().startswith(("<", "{", "[")):
            raise UsageError("ESXi: this is XML or JSON; bring the outputs of esxcli without --formatter")
        raise UsageError(
            "ESXi: this is not the output of the esxcli commands that docs/add-esxi-hosts.md names"
        )
    return fields
