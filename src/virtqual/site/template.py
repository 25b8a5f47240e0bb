"""The text of a system file in which all values are left to people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from virtqual.site.draft import SESSION_MINUTES, choose_names
from virtqual.site.options import format_minutes, parse_options
from virtqual.verdict.pairs import SIDES

_TEMPLATE = """\"\"\"System {name}, a template of `virtqual system init`: docs/system-file.md has every key.

`virtqual system check {name}` names what is missing. Without --offline `init` asks Slurm for most of it.
\"\"\"

system = {{
    "name": "{name}",
    # The login node, as `hostname -s` prints it; "$^" is for no machine: name the system by --system then.
    "hostnames": ["$^"],
    "prefix": "TODO: a directory that all nodes of both partitions see at the same path",
    # lmod or envmod if the programs are in modules.
    "modules_system": "nomod",
    "partitions": [{partitions}
    ],
}}
"""
_TEMPLATE_PARTITION = """
        {{
            "name": "{name}",
            # squeue if there is no sacct.
            "scheduler": "slurm",
            "launcher": "srun",
            # Options of sbatch: --partition, --account, --qos, --constraint, --reservation, --exclude ...
            "access": {access},
            # "rdma", too, if the nodes have it, with extras.rdma_options and extras.link_gbit.
            "features": ["{side}"],
            # sinfo -N -o '%N %c %X %Y %m' shows CPUs, sockets, cores of a socket, memory. Jobs may get less:
            # CPUEfctv and MemSpecLimit of scontrol show node.
            "processor": {{
                "arch": "x86_64",
                "num_cpus": "TODO: the CPUs that jobs get of a node, with hardware threads",
                "num_cpus_per_core": "TODO: the hardware threads of a core that jobs get",
                "num_sockets": "TODO: the sockets of a node",
            }},
            "extras": {{
                "nodes": "TODO: how many nodes a check may use",
                "memory_mib": "TODO: memory of a node that a check may use, MiB: 9/10 of what jobs get",
                "llc_bytes": "TODO: all last-level caches of a node together, bytes (lscpu on bare metal)",
                # small for nodes of fewer than 8 cores.
                "scale": "standard",
                "numa_nodes": "TODO: the NUMA nodes of a node (lscpu)",
                # One job for a whole session: its --time must be within the limits of partition and QOS.
                "session_access": {session_access},{hypervisor}
            }},
        }},"""
_TEMPLATE_HYPERVISOR = """
                "hypervisor": {
                    "vendor": "TODO: the hypervisor, such as VMware ESXi or KVM",
                    "build": "TODO: its exact build, such as 8.0.3-24022510; results are kept by it",
                    "accelerator": "TODO: kvm, esxi, xen, hyperv or tcg",
                },
                "hypervisor_class": "TODO: the class of budgets: kvm, esxi, or production, which is stricter",
                "nodes_of_hosts": "TODO: the host of each VM, {'host01': ['vm1'], ...}; no key if unknown","""


def compose_template(name: str, options: Mapping[str, Sequence[str]]) -> str:
    """Return the text of a system file that states the options of Slurm of each side, and nothing else."""
    in_slurm = [parse_options(options[side]).get("--partition", "") for side in SIDES]
    names = choose_names(in_slurm)
    partitions = [
        _TEMPLATE_PARTITION.format(
            name=names[side],
            side=side,
            access=json.dumps(list(options[side])),
            session_access=json.dumps([*options[side], f"--time={format_minutes(SESSION_MINUTES)}"]),
            hypervisor=_TEMPLATE_HYPERVISOR if side == "virtual" else "",
        )
        for side in SIDES
    ]
    return _TEMPLATE.format(name=name, partitions="".join(partitions))
