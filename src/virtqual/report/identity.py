"""An identity as text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtqual.identity.cpus import cpu_list
from virtqual.identity.record import NOT_ASKED, Hca, Host, Identity, Nic, NotObservable, PcieLink, seen

#: A section, the name of a fact in it, and the value of the fact.
Fact: TypeAlias = tuple[str, str, object]
#: Features that tell processors apart, the widest vectors first.
_VECTOR_FEATURES = ("amx_tile", "avx512f", "avx2", "avx", "sse4_2", "sve2", "sve", "asimd")


def show(identity: Identity, console: Console) -> None:
    """Print an identity in 80 columns; what could not be seen says why."""
    also = f" (it calls itself {identity.node})" if identity.name != identity.node else ""
    console.print(Text(f"{identity.name}{also}", style="bold"))
    table = Table.grid(padding=(0, 1))
    table.add_column(width=12, style="bold")
    table.add_column(width=17, style="dim")
    table.add_column(overflow="fold")
    section_before = None
    for section, name, value in _list_facts(identity):
        title = section if section != section_before else ""
        table.add_row(title, name, Text(format_fact(value), "" if seen(value) else "yellow"))
        section_before = section
    console.print(table)


def describe(identity: Identity) -> dict[tuple[str, str], str]:
    """Return the facts of a node as text, by section and name."""
    return {(section, name): format_fact(value) for section, name, value in _list_facts(identity)}


def format_fact(value: object) -> str:
    """Return a value as text."""
    if isinstance(value, NotObservable):
        return f"not observable: {value.not_observable}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {entry}" for key, entry in value.items())
    return str(value)


def _list_facts(identity: Identity) -> Iterator[Fact]:
    yield from _list_hypervisor(identity)
    yield from _list_machine(identity)
    yield from _list_system(identity)
    for nic in identity.nics:
        yield from ((nic.name, name, value) for name, value in _describe_nic(nic).items())
    for hca in identity.hcas:
        yield from ((hca.name, name, value) for name, value in _describe_hca(hca).items())


def _list_hypervisor(identity: Identity) -> Iterator[Fact]:
    hypervisor = identity.hypervisor
    yield "hypervisor", "present", hypervisor.present
    if hypervisor.present is not False:
        yield "hypervisor", "vendor", hypervisor.vendor
        yield "hypervisor", "build", hypervisor.build
        yield "hypervisor", "accelerator", hypervisor.accelerator
    yield "hypervisor", "hardware", hypervisor.hardware
    yield "hypervisor", "firmware", hypervisor.firmware
    if isinstance(identity.host, Host):
        yield "its host", "said by", identity.host.source
        for key in Host.model_fields:
            value = getattr(identity.host, key)
            if key not in ("schema_", "source") and value != NOT_ASKED:
                yield "its host", key.replace("_", " "), value


def _list_machine(identity: Identity) -> Iterator[Fact]:
    cpu, topology, memory = identity.cpu, identity.topology, identity.memory
    features: object = cpu.features
    if seen(cpu.features):
        names, no_vectors = cpu.features.split(), f"none of {', '.join(_VECTOR_FEATURES)}"
        widest = next((name for name in _VECTOR_FEATURES if name in names), no_vectors)
        features = f"{len(names)} flags, up to {widest}"
    mitigations: object = identity.kernel.mitigations
    if isinstance(mitigations, dict):
        words = [text.split(":")[0].split(";")[0].lower() for text in mitigations.values()]
        mitigations = ", ".join(f"{count} {word}" for word, count in sorted(Counter(words).items()))
    numa: object = topology.numa
    if isinstance(numa, dict):
        numa = {node: f"{len(cpu_list(cpus))} CPUs ({cpus})" for node, cpus in numa.items()}
    pools: object = memory.huge_pages
    if isinstance(pools, dict):
        pools = ", ".join(f"{count} of {size}" for size, count in pools.items())
    yield "processor", "model", cpu.model
    yield "processor", "signature", cpu.signature
    yield "processor", "microcode", cpu.microcode
    yield "processor", "features", features
    yield "processor", "mitigations", mitigations
    yield "topology", "CPUs", topology.cpus
    yield "topology", "usable from here", topology.used
    yield "topology", "sockets", topology.sockets
    yield "topology", "threads a core", topology.threads_per_core
    yield "topology", "NUMA nodes", numa
    yield "topology", "caches", topology.caches
    yield "memory", "size", _add_unit(memory.total_mib, "MiB")
    yield "memory", "swap", _add_unit(memory.swap_mib, "MiB")
    yield "memory", "huge pages", pools
    yield "memory", "transparent ones", memory.transparent_huge_pages


def _list_system(identity: Identity) -> Iterator[Fact]:
    kernel, power = identity.kernel, identity.power
    yield "system", "kernel", kernel.release
    yield "system", "command line", kernel.command_line
    yield "system", "clock source", kernel.clock_source
    yield "system", "governor", power.governor
    yield "system", "turbo", power.turbo
    yield "system", "idle driver", power.idle_driver
    yield "system", "tuned profile", identity.tuned_profile
    yield "system", "locked memory", identity.locked_memory


def _describe_nic(nic: Nic) -> dict[str, object]:
    if nic.kind == "software":
        return {"kind": nic.kind, "MTU": nic.mtu}
    return {
        "kind": nic.kind,
        "driver": nic.driver,
        "rate": _add_unit(nic.rate_mbit, "Mbit/s"),
        "PCIe link": _describe_link(nic.link),
        "MTU": nic.mtu,
    }


def _describe_hca(hca: Hca) -> dict[str, object]:
    return {
        "kind": hca.kind,
        "type": hca.type,
        "firmware": hca.firmware,
        "NUMA node": hca.numa_node,
        "PCIe link": _describe_link(hca.link),
        **{f"port {port.number}": f"{port.state}, {port.rate}, {port.link_layer}" for port in hca.ports},
    }


def _describe_link(link: PcieLink | NotObservable) -> object:
    if not seen(link):
        return link
    if not seen(link.speed):
        return link.speed
    return f"{link.speed} x{link.width} (best {link.best_speed} x{link.best_width})"


def _add_unit(value: object, unit: str) -> object:
    return f"{value} {unit}" if seen(value) else value
