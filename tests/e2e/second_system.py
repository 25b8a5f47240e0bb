"""The system file of tests/e2e/second-slurm: one node in two partitions, like against like."""

import os
from pathlib import Path

NODE = {
    "nodes": 1,
    "memory_mib": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20,
    "llc_bytes": int(
        Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text(encoding="utf-8").strip("K\n")
    )
    * 1024,
    "scale": "small",
    "own_scheduler": True,
}


def partition(name, feature, **extras):
    return {
        "name": name,
        "scheduler": "slurm",
        "launcher": "srun",
        "access": [f"--partition={name}", "--licenses=machine:1"],
        "features": [feature],
        "processor": {"num_cpus": os.cpu_count(), "num_cpus_per_core": 1, "num_sockets": 1},
        "extras": {**NODE, **extras},
    }


system = {
    "name": "second",
    "descr": "a Slurm cluster that vcluster did not make",
    "hostnames": ["lonely"],
    "prefix": os.environ["SECOND_PREFIX"],
    "modules_system": "nomod",
    "partitions": [
        partition("bare", "native"),
        partition(
            "cloud",
            "virtual",
            hypervisor={"vendor": "none", "build": "like against like", "accelerator": "kvm"},
            hypervisor_class="kvm",
            nodes_of_hosts={"lonely": ["lonely"]},
        ),
    ],
}
