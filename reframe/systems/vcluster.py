"""The one-machine cluster that comes with the project; its state file says everything about it."""

import os
from pathlib import Path

from vcluster.directory import StateDirectory
from vcluster.errors import StateError
from vcluster.state import load_state
from virtqual.errors import InfrastructureError


def read_state():
    """Return the running cluster's state, or None when there is none."""
    file = StateDirectory.default().state_file
    if not file.exists():
        return None
    try:
        state = load_state(file).model_dump(mode="json", by_alias=True)
    except StateError as error:
        raise InfrastructureError(f"{str(error).rstrip('.')} (run `vcluster up`)") from None
    return state if state["status"] == "up" else None


def on_emulated_hosts(state):
    """Return whether the hosts of the VMs are emulated machines, and the VMs guests of their KVM."""
    return any(host["emulator"] for host in state["hosts"])


def emulates(state):
    """Return whether QEMU emulates the processors that programs run on."""
    return state["hypervisor"]["accelerator"] == "tcg" or on_emulated_hosts(state)


def hypervisor_class(state):
    """Return the class whose budgets hold."""
    if on_emulated_hosts(state):
        return "kvm-on-emulated-hosts"
    return "emulated" if emulates(state) else "kvm"


def kvm_of(state):
    """Return those of KVM's parameters that were asked for, or that change speed most."""
    parameters = {"npt", "ept", "halt_poll_ns", "avic", *state["options"]["kvm"]}
    return sorted(
        {
            f"{name}={value}"
            for host in state["hosts"]
            for name, value in host["kvm"].items()
            if name.partition(".")[2] in parameters
        }
    )


def partition(state, side, **extras):
    """Return one partition as the state file describes it."""
    facts, host, guest = state["partitions"][side], state["host"], state["guest"]
    cpus = facts["cpus_per_node"]
    # OpenBLAS chooses its kernel by CPUID; one for both sides.  Emulation runs SSE far faster than AVX2.
    kernel = "Nehalem" if emulates(state) else "Haswell"
    return {
        "name": side,
        "descr": {"native": host["cpu_model"], "virtual": f"{guest['vcpus']} vCPUs, {guest['cpu']}"}[side],
        "scheduler": "slurm",
        "launcher": "srun",
        # Both sides share one machine: the licence keeps them from running at the same time.
        "access": [f"--partition={side}", f"--licenses={state['slurm']['licence']}"],
        "max_jobs": 1,
        "features": [side, *(["rdma"] if facts.get("rdma") else [])],
        "processor": {
            "arch": os.uname().machine,
            "num_cpus": cpus,
            "num_cpus_per_core": 1,
            "num_cpus_per_socket": cpus,
            "num_sockets": 1,
        },
        "env_vars": [
            # MPICH between nodes: plain TCP over the cluster's bridge.
            ["MPIR_CVAR_CH4_NETMOD", "ofi"],
            ["FI_PROVIDER", "tcp"],
            # The same over UCX, which would take the native nodes, that share one kernel, for one.
            ["UCX_TLS", "tcp,self"],
            ["OPENBLAS_CORETYPE", kernel],
        ],
        "extras": {
            "nodes": len(facts["nodes"]),
            "memory_mib": facts["memory_mib"],
            "llc_bytes": host["llc_bytes"],
            "scale": "small",
            "own_scheduler": True,
            # Both sides at once, without the licence: a session itself runs one case at a time.
            "session_access": [f"--partition={side}"],
            # One start a run where the processors of VMs are emulated: repetitions would last half a minute.
            **({"run_seconds": 0} if state["hypervisor"]["accelerator"] == "tcg" else {}),
            "nodes_of_hosts": {host["name"]: host[side] for host in state["hosts"]},
            # -u: VMs that wait for a CPU lose packets, which are sent again after 17 ms instead of 67.
            **({"rdma_options": ["-d", facts["rdma"], "-u", "12"]} if facts.get("rdma") else {}),
            **extras,
        },
    }


def emulators(state):
    """Return the build of each QEMU that emulates hosts, with the begin of its checksum."""
    builds = [host["emulator"] for host in state["hosts"] if host["emulator"]]
    return sorted({f"QEMU {qemu['build']}, sha256 {qemu['sha256'][:12]}" for qemu in builds})


def numa_nodes(state):
    """Return how many NUMA nodes a host of VMs has; QEMU makes machines of one."""
    if on_emulated_hosts(state):
        return 1
    return len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1


def host(state):
    """Return what the host of the VMs says of itself and of each of them (docs/preflight.md)."""
    machine, guest = state["host"], state["guest"]
    return {
        "source": "the cluster's state file",
        "kernel": guest["kernel"] if on_emulated_hosts(state) else machine["kernel"],
        "smt": "on" if machine["cpus_per_core"] > 1 else "off",
        "numa_nodes": numa_nodes(state),
        "vcpus": guest["vcpus"],
        "memory_mib": guest["memory_mib"],
        "cpu_mode": guest["cpu"],
        "vcpus_pinned": state["options"]["pin"],
        "memory_pinned": False,
        "other_vms": 0,
    }


def running(state):
    """Return the system while the cluster is up."""
    qemu = state["hypervisor"]
    hypervisor = {
        "vendor": qemu["vendor"],
        "build": qemu["build"],
        "accelerator": qemu["accelerator"],
        "machine": qemu["machine"],
        "details": {
            "sha256": qemu["sha256"],
            "arguments": qemu["arguments"],
            "adapter": qemu["adapter"],
            "kvm": kvm_of(state),
            "hosts_emulated_by": emulators(state),
        },
    }
    virtual = {
        "hypervisor": hypervisor,
        "host": host(state),
        "hypervisor_class": hypervisor_class(state),
        "guest": state["guest"],
        "recreate_vms": ["vcluster", "boot-vms-anew"],
    }
    return {
        "name": "vcluster",
        "descr": f"one-machine cluster, {qemu['vendor']} {qemu['build']} ({qemu['accelerator']})",
        "hostnames": ["$^"],
        "prefix": f"{state['shared']}/reframe",
        "modules_system": "nomod",
        "partitions": [partition(state, "native"), partition(state, "virtual", **virtual)],
    }


STATE_NOW = read_state()
# None: not a system at the moment, and the reason.
system = running(STATE_NOW) if STATE_NOW else "the one-machine cluster is not up: run `vcluster up`"
