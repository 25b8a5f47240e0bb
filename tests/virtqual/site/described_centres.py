"""Centres of tests/outputs/centres, as files that tests/fakeslurm/replay reads."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

CENTRES = Path(__file__).parents[2] / "outputs/centres"
NAMES = sorted(file.stem for file in CENTRES.glob("*.yaml") if file.stem != "processors")
CPU, NODE, DMI = "/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/class/dmi/id"
CLOCK = "/sys/devices/system/clocksource/clocksource0"
#: Vendor and product of the machine, and its clock, by hypervisor.
FIRMWARE = {
    None: ("HPE", "compute node", "tsc"),
    "kvm": ("QEMU", "Standard PC (Q35 + ICH9, 2009)", "kvm-clock"),
    "hyperv": ("Microsoft Corporation", "Virtual Machine", "hyperv_clocksource_tsc_page"),
    "nitro": ("Amazon EC2", "c5n.18xlarge", "kvm-clock"),
    "gce": ("Google", "Google Compute Engine", "kvm-clock"),
}
PCI_IDS = {"mlx5_core": "15B3:101B", "cxi_core": "17DB:0501", "efa": "1D0F:EFA1", "irdma": "8086:1452"}
#: What all nodes print.
EVERY_NODE = """/proc/sys/kernel/osrelease:5.14.0-427.42.1.el9_4.x86_64
/proc/cmdline:BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro
/proc/meminfo:SwapTotal:             0 kB
/proc/self/limits:Max locked memory         unlimited            unlimited            bytes
/sys/kernel/mm/transparent_hugepage/enabled:[always] madvise never
"""


@cache
def read(name: str) -> dict[str, Any]:
    """Return a description, or the processors."""
    return YAML(typ="safe").load(CENTRES / f"{name}.yaml")


def write(name: str, directory: Path) -> None:
    """Write the files that `replay` reads into a directory that does not exist yet."""
    description = read(name)
    directory.mkdir(parents=True)
    for side in ("native", "virtual"):
        (directory.parent / f"look.{side}").write_text(EVERY_NODE, "utf-8")
    files = {
        "nodes.txt": "\n".join(map(_describe_nodes, description["nodes"])),
        "demands.txt": "\n".join(
            f"--{demand['needs']}|{demand['says']}" for demand in description.get("demands", ())
        ),
    }
    for machine in description["machines"]:
        files[f"look.{machine}"] = "\n".join(_render(_read_machine(description["machines"], machine)))
    for partition, settings in description["partitions"].items():
        files[f"partition.{partition}.txt"] = _describe_partition(partition, settings, description["nodes"])
    # What `sacctmgr` and `scontrol show config` print, where a centre publishes limits of its QOS.
    files |= description.get("printed", {})
    for key in ("Hidden", "Default"):
        names = (name for name, settings in description["partitions"].items() if settings.get(key) == "YES")
        files[key.lower()] = " ".join(names)
    for file, text in files.items():
        (directory / file).write_text(text + "\n", "utf-8")


def _describe_nodes(group: Mapping[str, Any]) -> str:
    """Return a line of nodes.txt."""
    threads, reserved = group.get("ThreadsPerCore", 1), group.get("CoreSpecCount", 0)
    cpus = group.get("CPUs", group["Sockets"] * group["CoresPerSocket"] * threads)
    fields = {
        "Arch": group.get("Arch", "x86_64"),
        "CPUEfctv": cpus - reserved * threads,
        "ThreadsPerCore": threads,
        "ActiveFeatures": group.get("Features", "(null)"),
        **{key: group[key] for key in ("CoreSpecCount", "CPUSpecList", "MemSpecLimit") if key in group},
        "Look": group["machine"],
    }
    columns = (group["names"], cpus, group["Sockets"], group["CoresPerSocket"], group.get("RealMemory", 1))
    more = " ".join(f"{key}={value}" for key, value in fields.items())
    return "|".join(map(str, (*columns, group.get("State", "idle"), "none", group["partitions"], more)))


def _describe_partition(name: str, settings: Mapping[str, str], groups: Sequence[Mapping[str, Any]]) -> str:
    """Return what `scontrol -o show partition` prints, in the form of Slurm 23.02, shortened."""
    nodes = ",".join(group["names"] for group in groups if name in group["partitions"].split(","))
    stated = {
        "AllowGroups": "ALL",
        **({} if "DenyAccounts" in settings else {"AllowAccounts": "ALL"}),
        **{"AllowQos": "ALL", "AllocNodes": "ALL", "Default": "NO", "QoS": "N/A", "DefaultTime": "NONE"},
        **{"Hidden": "NO", "MaxNodes": "UNLIMITED", "MaxTime": "UNLIMITED", "MinNodes": 0, "LLN": "NO"},
        **{"MaxCPUsPerNode": "UNLIMITED", "MaxCPUsPerSocket": "UNLIMITED", "Nodes": nodes},
        **{"RootOnly": "NO", "ReqResv": "NO", "OverSubscribe": "EXCLUSIVE", "PreemptMode": "OFF"},
        **{"State": "UP", "DefMemPerNode": "UNLIMITED", "MaxMemPerNode": "UNLIMITED"},
    }
    words = (f"{key}={value}" for key, value in (stated | dict(settings)).items())
    return f"PartitionName={name} {' '.join(words)}"


def _read_machine(machines: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a machine with the facts of the machine that it is like, and of its processor."""
    own = dict(machines[name])
    if "like" in own:
        return _read_machine(machines, own.pop("like")) | own
    return read("processors")[own["processor"]] | own


def _render(machine: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a look, but for those that `replay` makes of sockets, cores and threads."""
    sockets, cores, threads = machine["sockets"], machine["cores"], machine.get("threads", 1)
    yield f"cpus {sockets}x{cores}x{threads}"
    hypervisor, on_x86 = machine.get("hypervisor"), "flags" in machine["cpuinfo"]
    vendor, product, clock = FIRMWARE[hypervisor]
    vendor, product = machine.get("product", (vendor, product))
    guest = " hypervisor" if hypervisor and on_x86 else ""
    yield "/proc/cpuinfo:processor\t: 0"
    for key, value in machine["cpuinfo"].items():
        yield f"/proc/cpuinfo:{key}\t: {value}{guest if key == 'flags' else ''}"
    # The kernel keeps some of the memory.
    yield f"/proc/meminfo:MemTotal:       {int(machine['memory_gib'] * 2**20 * 0.985)} kB"
    yield from (f"{DMI}/sys_vendor:{vendor}", f"{DMI}/product_name:{product}")
    for name in ("current", "available"):
        yield f"{CLOCK}/{name}_clocksource:{clock if on_x86 else 'arch_sys_counter'}"
    yield f"-{CPU}/cpu0/cache/index3"
    for index, level in enumerate(machine["caches"]):
        yield from (
            f"{CPU}/cpu0/cache/index{index}/{name}:{level[name]}" for name in ("level", "type", "size")
        )
        shared = _number_cpus(0, level.get("cores", 1), sockets * cores, threads)
        yield f"{CPU}/cpu0/cache/index{index}/shared_cpu_list:{shared}"
    count = machine.get("numa", sockets)
    for node in range(count):
        size, near = sockets * cores // count, count // sockets
        yield f"{NODE}/node{node}/cpulist:{_number_cpus(node * size, size, sockets * cores, threads)}"
        distances = (10 if n == node else 12 if n // near == node // near else 32 for n in range(count))
        yield f"{NODE}/node{node}/distance:{' '.join(map(str, distances))}"
    for number, adapter in enumerate(machine.get("nics", ())):
        yield from _render_adapter(adapter, number)


def _number_cpus(first: int, count: int, cores: int, threads: int) -> str:
    """Return the CPUs of some cores; Linux numbers the second threads of all cores last."""
    begins = (first + cores * thread for thread in range(threads))
    return ",".join(f"{begin}-{begin + count - 1}" if count > 1 else str(begin) for begin in begins)


def _render_adapter(adapter: Mapping[str, Any], number: int) -> Iterator[str]:
    driver = adapter.get("driver", "mlx5_core")
    device = {"numa_node": ["0"], "uevent": [f"DRIVER={driver}", f"PCI_ID={PCI_IDS[driver]}"]}
    if net := adapter.get("net"):
        yield f"/sys/class/net/{net}/mtu:{adapter.get('mtu', 9000)}"
        yield f"/sys/class/net/{net}/speed:{adapter['gbit'] * 1000}"
    if name := adapter.get("name"):
        base = f"/sys/class/infiniband/{name}"
        yield f"{base}/fw_ver:{adapter.get('firmware', '20.35.1012')}"
        yield f"{base}/board_id:MT_0000000{number:03}"
        yield f"{base}/hca_type:{adapter.get('type', 'MT4123')}"
        yield f"{base}/ports/1/state:4: ACTIVE"
        yield f"{base}/ports/1/rate:{adapter.get('rate', str(adapter['gbit']) + ' Gb/sec (4X HDR)')}"
        yield f"{base}/ports/1/link_layer:{adapter.get('layer', 'InfiniBand')}"
    for kind, key in (("net", "net"), ("infiniband", "name")):
        for file, contents in device.items() if key in adapter else ():
            yield from (f"/sys/class/{kind}/{adapter[key]}/device/{file}:{content}" for content in contents)
