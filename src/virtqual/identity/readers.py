"""Make the record of a node from its files: pure functions over `virtqual.identity.gather.NodeFiles`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from virtqual.identity import arm, record
from virtqual.identity.cpus import MAX_THREADS, cpu_list, cpu_text
from virtqual.identity.devices import hcas, nics
from virtqual.identity.gather import (
    CACHE_FILES,
    CLOCK_DIR,
    CPU_DIR,
    DEVICE_TREE_FILES,
    FIRMWARE_FILES,
    HARDWARE_FILES,
    HUGE_PAGES_DIR,
    MACHINE,
    NODE_DIR,
    SLURM_NODE,
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
#: The machine in the device tree that QEMU makes for an Arm guest.
_QEMU_MACHINE = "linux,dummy-virt"
#: Words of an Arm guest's device tree or product name.
_ARM_ACCELERATORS = {
    **{"linux,kvm": "kvm", "KVM Virtual Machine": "kvm", "QEMU Virtual Machine": "tcg"},
    **{"xen": "xen", "vmware": "esxi"},
}
#: Units of the sizes of caches, as the kernel prints them.
CACHE_UNIT_BYTES = {"K": 2**10, "M": 2**20, "G": 2**30}
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
        slurm_node=files.texts.get(SLURM_NODE) or unseen("no job of Slurm looked at this node"),
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
    present, vendor = _read_presence(files), _read_vendor(files)
    accelerator = _read_accelerator(files, vendor)
    session = re.search(r"version\s*=\s*(VMware ESXi \S+ build-\d+)", files.texts.get(VMWARE_SESSION, ""))
    hidden = unseen("the build is not shown to guests; the hypervisor's host can say it")
    build: Text = session[1] if session else hidden
    if present is False:
        vendor = build = accelerator = unseen(f"{_describe_witness(files)} shows no hypervisor")
    return record.Hypervisor(
        present=present,
        vendor=vendor,
        build=build,
        accelerator=accelerator,
        hardware=_read_all(files, *HARDWARE_FILES) or files.text(HARDWARE_FILES[0]),
        firmware=_read_all(files, *FIRMWARE_FILES) or files.text(FIRMWARE_FILES[0]),
    )


def _is_arm(files: NodeFiles) -> bool:
    return arm.describe_cores(files.texts.get("/proc/cpuinfo", "")) is not None


def _describe_witness(files: NodeFiles) -> str:
    """Return what tells whether a node is a guest."""
    return "its firmware" if _is_arm(files) else "the CPU"


def _read_presence(files: NodeFiles) -> record.Flag:
    if not _is_arm(files):
        flags = _search_cpuinfo(files, "flags")
        return "hypervisor" in flags.split() if seen(flags) else flags
    # Arm's processors have no flag for it: firmware and drivers of hypervisors tell.
    signs = (
        not {"/sys/hypervisor/type", DEVICE_TREE_FILES[0]}.isdisjoint(files.texts),
        _QEMU_MACHINE in files.texts.get(DEVICE_TREE_FILES[1], ""),
        "KVM" in _read_ptp_clocks(files),
    )
    if any(signs):
        return True
    hardware = files.text(HARDWARE_FILES[0])
    if not seen(hardware):
        return unseen(f"{hardware.not_observable}; an Arm processor does not tell")
    # Amazon's bare metal has the vendor of its guests.
    is_metal = files.texts.get(HARDWARE_FILES[1], "").endswith(".metal")
    return _find_vendor(_read_all(files, *HARDWARE_FILES[:2])) is not None and not is_metal


def _read_ptp_clocks(files: NodeFiles) -> str:
    base = "/sys/class/ptp"
    return _read_all(files, *(f"{base}/{name}/clock_name" for name in files.under(base)))


def _read_clocks(files: NodeFiles) -> str:
    return _read_all(files, f"{CLOCK_DIR}/available_clocksource", f"{CLOCK_DIR}/current_clocksource")


def _read_vendor(files: NodeFiles) -> Text:
    if vendor := _find_vendor(_read_all(files, *HARDWARE_FILES[:2], *FIRMWARE_FILES)):
        return vendor
    clocks = _read_clocks(files)
    if "kvm-clock" in clocks:
        return "KVM"
    if "hyperv_clocksource" in clocks:
        return "Microsoft Hyper-V"
    return files.text("/sys/hypervisor/type")


def _find_vendor(firmware: str) -> str | None:
    """Return the vendor of a hypervisor that a text of firmware names."""
    return next((vendor for word, vendor in _VENDORS.items() if word.lower() in firmware.lower()), None)


def _read_accelerator(files: NodeFiles, vendor: Text) -> Text:
    # The clock comes first: a guest under KVM has the name of its host's CPU, which may be emulated.
    if "kvm-clock" in _read_clocks(files) or "KVM" in _read_ptp_clocks(files):
        return "kvm"
    if _is_arm(files):
        # QEMU's firmware for Arm names its accelerator.
        words = _read_all(files, DEVICE_TREE_FILES[0], HARDWARE_FILES[1])
        for word, accelerator in _ARM_ACCELERATORS.items():
            if word in words:
                return accelerator
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
    if cores := arm.describe_cores(files.texts.get("/proc/cpuinfo", "")):
        flags, is_64_bit = (
            _search_cpuinfo(files, "Features"),
            _search_cpuinfo(files, "CPU architecture") == "8",
        )
        return record.Cpu(
            model=cores[0],
            signature=cores[1],
            microcode=unseen("Arm processors show none"),
            features=" ".join(sorted(flags.split())) if seen(flags) else flags,
            architecture=_read_architecture(files, "aarch64" if is_64_bit else ""),
        )
    flags = _search_cpuinfo(files, "flags")
    return record.Cpu(
        model=_search_cpuinfo(files, "model name"),
        signature=next((part for part in parts if not seen(part)), signature),
        microcode=_search_cpuinfo(files, "microcode"),
        features=" ".join(sorted(flags.split())) if seen(flags) else flags,
        architecture=_read_architecture(files, "x86_64" if seen(flags) and "lm" in flags.split() else ""),
    )


def _read_architecture(files: NodeFiles, by_cpuinfo: str) -> Text:
    shown = files.texts.get(MACHINE) or files.texts.get("/proc/sys/kernel/arch") or by_cpuinfo
    return shown or unseen("neither /proc/sys/kernel/arch nor /proc/cpuinfo tells it")


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
        last_level_bytes=_sum_last_level_caches(files, online),
    )


def _read_nodes(files: NodeFiles, name: str) -> Table:
    nodes = {node: files.text(f"{NODE_DIR}/{node}/{name}") for node in files.under(NODE_DIR)}
    table = {node[4:]: text for node, text in nodes.items() if re.fullmatch(r"node\d+", node) and seen(text)}
    if name == "cpulist":
        # A CPU belongs to one node, so that all lists together are one list.
        cpu_list(",".join(table.values()))
    return table or unseen(f"{NODE_DIR}: no NUMA node is shown")


def _read_caches(files: NodeFiles) -> Table:
    """Return the caches of the first CPU that has the highest level which CPUs show."""
    by_cpu = {cpu: caches for cpu in _list_cpus(files) if (caches := _list_caches(files, cpu))}
    if not by_cpu:
        return unseen(f"{CPU_DIR}/cpu*/cache: not there")
    first = max(by_cpu, key=lambda cpu: (max(cache.level for cache in by_cpu[cpu]), -cpu))
    return {cache.name: f"{cache.size} shared by {cache.shared_by}" for cache in by_cpu[first]}


class _Cache(NamedTuple):
    level: str
    kind: str
    size: str
    shared_by: str

    @property
    def name(self) -> str:
        return f"L{self.level}{ {'Data': 'd', 'Instruction': 'i'}.get(self.kind, '') }"


def _list_caches(files: NodeFiles, cpu: int) -> list[_Cache]:
    base, caches = f"{CPU_DIR}/cpu{cpu}/cache", []
    for index in files.under(base):
        parts = [files.text(f"{base}/{index}/{name}") for name in CACHE_FILES]
        if all(map(seen, parts)):
            caches.append(_Cache(*map(str, parts)))
    return caches


def _sum_last_level_caches(files: NodeFiles, online: Text) -> Count:
    """Return the bytes of all caches of the highest level; those that the same CPUs share are one."""
    shown_cpus: set[int] = set()
    caches = []
    for cpu in _list_cpus(files):
        if of_cpu := _list_caches(files, cpu):
            shown_cpus.add(cpu)
            caches += of_cpu
    last_level = max((cache.level for cache in caches), default="")
    sizes = {c.shared_by: c.size for c in caches if c.level == last_level and c.kind != "Instruction"}
    shown_cpus = shown_cpus.union(*map(cpu_list, sizes))
    if not (seen(online) and sizes and cpu_list(online) <= shown_cpus):
        return unseen("not all CPUs show their caches")
    if not all(match := [re.fullmatch(r"(\d{1,9})([KMG])", size) for size in sizes.values()]):
        return unseen(f"a cache has the size {next(iter(sizes.values()))!r}")
    return sum(int(m[1]) * CACHE_UNIT_BYTES[m[2]] for m in match if m)


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
    governors = [f"{CPU_DIR}/cpu{cpu}/cpufreq/scaling_governor" for cpu in range(10)]
    return record.Power(
        governor=next(
            (text for path in governors if seen(text := files.text(path))), files.text(governors[0])
        ),
        turbo=turbo,
        idle_driver=files.text(f"{CPU_DIR}/cpuidle/current_driver"),
    )
