"""Make the record of a node from its files: pure functions over `virtqual.identity.gather.NodeFiles`."""

from __future__ import annotations

import re
from collections.abc import Callable

from virtqual.identity import record
from virtqual.identity.cpus import MAX_THREADS, cpu_list, cpu_text
from virtqual.identity.devices import hcas, nics
from virtqual.identity.gather import VMWARE_SESSION, NodeFiles
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


def read(files: NodeFiles, used: str = "") -> record.Identity:
    """Return what a node is.

    Parameters
    ----------
    files
        Files of the node.
    used
        The CPUs that a run used, as a list such as ``0-3``; empty for all CPUs on which the process that
        gathered the files was allowed to run.

    Returns
    -------
    Identity
        With :class:`~virtqual.identity.record.NotObservable` for everything that they do not say.
    """
    hypervisor = _hypervisor(files)
    guest = hypervisor.present is True
    return record.Identity(
        node=files.text("/proc/sys/kernel/hostname"),
        boot=files.text("/proc/sys/kernel/random/boot_id"),
        hypervisor=hypervisor,
        cpu=_cpu(files),
        topology=_topology(files, used),
        memory=_memory(files),
        kernel=_kernel(files),
        power=_power(files),
        nics=nics(files, guest=guest),
        hcas=hcas(files, guest=guest),
        tuned_profile=files.text("/etc/tuned/active_profile"),
        locked_memory=_field(files, "/proc/self/limits", r"Max locked memory\s+(\S+)"),
    )


def _field(files: NodeFiles, path: str, pattern: str) -> Text:
    text = files.text(path)
    if not seen(text):
        return text
    match = re.search(f"^{pattern}", text, re.MULTILINE)
    return match[1].strip() if match else _no(f"{path} does not say it")


def _no(reason: str) -> NotObservable:
    return NotObservable(not_observable=reason)


def _number(value: Text) -> int | NotObservable:
    if not seen(value):
        return value
    return int(value) if re.fullmatch(r"-?\d{1,18}", value) else _no(f"{value!r} is no number")


def _chosen(value: Text) -> Text:
    """Return the choice in brackets of ``always [madvise] never``."""
    match = re.search(r"\[(\S+)\]", value) if seen(value) else None
    return match[1] if match else value


# -- hypervisor -------------------------------------------------------------------------------------


def _hypervisor(files: NodeFiles) -> record.Hypervisor:
    flags = _field(files, "/proc/cpuinfo", r"flags\s*: (.+)")
    present = "hypervisor" in flags.split() if seen(flags) else flags
    dmi = {name: files.text(f"{_DMI}/{name}") for name in ("sys_vendor", "product_name", "product_version")}
    firmware = [files.text(f"{_DMI}/bios_{name}") for name in ("vendor", "version")]
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
        vendor=_vendor(files),
        build=_build(files),
        accelerator=_accelerator(files),
        hardware=_joined(dmi["sys_vendor"], dmi["product_name"], dmi["product_version"]),
        firmware=_joined(*firmware),
    )


def _build(files: NodeFiles) -> Text:
    session = files.text(VMWARE_SESSION)
    match = re.search(r"version\s*=\s*(VMware ESXi \S+ build-\d+)", session) if seen(session) else None
    return match[1] if match else _no("the build is not shown to guests; the hypervisor's host can say it")


def _joined(*values: Text) -> Text:
    known = [value for value in values if seen(value)]
    return " ".join(known) if known else values[0]


def _clocks(files: NodeFiles) -> str:
    return " ".join(
        text
        for which in ("available", "current")
        if seen(text := files.text(f"{_CLOCK}/{which}_clocksource"))
    )


def _vendor(files: NodeFiles) -> Text:
    firmware = " ".join(
        text
        for name in ("sys_vendor", "product_name", "bios_vendor", "bios_version")
        if seen(text := files.text(f"{_DMI}/{name}"))
    )
    for word, vendor in _VENDORS:
        if word.lower() in firmware.lower():
            return vendor
    clocks = _clocks(files)
    if "kvm-clock" in clocks:
        return "KVM"
    if "hyperv_clocksource" in clocks:
        return "Microsoft Hyper-V"
    return files.text("/sys/hypervisor/type")


def _accelerator(files: NodeFiles) -> Text:
    # First the clock: a guest under KVM has the name of its host's CPU, and that may be emulated.
    if "kvm-clock" in _clocks(files):
        return "kvm"
    model = _field(files, "/proc/cpuinfo", r"model name\s*: (.+)")
    if seen(model) and "TCG" in model:
        return "tcg"
    vendor = _vendor(files)
    if seen(vendor):
        for name, accelerator in (("VMware", "esxi"), ("Microsoft Hyper-V", "hyperv"), ("xen", "xen")):
            if vendor.lower().startswith(name.lower()):
                return accelerator
    return _no("neither the CPU's name nor a clock source tells it")


# -- processor --------------------------------------------------------------------------------------


def _cpu(files: NodeFiles) -> record.Cpu:
    def field(name: str) -> Text:
        return _field(files, "/proc/cpuinfo", rf"{name}\s*: (.+)")

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


def cores(files: NodeFiles) -> dict[int, frozenset[int]]:
    """Return the hardware threads of the core that each CPU belongs to, as far as the node shows them."""
    found = {}
    for cpu in _cpus(files):
        threads = files.text(f"{_CPU}/cpu{cpu}/topology/thread_siblings_list")
        if seen(threads):
            found[cpu] = cpu_list(threads, MAX_THREADS)
    return found


def _cpus(files: NodeFiles) -> list[int]:
    return [int(name[3:]) for name in files.under(_CPU) if re.fullmatch(r"cpu\d{1,5}", name)]


def _topology(files: NodeFiles, used: str) -> record.Topology:
    packages: dict[str, set[int]] = {}
    for cpu in _cpus(files):
        package = files.text(f"{_CPU}/cpu{cpu}/topology/physical_package_id")
        if seen(package):
            packages.setdefault(package, set()).add(cpu)
    online = files.text(f"{_CPU}/online")
    if seen(online):
        cpu_list(online)
    siblings = cores(files)
    nowhere = _no(f"{_CPU}/cpu*/topology: not there")
    active = files.text(f"{_CPU}/smt/active")
    allowed = used or _field(files, "/proc/self/status", r"Cpus_allowed_list:\s*(\S+)")
    own = cpu_list(allowed) if seen(allowed) else frozenset(siblings)
    shared = [len(cpus & own) for cpus in siblings.values() if cpus & own]
    return record.Topology(
        cpus=online,
        used=allowed,
        sockets=len(packages) if packages else nowhere,
        threads_per_core=max(map(len, siblings.values())) if siblings else nowhere,
        threads_used=max(shared) if shared else nowhere,
        smt={"0": "off", "1": "on"}.get(active, active) if seen(active) else active,
        packages={key: cpu_text(cpus) for key, cpus in packages.items()} if packages else nowhere,
        numa=_by_node(files, "cpulist"),
        distances=_by_node(files, "distance"),
        caches=_caches(files),
    )


def _by_node(files: NodeFiles, name: str) -> record.Table:
    found = {}
    for node in files.under(_NODE):
        text = files.text(f"{_NODE}/{node}/{name}")
        if re.fullmatch(r"node\d+", node) and seen(text):
            found[node[4:]] = text
    if name == "cpulist":
        # A CPU belongs to one node: all lists together are no longer than the longest list.
        cpu_list(",".join(found.values()))
    return found or _no(f"{_NODE}: no NUMA node is shown")


def _caches(files: NodeFiles) -> record.Table:
    base, found = f"{_CPU}/cpu0/cache", {}
    for index in files.under(base):
        level, size, shared, kind = (
            files.text(f"{base}/{index}/{name}") for name in ("level", "size", "shared_cpu_list", "type")
        )
        if seen(level) and seen(size) and seen(shared) and seen(kind):
            letter = {"Data": "d", "Instruction": "i"}.get(kind, "")
            found[f"L{level}{letter}"] = f"{size} shared by {shared}"
    return found or _no(f"{base}: not there")


# -- memory, kernel, power --------------------------------------------------------------------------


def _mib(value: Text) -> int | NotObservable:
    number = _number(value)
    return number // 1024 if seen(number) else number


def _memory(files: NodeFiles) -> record.Memory:
    pools = {}
    for pool in files.under(_HUGE):
        count = files.text(f"{_HUGE}/{pool}/nr_hugepages")
        if seen(count):
            pools[pool.removeprefix("hugepages-")] = count
    return record.Memory(
        total_mib=_mib(_field(files, "/proc/meminfo", r"MemTotal:\s+(\d+)")),
        swap_mib=_mib(_field(files, "/proc/meminfo", r"SwapTotal:\s+(\d+)")),
        transparent_huge_pages=_chosen(files.text(_THP)),
        huge_pages=pools or _no(f"{_HUGE}: not there"),
    )


def _kernel(files: NodeFiles) -> record.Kernel:
    base = f"{_CPU}/vulnerabilities"
    found = {name: text for name in files.under(base) if seen(text := files.text(f"{base}/{name}"))}
    return record.Kernel(
        release=files.text("/proc/sys/kernel/osrelease"),
        command_line=files.text("/proc/cmdline"),
        mitigations=found or _no(f"{base}: not there"),
        clock_source=files.text(f"{_CLOCK}/current_clocksource"),
        clock_sources=files.text(f"{_CLOCK}/available_clocksource"),
        numa_balancing=files.text("/proc/sys/kernel/numa_balancing"),
    )


def _power(files: NodeFiles) -> record.Power:
    return record.Power(
        governor=files.text(f"{_CPU}/cpu0/cpufreq/scaling_governor"),
        turbo=_turbo(files),
        idle_driver=files.text(f"{_CPU}/cpuidle/current_driver"),
    )


def _turbo(files: NodeFiles) -> Text:
    words: tuple[tuple[str, Callable[[str], bool]], ...] = (
        (f"{_CPU}/intel_pstate/no_turbo", lambda text: text == "0"),
        (f"{_CPU}/cpufreq/boost", lambda text: text == "1"),
    )
    for path, on in words:
        text = files.text(path)
        if seen(text):
            return "on" if on(text) else "off"
    return _no("no frequency driver shows it")
