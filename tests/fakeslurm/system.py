"""A site of two partitions that exist only in the tests' stand-in for Slurm."""

import json
import os
import socket

SCALE = os.environ.get("FAKE_SCALE", "standard")
EMULATED = os.environ.get("FAKE_EMULATED")
TIME_LIMIT = os.environ.get("FAKE_TIME_LIMIT")
NODES = int(os.environ.get("FAKE_NODES", "1"))
# Both partitions are this machine, by its name; several nodes have names of their own (bin/srun).
HOSTS = {f"bare-{k}": [f"cloud-{k}"] for k in range(1, NODES + 1)}
if "FAKE_NODES" not in os.environ:
    HOSTS = {socket.gethostname(): [socket.gethostname()]}


def partition(name, **extras):
    return {
        "name": name,
        "scheduler": os.environ.get("FAKE_SCHEDULER", "slurm"),
        "launcher": "srun",
        "access": [f"--partition={name}", *os.environ.get("FAKE_ACCESS", "").split()],
        **({"time_limit": TIME_LIMIT} if TIME_LIMIT else {}),
        "features": [
            {"bare": "native", "cloud": "virtual"}[name],
            *os.environ.get(f"FAKE_FEATURES_{name}", "").split(),
        ],
        "processor": {
            "num_cpus": int(os.environ.get(f"FAKE_CPUS_{name}", os.cpu_count())),
            "num_cpus_per_core": int(os.environ.get(f"FAKE_SMT_{name}", os.environ.get("FAKE_SMT", "1"))),
            "num_sockets": 1,
        },
        "extras": {
            "nodes": NODES,
            "memory_mib": 4096,
            "llc_bytes": 2**25,
            "scale": SCALE,
            "rdma_options": ["-d", "mlx5_0"],
            "own_scheduler": True,
            # Stand-ins take no time: started once, unless a test is about repetitions.
            "run_seconds": float(os.environ.get("FAKE_RUN_SECONDS", "0")),
            "numa_nodes": int(os.environ.get("FAKE_NUMA", "1")),
            **extras,
            **json.loads(os.environ.get(f"FAKE_EXTRAS_{name}", "{}")),
        },
    }


system = {
    "name": "testsite",
    "descr": "a site that exists only in tests",
    "hostnames": ["$^"],
    "prefix": os.environ["FAKE_SLURM"] + "/reframe",
    "modules_system": os.environ.get("FAKE_MODULES_SYSTEM", "nomod"),
    "partitions": [
        partition("bare"),
        partition(
            "cloud",
            hypervisor={"vendor": "KVM", "build": "6.1.0", "accelerator": (EMULATED and "tcg") or "kvm"},
            nodes_of_hosts=HOSTS,
            hypervisor_class=os.environ.get("FAKE_CLASS", (EMULATED and "emulated") or "kvm"),
            host=json.loads(os.environ.get("FAKE_HOST", "{}")),
        ),
    ],
}
