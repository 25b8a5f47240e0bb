"""An identity as people read it, in 80 columns."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from virtqual.identity.cpus import cpu_list
from virtqual.identity.record import UNTOLD, Hca, Host, Identity, Nic, NotObservable, PcieLink, seen

LabelledValue = tuple[str, object]
# What of the features tells one processor from another, the widest first.
_WIDEST = ("amx_tile", "avx512f", "avx2", "avx", "sse4_2")

_WORDS = {
    "numa": "NUMA", "vcpu": "vCPU", "cpu mode": "CPU mode", "vms": "VMs", "smt": "SMT", "mib": "MiB",
    "iommu": "IOMMU", "qemu": "QEMU",
}  # fmt: skip


def show(identity: Identity, console: Console) -> None:
    """Print an identity; what could not be seen says so, with the end of the path that was read."""
    console.print(Text(str(identity.node), style="bold"))
    for title, rows in _sections(identity):
        console.print(_table(title, rows))


def words(identity: Identity) -> Iterator[tuple[str, str, str]]:
    """Yield what a node is, as text: the section, the name, and the value of each fact."""
    for title, rows in _sections(identity):
        for name, value in rows:
            if not seen(value):
                yield title, name, f"not observable: {value.not_observable}"
            elif isinstance(value, bool):
                yield title, name, "yes" if value else "no"
            elif isinstance(value, dict):
                yield title, name, ", ".join(f"{key}: {entry}" for key, entry in value.items())
            else:
                yield title, name, str(value)


def _table(title: str, rows: list[LabelledValue]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=12, style="bold")
    table.add_column(width=17, style="dim")
    table.add_column(overflow="fold")
    for index, (name, value) in enumerate(rows):
        table.add_row(title if index == 0 else "", name, _value(value))
    return table


def _value(value: object) -> RenderableType:
    if not seen(value):
        why = re.sub(r"/\S*/([^/\s]+/[^/\s]+)", r"\1", value.not_observable)
        return Text("not observable: ", style="yellow").append(why, style="dim")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return Group(*(f"{key}: {entry}" for key, entry in value.items()))
    return Text(str(value))


def _sections(identity: Identity) -> Iterator[tuple[str, list[LabelledValue]]]:
    hypervisor, cpu, topology = identity.hypervisor, identity.cpu, identity.topology
    memory, kernel, power = identity.memory, identity.kernel, identity.power
    yield (
        "hypervisor",
        [
            ("present", hypervisor.present),
            *(
                (
                    ("vendor", hypervisor.vendor),
                    ("build", hypervisor.build),
                    ("accelerator", hypervisor.accelerator),
                )
                if hypervisor.present is not False
                else ()
            ),
            ("hardware", hypervisor.hardware),
            ("firmware", hypervisor.firmware),
        ],
    )
    if seen(identity.host):
        yield "its host", list(_host(identity.host))
    yield (
        "processor",
        [
            ("model", cpu.model),
            ("signature", cpu.signature),
            ("microcode", cpu.microcode),
            ("features", _features(cpu.features)),
            ("mitigations", _mitigations(kernel.mitigations)),
        ],
    )
    yield (
        "topology",
        [
            ("CPUs", topology.cpus),
            ("usable from here", topology.used),
            ("sockets", topology.sockets),
            ("threads a core", topology.threads_per_core),
            ("NUMA nodes", _numa(identity)),
            ("caches", topology.caches),
        ],
    )
    yield (
        "memory",
        [
            ("size", _unit(memory.total_mib, "MiB")),
            ("swap", _unit(memory.swap_mib, "MiB")),
            ("huge pages", _pools(memory.huge_pages)),
            ("transparent ones", memory.transparent_huge_pages),
        ],
    )
    yield (
        "system",
        [
            ("kernel", kernel.release),
            ("command line", kernel.command_line),
            ("clock source", kernel.clock_source),
            ("governor", power.governor),
            ("turbo", power.turbo),
            ("idle driver", power.idle_driver),
            ("tuned profile", identity.tuned_profile),
            ("locked memory", identity.locked_memory),
        ],
    )
    for nic in identity.nics:
        yield nic.name, list(_nic(nic))
    for hca in identity.hcas:
        yield hca.name, list(_hca(hca))


def _host(host: Host) -> Iterator[LabelledValue]:
    yield "said by", host.source
    for name in type(host).model_fields:
        value = getattr(host, name)
        if name in ("schema_", "source") or value == UNTOLD:
            continue
        label = name.replace("_", " ")
        for word, written in _WORDS.items():
            label = label.replace(word, written)
        yield (
            label,
            " ".join(f"{key}={entry}" for key, entry in value.items()) if isinstance(value, dict) else value,
        )


def _nic(nic: Nic) -> Iterator[LabelledValue]:
    yield "kind", nic.kind
    if nic.kind != "software":
        yield "driver", nic.driver
        yield "rate", _unit(nic.rate_mbit, "Mbit/s")
        yield "PCIe link", _link(nic.link)
    yield "MTU", nic.mtu


def _hca(hca: Hca) -> Iterator[LabelledValue]:
    yield "kind", hca.kind
    yield "type", hca.type
    yield "firmware", hca.firmware
    yield "NUMA node", hca.numa_node
    yield "PCIe link", _link(hca.link)
    for port in hca.ports:
        yield f"port {port.number}", f"{port.state}, {port.rate}, {port.link_layer}"


def _unit(value: object, unit: str) -> object:
    return value if not seen(value) else f"{value} {unit}"


def _link(link: PcieLink | NotObservable) -> object:
    if not seen(link):
        return link
    if not seen(link.speed):
        return link.speed
    return f"{link.speed} x{link.width} (best {link.best_speed} x{link.best_width})"


def _features(features: str | NotObservable) -> object:
    if not seen(features):
        return features
    names = features.split()
    widest = next((name for name in _WIDEST if name in names), "none of " + ", ".join(_WIDEST))
    return f"{len(names)} flags, up to {widest}"


def _mitigations(table: dict[str, str] | NotObservable) -> object:
    if not seen(table):
        return table
    words = [text.split(":")[0].split(";")[0].lower() for text in table.values()]
    counts = {word: words.count(word) for word in dict.fromkeys(sorted(words))}
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def _numa(identity: Identity) -> object:
    numa = identity.topology.numa
    if not seen(numa):
        return numa
    return ", ".join(f"{node}: {len(cpu_list(cpus))} CPUs ({cpus})" for node, cpus in numa.items())


def _pools(table: dict[str, str] | NotObservable) -> object:
    if not seen(table):
        return table
    return ", ".join(f"{count} of {size}" for size, count in table.items())
