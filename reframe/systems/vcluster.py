"""The one-machine cluster that comes with the project, as its state file describes it."""

import os
from pathlib import Path

from vcluster.directory import StateDirectory
from vcluster.errors import StateError
from vcluster.slurm_conf import LICENCE
from vcluster.state import load_state
from virtqual.errors import InfrastructureError

ENVIRONMENT = [
    # MPICH sends messages between nodes over TCP on the cluster's bridge.
    ["MPIR_CVAR_CH4_NETMOD", "ofi"],
    ["FI_PROVIDER", "tcp"],
    # UCX takes native nodes, which share one kernel, for one node, unless it uses TCP inside a node, too.
    ["UCX_TLS", "tcp,self"],
]
# The parameters of KVM that change speed most.
KVM_PARAMETERS = {"npt", "ept", "halt_poll_ns", "avic"}


def read_state():
    """Return the state of the cluster that is up, or None."""
    file = StateDirectory.default().state_file
    if not file.exists():
        return None
    try:
        state = load_state(file)
    except StateError as error:
        raise InfrastructureError(f"{str(error).rstrip('.')} (run `vcluster up`)") from None
    return state if state.status == "up" else None


def describe_partition(state, side, extras):
    """Return one partition for ReFrame."""
    partition = getattr(state.partitions, side)
    description = {"native": state.host.cpu_model, "virtual": f"{state.guest.vcpus} vCPUs, {state.guest.cpu}"}
    # OpenBLAS would choose by CPUID: both sides take the same.  Emulation runs SSE faster than AVX2.
    coretype = "Haswell" if hypervisor_class(state) == "kvm" else "Nehalem"
    return {
        "name": side,
        "descr": description[side],
        "scheduler": "slurm",
        "launcher": "srun",
        # Both sides share one machine: the licence keeps them from running at the same time.
        "access": [f"--partition={side}", f"--licenses={LICENCE}"],
        "max_jobs": 1,
        "features": [side, "rdma"] if partition.rdma else [side],
        "processor": {
            "arch": os.uname().machine,
            "num_cpus": partition.cpus_per_node,
            "num_cpus_per_core": 1,
            "num_sockets": 1,
        },
        "env_vars": [*ENVIRONMENT, ["OPENBLAS_CORETYPE", coretype]],
        "extras": {**describe_hardware(state, side), **extras},
    }


def describe_hardware(state, side):
    """Return the extras that both partitions have."""
    partition = getattr(state.partitions, side)
    extras = {
        "nodes": len(partition.nodes),
        "memory_mib": partition.memory_mib,
        "llc_bytes": state.host.llc_bytes,
        "scale": "small",
        "own_scheduler": True,
        # It has no epilog.
        "timeouts": {"completing": 120},
        # Every node mounts it from this machine.
        "shared_scratch": str(state.shared),
        # Nothing else runs there: a node that is not free soon will not be.
        "wait_hours": 0.25,
        # A session holds both sides at once and runs one case at a time: it needs no licence.
        "session_access": [f"--partition={side}"],
        "nodes_of_hosts": {host.name: list(getattr(host, side)) for host in state.hosts},
    }
    if state.hypervisor.accelerator == "tcg":
        # One start a run: repetitions on emulated processors would last half a minute.
        extras["run_seconds"] = 0
    if partition.scratch:
        extras["scratch"] = str(partition.scratch)
    if partition.rdma:
        # VMs that wait for a CPU lose packets.  With -u 12 they are sent again after 17 ms instead of 67.
        extras["rdma_options"] = ["-d", partition.rdma, "-u", "12"]
    return extras


def hypervisor_class(state):
    """Return the name of the class whose budgets hold."""
    if has_emulated_hosts(state):
        return "kvm-on-emulated-hosts"
    return "emulated" if state.hypervisor.accelerator == "tcg" else "kvm"


def has_emulated_hosts(state):
    """Return whether the hosts of the VMs are emulated machines, and the VMs guests of their KVM."""
    return any(host.emulator for host in state.hosts)


def describe_hypervisor(state):
    """Return the build of the hypervisor, and the settings that belong to it."""
    qemu = state.hypervisor
    parameters = {parameter for host in state.hosts for parameter in host.kvm.items()}
    names = KVM_PARAMETERS | set(state.options.kvm)
    emulators = {host.emulator for host in state.hosts if host.emulator}
    disk = {"disk_cache": state.options.disk_cache.value} if state.partitions.virtual.scratch else {}
    return {
        "vendor": qemu.vendor,
        "build": qemu.build,
        "accelerator": qemu.accelerator,
        "machine": qemu.machine,
        "details": {
            "sha256": qemu.sha256,
            "arguments": list(qemu.arguments),
            "adapter": qemu.adapter,
            "kvm": sorted(f"{name}={value}" for name, value in parameters if name.partition(".")[2] in names),
            "hosts_emulated_by": sorted(
                f"QEMU {qemu.build}, sha256 {qemu.sha256[:12]}" for qemu in emulators
            ),
            **disk,
        },
    }


def describe_host(state):
    """Return the facts of the VMs' host (docs/preflight.md)."""
    # QEMU emulates machines of one NUMA node.
    numa_nodes = 1
    if not has_emulated_hosts(state):
        numa_nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1
    return {
        "source": "the cluster's state file",
        "build": state.hypervisor.build,
        "kernel": state.guest.kernel if has_emulated_hosts(state) else state.host.kernel,
        "smt": "on" if state.host.cpus_per_core > 1 else "off",
        "numa_nodes": numa_nodes,
        "vcpus": state.guest.vcpus,
        "memory_mib": state.guest.memory_mib,
        "cpu_mode": state.guest.cpu,
        "vcpus_pinned": state.options.pin,
        "memory_pinned": False,
        "other_vms": 0,
    }


def describe_system(state):
    """Return the system for ReFrame."""
    qemu = state.hypervisor
    virtual_extras = {
        "hypervisor": describe_hypervisor(state),
        "host": describe_host(state),
        "hypervisor_class": hypervisor_class(state),
        "guest": state.guest.model_dump(),
        "recreate_vms": ["vcluster", "boot-vms-anew"],
    }
    return {
        "name": "vcluster",
        "descr": f"one-machine cluster, {qemu.vendor} {qemu.build} ({qemu.accelerator})",
        "hostnames": ["$^"],
        "prefix": f"{state.shared}/reframe",
        "modules_system": "nomod",
        "partitions": [
            describe_partition(state, "native", {}),
            describe_partition(state, "virtual", virtual_extras),
        ],
    }


STATE = read_state()
# A text instead of a system is the reason for which there is none at the moment.
system = describe_system(STATE) if STATE else "the one-machine cluster is not up: run `vcluster up`"
