"""The machine below the cluster."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from vcluster.state import ClusterHost
from vcluster.topology import last_level_cache_bytes


def describe(cpuinfo: Path = Path("/proc/cpuinfo"), meminfo: Path = Path("/proc/meminfo")) -> ClusterHost:
    """Describe the host from what its kernel says."""
    models: list[str] = []
    cores: set[tuple[str, str]] = set()
    sockets: set[str] = set()
    count = 0
    for block in cpuinfo.read_text(encoding="utf-8").strip().split("\n\n"):
        fields = {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in block.splitlines())
        }
        if "processor" not in fields:
            continue
        count += 1
        models.append(fields.get("model name", "unknown"))
        socket = fields.get("physical id", "0")
        sockets.add(socket)
        cores.add((socket, fields.get("core id", str(count))))
    memory = next(
        (
            int(line.split()[1]) // 1024
            for line in meminfo.read_text(encoding="utf-8").splitlines()
            if line.startswith("MemTotal")
        ),
        0,
    )
    return ClusterHost(
        kernel=platform.release(),
        cpu_model=models[0] if models else "unknown",
        cpus=count or os.cpu_count() or 1,
        cpus_per_core=max(1, count // max(1, len(cores))),
        sockets=max(1, len(sockets)),
        memory_mib=memory,
        llc_bytes=last_level_cache_bytes(),
    )


def available_mib(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return the memory that programs may still take, in MiB."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(encoding="utf-8"), re.MULTILINE)
    return int(match[1]) // 1024 if match else 0
