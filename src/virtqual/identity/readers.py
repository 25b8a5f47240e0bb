"""Make the record of a node from its files: pure functions over `virtqual.identity.gather.NodeFiles`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from virtqual.identity import record
from virtqual.identity.cpus import MAX_THREADS, cpu_list, cpu_text
from virtqual.identity.devices import hcas, nics
from virtqual.identity.gather import (
    CLOCK_DIR,
    CPU_DIR,
    FIRMWARE_FILES,
    HARDWARE_FILES,
    HUGE_PAGES_DIR,
    NODE_DIR,
    TRANSPARENT_PAGES_FILE,
    VMWARE_SESSION,
    GatherError,
    NodeFiles,
)
from virtqual.identity.record import Count, Table, Text, seen, unseen

#: Vendors by a word of the firmware; the first that matches counts, and QEMU's own firmware is the last.
_VENDORS = {
    "VMware": "VMware",
    "Microsoft Corporation": "Microsoft Hyper-V",
    "Xen": "Xen",
    "Amazon EC2": "Amazon EC2",
    "Google": "Google Compute Engine",
    "OpenStack": "OpenStack (KVM)",
    "Red Hat": "Red Hat (KVM)",
    "QEMU": "QEMU",
}
_ACCELERATORS = {"vmware": "esxi", "microsoft hyper-v": "hyperv", "xen": "xen"}


def read(files: NodeFiles, used: str = "") -> record.Identity:
    """Return the record of a node; values that the files do not show are not observable.

    Parameters
    ----------
    used
        The CPUs that a run used, as a list such as ``0-3``; empty for all CPUs on which the process that
        gathered the files was allowed to run.

    Raises
    ------
    GatherError
        A file says what no kernel writes.
    """
    try:
        return _read_identity(files, used)
    except ValueError as error:
        raise GatherError(f"what the node showed cannot be read: {error}") from error


def _read_identity(files: NodeFiles, used: str) -> record.Identity:
    hypervisor = _read_hypervisor(files)
    guest = hypervisor.present is True
    return record.Identity(
        node=files.text("/proc/sys/kernel/hostname"),
        boot=files.text("/proc/sys/kernel/random/boot_id"),
        hypervisor=hypervisor,
        cpu=_read_cpu(files),
        topology=_read_topology(files, used),
        memory=_read_memory(files),
        kernel=_read_kernel(files),
        power=_read_power(files),
        nics=nics(files, guest=guest),
        hcas=hcas(files, guest=guest),
        tuned_profile=files.text("/etc/tuned/active_profile"),
        locked_memory=_search(files, "/proc/self/limits", r"^Max locked memory\s+(\S+)"),
    )


def _search(files: NodeFiles, path: str, pattern: str) -> Text:
    """Return the group of a pattern in a file."""
    text = files.text(path)
    if not seen(text):
        return text
    match = re.search(pattern, text, re.MULTILINE)
    return match[1].strip() if match else unseen(f"{path} does not say it")


def _search_cpuinfo(files: NodeFiles, name: str) -> Text:
    return _search(files, "/proc/cpuinfo", rf"^{name}\s*: (.+)")


def _read_all(files: NodeFiles, *paths: str) -> str:
    """Return the content of all files that could be read."""
    return " ".join(text for path in paths if seen(text := files.text(path)))


def _read_hypervisor(files: NodeFiles) -> record.Hypervisor:
    flags = _search_cpuinfo(files, "flags")
    present = "hypervisor" in flags.split() if seen(flags) else flags
    vendor = _read_vendor(files)
    accelerator = _read_accelerator(files, vendor)
    session = re.search(r"version\s*=\s*(VMware ESXi \S+ build-\d+)", files.texts.get(VMWARE_SESSION, ""))
    hidden = unseen("the build is not shown to guests; the hypervisor's host can say it")
    build: Text = session[1] if session else hidden
    if present is False:
        vendor = build = accelerator = unseen("the CPU says that it runs under no hypervisor")
    return record.Hypervisor(
        present=present,
        vendor=vendor,
        build=build,
        accelerator=accelerator,
        hardware=_read_all(files, *HARDWARE_FILES) or files.text(HARDWARE_FILES[0]),
        firmware=_read_all(files, *FIRMWARE_FILES) or files.text(FIRMWARE_FILES[0]),
    )


def _read_clocks(files: NodeFiles) -> str:
    return _read_all(files, f"{CLOCK_DIR}/available_clocksource", f"{CLOCK_DIR}/current_clocksource")


def _read_vendor(files: NodeFiles) -> Text:
    firmware = _read_all(files, *HARDWARE_FILES[:2], *FIRMWARE_FILES).lower()
    for word, vendor in _VENDORS.items():
        if word.lower() in firmware:
            return vendor
    clocks = _read_clocks(files)
    if "kvm-clock" in clocks:
        return "KVM"
    if "hyperv_clocksource" in clocks:
        return "Microsoft Hyper-V"
    return files.text("/sys/hypervisor/type")


def _read_accelerator(files: NodeFiles, vendor: Text) -> Text:
    # The clock comes first: a guest under KVM has the name of its host's CPU, which may be emulated.
    if "kvm-clock" in _read_clocks(files):
        return "kvm"
    model = _search_cpuinfo(files, "model name")
    if seen(model) and "TCG" in model:
        return "tcg"
    for name, accelerator in _ACCELERATORS.items():
        if seen(vendor) and vendor.lower().startswith(name):
            return accelerator
    return unseen("neither the CPU's name nor a clock source tells it")


def _read_cpu(files: NodeFiles) -> record.Cpu:
    parts = [_search_cpuinfo(files, name) for name in ("vendor_id", "cpu family", "model", "stepping")]
    vendor, family, model, stepping = parts
    signature: Text = f"{vendor} {family}-{model}-{stepping}"
    flags = _search_cpuinfo(files, "flags")
    return record.Cpu(
        model=_search_cpuinfo(files, "model name"),
        signature=next((part for part in parts if not seen(part)), signature),
        microcode=_search_cpuinfo(files, "microcode"),
        features=" ".join(sorted(flags.split())) if seen(flags) else flags,
    )


def cores(files: NodeFiles) -> dict[int, frozenset[int]]:
    """Return the hardware threads of the core that each CPU belongs to, as far as the node shows them."""
    return {
        cpu: cpu_list(threads, MAX_THREADS)
        for cpu in _list_cpus(files)
        if seen(threads := files.text(f"{CPU_DIR}/cpu{cpu}/topology/thread_siblings_list"))
    }


def _list_cpus(files: NodeFiles) -> list[int]:
    return [int(name[3:]) for name in files.under(CPU_DIR) if re.fullmatch(r"cpu\d{1,5}", name)]


def _read_topology(files: NodeFiles, used: str) -> record.Topology:
    packages: dict[str, set[int]] = {}
    for cpu in _list_cpus(files):
        if seen(package := files.text(f"{CPU_DIR}/cpu{cpu}/topology/physical_package_id")):
            packages.setdefault(package, set()).add(cpu)
    if seen(online := files.text(f"{CPU_DIR}/online")):
        cpu_list(online)
    siblings = cores(files)
    absent = unseen(f"{CPU_DIR}/cpu*/topology: not there")
    active = files.text(f"{CPU_DIR}/smt/active")
    allowed = used or _search(files, "/proc/self/status", r"^Cpus_allowed_list:\s*(\S+)")
    own = cpu_list(allowed) if seen(allowed) else frozenset(siblings)
    threads_used = [len(cpus & own) for cpus in siblings.values() if cpus & own]
    return record.Topology(
        cpus=online,
        used=allowed,
        sockets=len(packages) or absent,
        threads_per_core=max(map(len, siblings.values()), default=absent),
        threads_used=max(threads_used, default=absent),
        smt={"0": "off", "1": "on"}.get(active, active) if seen(active) else active,
        packages={key: cpu_text(cpus) for key, cpus in packages.items()} or absent,
        numa=_read_nodes(files, "cpulist"),
        distances=_read_nodes(files, "distance"),
        caches=_read_caches(files),
    )


def _read_nodes(files: NodeFiles, name: str) -> Table:
    nodes = {node: files.text(f"{NODE_DIR}/{node}/{name}") for node in files.under(NODE_DIR)}
    table = {node[4:]: text for node, text in nodes.items() if re.fullmatch(r"node\d+", node) and seen(text)}
    if name == "cpulist":
        # A CPU belongs to one node, so that all lists together are one list.
        cpu_list(",".join(table.values()))
    return table or unseen(f"{NODE_DIR}: no NUMA node is shown")


def _read_caches(files: NodeFiles) -> Table:
    base, caches = f"{CPU_DIR}/cpu0/cache", {}
    for index in files.under(base):
        names = ("level", "type", "size", "shared_cpu_list")
        parts = [files.text(f"{base}/{index}/{name}") for name in names]
        if all(map(seen, parts)):
            level, kind, size, shared = map(str, parts)
            letter = {"Data": "d", "Instruction": "i"}.get(kind, "")
            caches[f"L{level}{letter}"] = f"{size} shared by {shared}"
    return caches or unseen(f"{base}: not there")


def _read_table(files: NodeFiles, directory: str, paths: Mapping[str, str]) -> Table:
    """Return the content of files below a directory by name."""
    table = {name: text for name, path in paths.items() if seen(text := files.text(f"{directory}/{path}"))}
    return table or unseen(f"{directory}: not there")


def _read_memory(files: NodeFiles) -> record.Memory:
    def read_mib(name: str) -> Count:
        kib = _search(files, "/proc/meminfo", rf"^{name}:\s+(\d{{1,18}})\b")
        return int(kib) // 1024 if seen(kib) else kib

    pages = files.text(TRANSPARENT_PAGES_FILE)
    chosen = re.search(r"\[(\S+)\]", pages) if seen(pages) else None
    pools = {pool.removeprefix("hugepages-"): f"{pool}/nr_hugepages" for pool in files.under(HUGE_PAGES_DIR)}
    return record.Memory(
        total_mib=read_mib("MemTotal"),
        swap_mib=read_mib("SwapTotal"),
        # The file has all choices, such as "always [madvise] never".
        transparent_huge_pages=chosen[1] if chosen else pages,
        huge_pages=_read_table(files, HUGE_PAGES_DIR, pools),
    )


def _read_kernel(files: NodeFiles) -> record.Kernel:
    base = f"{CPU_DIR}/vulnerabilities"
    return record.Kernel(
        release=files.text("/proc/sys/kernel/osrelease"),
        command_line=files.text("/proc/cmdline"),
        mitigations=_read_table(files, base, {name: name for name in files.under(base)}),
        clock_source=files.text(f"{CLOCK_DIR}/current_clocksource"),
        clock_sources=files.text(f"{CLOCK_DIR}/available_clocksource"),
        numa_balancing=files.text("/proc/sys/kernel/numa_balancing"),
    )


def _read_power(files: NodeFiles) -> record.Power:
    turbo: Text = unseen("no frequency driver shows it")
    if seen(no_turbo := files.text(f"{CPU_DIR}/intel_pstate/no_turbo")):
        turbo = "on" if no_turbo == "0" else "off"
    elif seen(boost := files.text(f"{CPU_DIR}/cpufreq/boost")):
        turbo = "on" if boost == "1" else "off"
    return record.Power(
        governor=files.text(f"{CPU_DIR}/cpu0/cpufreq/scaling_governor"),
        turbo=turbo,
        idle_driver=files.text(f"{CPU_DIR}/cpuidle/current_driver"),
    )
