"""The rehearsed centre's system file, as a site would write it, with the numbers of the centre's shape."""

import os
from pathlib import Path

import yaml

ROOM = Path(os.environ["CENTRE"])
SHAPE = yaml.safe_load((ROOM / "etc/shape.yaml").read_text(encoding="utf-8"))
HARDWARE = {
    "nodes": SHAPE["nodes"]["native"],
    "memory_mib": SHAPE["memory_mib"],
    "numa_nodes": SHAPE["sockets"],
    "llc_bytes": SHAPE["sockets"] * 2**25,
    "scale": "standard",
    # Programs sleep for a second where real ones would compute for a minute: each is started once.
    "run_seconds": 0.0,
}
LIMIT = os.environ.get("CENTRE_TIME_LIMIT")
WHO = os.environ.get("CENTRE_WHO", "--account=performance --qos=qualification").split()
ACCESS = ["--time=8:00:00", *WHO, *os.environ.get("CENTRE_ACCESS", "").split()]
# Where a site forbids long jobs, each run is a job of its own.
HELD = os.environ.get("CENTRE_HELD", "yes") == "yes"
# A command that brings what the hosts say into a directory; without it the system file states the build.
ASKED = os.environ.get("CENTRE_HOSTS")
BUILD = {} if ASKED else {"build": "8.2.0"}
HOSTS = {"host": ASKED, "ask_hosts": [f"{ASKED}/ask"]} if ASKED else {}


def partition(name, side, **extras):
    """Return one of the two partitions that are compared."""
    return {
        "name": name,
        "scheduler": os.environ.get("CENTRE_SCHEDULER", "squeue"),
        "launcher": "srun",
        "access": [f"--partition={name}", *ACCESS],
        **({"time_limit": LIMIT} if LIMIT else {}),
        "features": [side],
        "processor": {
            "num_cpus": SHAPE["cores"],
            "num_cpus_per_core": 1,
            "num_cpus_per_socket": SHAPE["cores"] // SHAPE["sockets"],
            "num_sockets": SHAPE["sockets"],
        },
        "extras": {
            **HARDWARE,
            **({"session_access": [f"--partition={name}", *ACCESS]} if HELD else {}),
            **extras,
        },
    }


system = {
    "name": "centre",
    "descr": "a centre that is rehearsed on one machine",
    "hostnames": ["^login$"],
    "prefix": str(ROOM / "reframe"),
    "modules_system": "nomod",
    "partitions": [
        partition("bare", "native"),
        partition(
            "vm",
            "virtual",
            hypervisor={"vendor": "KVM", "accelerator": "kvm", **BUILD},
            hypervisor_class="kvm",
            **HOSTS,
            # One VM on each of as many hosts that are no nodes.
            nodes_of_hosts={f"host{k}": [f"vm{k}"] for k in range(1, SHAPE["nodes"]["virtual"] + 1)},
        ),
    ],
}
