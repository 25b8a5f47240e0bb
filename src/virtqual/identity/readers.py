"""From the files of a node to its record: pure functions over a :class:`~virtqual.identity.look.Look`."""

from __future__ import annotations

import re
from collections.abc import Callable

from virtqual.identity import record
from virtqual.identity.cpus import cpu_list, cpu_text
from virtqual.identity.devices import hcas, nics
from virtqual.identity.look import VMWARE_SESSION, Look
from virtqual.identity.record import NotObservable, Text, seen

_CPU, _NODE, _DMI = "/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/class/dmi/id"
_CLOCK = "/sys/devices/system/clocksource/clocksource0"
_THP, _HUGE = "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/mm/hugepages"
# What firmware and clock sources say of the vendor, the first that is found; QEMU's firmware names itself.
_VENDORS = (
    ("VMware", "VMware"),
    ("Microsoft Corporation", "Microsoft Hyper-V"),
    ("Xen", "Xen"),
    ("Amazon EC2", "Amazon EC2"),
    ("Google", "Google Compute Engine"),
    ("OpenStack", "OpenStack (KVM)"),
    ("Red Hat", "Red Hat (KVM)"),
    ("QEMU", "QEMU"),
)


def read(look: Look, used: str = "") -> record.Identity:
    """Return what a node is.

    Parameters
    ----------
    look
        Its files.
    used
        CPU list of those that a run used; empty for those that whoever looked may use.

    Returns
    -------
    Identity
        With :class:`~virtqual.identity.record.NotObservable` for everything that they do not say.
    """
    hypervisor = _hypervisor(look)
    guest = hypervisor.present is True
    return record.Identity(
        node=look.text("/proc/sys/kernel/hostname"),
        boot=look.text("/proc/sys/kernel/random/boot_id"),
        hypervisor=hypervisor,
        cpu=_cpu(look),
        topology=_topology(look, used),
        memory=_memory(look),
        kernel=_kernel(look),
        power=_power(look),
        nics=nics(look, guest=guest),
        hcas=hcas(look, guest=guest),
        tuned_profile=look.text("/etc/tuned/active_profile"),
        locked_memory=_field(look, "/proc/self/limits", r"Max locked memory\s+(\S+)"),
    )


def _field(look: Look, path: str, pattern: str) -> Text:
    text = look.text(path)
    if not seen(text):
        return text
    match = re.search(f"^{pattern}", text, re.MULTILINE)
    return match[1].strip() if match else _no(f"{path} does not say it")


def _no(reason: str) -> NotObservable:
    return NotObservable(not_observable=reason)


def _number(value: Text) -> int | NotObservable:
    if not seen(value):
        return value
    return int(value) if re.fullmatch(r"-?\d+", value) else _no(f"{value!r} is no number")


def _chosen(value: Text) -> Text:
    """Return the choice in brackets of ``always [madvise] never``."""
    match = re.search(r"\[(\S+)\]", value) if seen(value) else None
    return match[1] if match else value


# -- hypervisor -------------------------------------------------------------------------------------


def _hypervisor(look: Look) -> record.Hypervisor:
    flags = _field(look, "/proc/cpuinfo", r"flags\s*: (.+)")
    present = "hypervisor" in flags.split() if seen(flags) else flags
    dmi = {name: look.text(f"{_DMI}/{name}") for name in ("sys_vendor", "product_name", "product_version")}
    firmware = [look.text(f"{_DMI}/bios_{name}") for name in ("vendor", "version")]
    if present is False:
        bare = _no("the CPU says that it runs under no hypervisor")
        return record.Hypervisor(
            present=False,
            vendor=bare,
            build=bare,
            accelerator=bare,
            hardware=_joined(dmi["sys_vendor"], dmi["product_name"], dmi["product_version"]),
            firmware=_joined(*firmware),
        )
    return record.Hypervisor(
        present=present,
        vendor=_vendor(look),
        build=_build(look),
        accelerator=_accelerator(look),
        hardware=_joined(dmi["sys_vendor"], dmi["product_name"], dmi["product_version"]),
        firmware=_joined(*firmware),
    )


def _build(look: Look) -> Text:
    session = look.text(VMWARE_SESSION)
    match = re.search(r"version\s*=\s*(VMware ESXi \S+ build-\d+)", session) if seen(session) else None
    return match[1] if match else _no("the build is not shown to guests; the hypervisor's host can say it")


def _joined(*values: Text) -> Text:
    known = [value for value in values if seen(value)]
    return " ".join(known) if known else values[0]


def _clocks(look: Look) -> str:
    return " ".join(
        text for which in ("available", "current") if seen(text := look.text(f"{_CLOCK}/{which}_clocksource"))
    )


def _vendor(look: Look) -> Text:
    firmware = " ".join(
        text
        for name in ("sys_vendor", "product_name", "bios_vendor", "bios_version")
        if seen(text := look.text(f"{_DMI}/{name}"))
    )
    for word, vendor in _VENDORS:
        if word.lower() in firmware.lower():
            return vendor
    clocks = _clocks(look)
    if "kvm-clock" in clocks:
        return "KVM"
    if "hyperv_clocksource" in clocks:
        return "Microsoft Hyper-V"
    return look.text("/sys/hypervisor/type")


def _accelerator(look: Look) -> Text:
    model = _field(look, "/proc/cpuinfo", r"model name\s*: (.+)")
    if seen(model) and "TCG" in model:
        return "tcg"
    if "kvm-clock" in _clocks(look):
        return "kvm"
    vendor = _vendor(look)
    if seen(vendor):
        for name, accelerator in (("VMware", "esxi"), ("Microsoft Hyper-V", "hyperv"), ("xen", "xen")):
            if vendor.lower().startswith(name.lower()):
                return accelerator
    return _no("neither the CPU's name nor a clock source tells it")


# -- processor --------------------------------------------------------------------------------------


def _cpu(look: Look) -> record.Cpu:
    def field(name: str) -> Text:
        return _field(look, "/proc/cpuinfo", rf"{name}\s*: (.+)")

    parts = [field(name) for name in ("vendor_id", "cpu family", "model", "stepping")]
    missing = [part for part in parts if not seen(part)]
    vendor, family, model, stepping = parts
    flags = field("flags")
    return record.Cpu(
        model=field("model name"),
        signature=missing[0] if missing else f"{vendor} {family}-{model}-{stepping}",
        microcode=field("microcode"),
        features=" ".join(sorted(flags.split())) if seen(flags) else flags,
    )


def cores(look: Look) -> dict[int, frozenset[int]]:
    """Return the hardware threads of the core that each CPU belongs to, as far as the node shows them."""
    found = {}
    for cpu in _cpus(look):
        threads = look.text(f"{_CPU}/cpu{cpu}/topology/thread_siblings_list")
        if seen(threads):
            found[cpu] = cpu_list(threads)
    return found


def _cpus(look: Look) -> list[int]:
    return [int(name[3:]) for name in look.under(_CPU) if re.fullmatch(r"cpu\d+", name)]


def _topology(look: Look, used: str) -> record.Topology:
    packages: dict[str, set[int]] = {}
    for cpu in _cpus(look):
        package = look.text(f"{_CPU}/cpu{cpu}/topology/physical_package_id")
        if seen(package):
            packages.setdefault(package, set()).add(cpu)
    siblings = cores(look)
    nowhere = _no(f"{_CPU}/cpu*/topology: not there")
    active = look.text(f"{_CPU}/smt/active")
    allowed = used or _field(look, "/proc/self/status", r"Cpus_allowed_list:\s*(\S+)")
    own = cpu_list(allowed) if seen(allowed) else frozenset(siblings)
    shared = [len(cpus & own) for cpus in siblings.values() if cpus & own]
    return record.Topology(
        cpus=look.text(f"{_CPU}/online"),
        used=allowed,
        sockets=len(packages) if packages else nowhere,
        threads_per_core=max(map(len, siblings.values())) if siblings else nowhere,
        threads_used=max(shared) if shared else nowhere,
        smt={"0": "off", "1": "on"}.get(active, active) if seen(active) else active,
        packages={key: cpu_text(cpus) for key, cpus in packages.items()} if packages else nowhere,
        numa=_by_node(look, "cpulist"),
        distances=_by_node(look, "distance"),
        caches=_caches(look),
    )


def _by_node(look: Look, name: str) -> record.Table:
    found = {}
    for node in look.under(_NODE):
        text = look.text(f"{_NODE}/{node}/{name}")
        if re.fullmatch(r"node\d+", node) and seen(text):
            found[node[4:]] = text
    return found or _no(f"{_NODE}: no NUMA node is shown")


def _caches(look: Look) -> record.Table:
    base, found = f"{_CPU}/cpu0/cache", {}
    for index in look.under(base):
        level, size, shared, kind = (
            look.text(f"{base}/{index}/{name}") for name in ("level", "size", "shared_cpu_list", "type")
        )
        if seen(level) and seen(size) and seen(shared) and seen(kind):
            letter = {"Data": "d", "Instruction": "i"}.get(kind, "")
            found[f"L{level}{letter}"] = f"{size} shared by {shared}"
    return found or _no(f"{base}: not there")


# -- memory, kernel, power --------------------------------------------------------------------------


def _mib(value: Text) -> int | NotObservable:
    number = _number(value)
    return number // 1024 if seen(number) else number


def _memory(look: Look) -> record.Memory:
    pools = {}
    for pool in look.under(_HUGE):
        count = look.text(f"{_HUGE}/{pool}/nr_hugepages")
        if seen(count):
            pools[pool.removeprefix("hugepages-")] = count
    return record.Memory(
        total_mib=_mib(_field(look, "/proc/meminfo", r"MemTotal:\s+(\d+)")),
        swap_mib=_mib(_field(look, "/proc/meminfo", r"SwapTotal:\s+(\d+)")),
        transparent_huge_pages=_chosen(look.text(_THP)),
        huge_pages=pools or _no(f"{_HUGE}: not there"),
    )


def _kernel(look: Look) -> record.Kernel:
    base = f"{_CPU}/vulnerabilities"
    found = {name: text for name in look.under(base) if seen(text := look.text(f"{base}/{name}"))}
    return record.Kernel(
        release=look.text("/proc/sys/kernel/osrelease"),
        command_line=look.text("/proc/cmdline"),
        mitigations=found or _no(f"{base}: not there"),
        clock_source=look.text(f"{_CLOCK}/current_clocksource"),
        clock_sources=look.text(f"{_CLOCK}/available_clocksource"),
        numa_balancing=look.text("/proc/sys/kernel/numa_balancing"),
    )


def _power(look: Look) -> record.Power:
    return record.Power(
        governor=look.text(f"{_CPU}/cpu0/cpufreq/scaling_governor"),
        turbo=_turbo(look),
        idle_driver=look.text(f"{_CPU}/cpuidle/current_driver"),
    )


def _turbo(look: Look) -> Text:
    words: tuple[tuple[str, Callable[[str], bool]], ...] = (
        (f"{_CPU}/intel_pstate/no_turbo", lambda text: text == "0"),
        (f"{_CPU}/cpufreq/boost", lambda text: text == "1"),
    )
    for path, on in words:
        text = look.text(path)
        if seen(text):
            return "on" if on(text) else "off"
    return _no("no frequency driver shows it")
