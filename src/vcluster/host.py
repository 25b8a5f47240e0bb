"""The machine that the cluster runs on."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from vcluster.state import ClusterHost


def describe_host() -> ClusterHost:
    """Describe this machine from what its kernel says."""
    processors = []
    for block in Path("/proc/cpuinfo").read_text(encoding="utf-8").strip().split("\n\n"):
        lines = (line.partition(":") for line in block.splitlines())
        processors.append({key.strip(): value.strip() for key, _, value in lines})
    cores = {(cpu.get("physical id"), cpu.get("core id", cpu["processor"])) for cpu in processors}
    return ClusterHost(
        kernel=platform.release(),
        cpu_model=processors[0].get("model name", "unknown"),
        cpus_per_core=len(processors) // len(cores),
        memory_mib=read_memory_mib("MemTotal"),
        llc_bytes=measure_last_level_caches(),
    )


def list_cpus() -> list[int]:
    """Return the CPUs that this process may run on."""
    return sorted(os.sched_getaffinity(0))


def read_memory_mib(key: str) -> int:
    """Return a value of ``/proc/meminfo``, such as ``MemAvailable``, in MiB."""
    text = Path("/proc/meminfo").read_text(encoding="utf-8")
    match = re.search(rf"^{key}:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) // 1024 if match else 0


def measure_last_level_caches(root: Path = Path("/sys/devices/system/cpu")) -> int:
    """Return the size of all last-level caches together in bytes, 0 if the kernel does not say."""
    sizes: dict[tuple[int, str], int] = {}
    for index in root.glob("cpu[0-9]*/cache/index[0-9]*"):
        try:
            if (index / "type").read_text(encoding="utf-8").strip() == "Instruction":
                continue
            level = int((index / "level").read_text(encoding="utf-8"))
            size = (index / "size").read_text(encoding="utf-8").strip()
            sharing_cpus = (index / "shared_cpu_list").read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            continue
        factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1:], 1)
        sizes[level, sharing_cpus] = int(size.rstrip("KMG")) * factor
    last_level = max((level for level, _ in sizes), default=0)
    return sum(size for (level, _), size in sizes.items() if level == last_level)
