"""A worked example: a site with bare-metal nodes and VMs of the build under qualification.

It is not read, since its name begins with `_`; docs/system-file.md says what each key means.  Both
partitions state the same hardware; only what virtualisation changes differs.
"""

PROCESSOR = {
    "arch": "x86_64",
    "num_cpus": 64,
    "num_cpus_per_core": 1,  # SMT is off on both sides
    "num_sockets": 2,
}
# The same on both sides, but for the names of adapters.
ENVIRONMENT = [
    # OpenBLAS's kernel.  AMD without AVX-512 (Zen 2, Zen 3): Zen.
    ["OPENBLAS_CORETYPE", "SkylakeX"],
    ["UCX_NET_DEVICES", "mlx5_0:1"],
]
HARDWARE = {
    "nodes": 8,  # how many nodes a check may use
    "memory_mib": 512 * 1024,
    "numa_nodes": 2,
    "llc_bytes": 2 * 48 * 2**20,  # both sockets' last-level caches
    "scale": "standard",
    "rdma_options": ["-d", "mlx5_0"],
    "link_gbit": 100,  # EDR: a port at less is refused, also where both sides have less
}

system = {
    "name": "example",
    "descr": "worked example, exists on paper only",
    "hostnames": [r"login\d+\.example\.org"],
    "prefix": "/scratch/virtqual-$USER",  # stage and output: seen by every node at this path
    "modules_system": "lmod",  # for programs that modules load; "nomod" without modules
    "partitions": [
        {
            "name": "bare",
            "descr": "bare metal",
            "scheduler": "slurm",
            "launcher": "srun",
            "access": ["--partition=bare", "--account=hpcops"],
            "features": ["native", "rdma"],
            "processor": PROCESSOR,
            "env_vars": ENVIRONMENT,
            "extras": {
                **HARDWARE,
                # One job for a whole session, on all its nodes.
                "session_access": ["--partition=bare", "--account=hpcops", "--time=8:00:00"],
            },
        },
        {
            "name": "vm",
            "descr": "one VM a host, all cores, SR-IOV network adapter",
            "scheduler": "slurm",
            "launcher": "srun",
            "access": ["--partition=vm", "--account=hpcops"],
            "features": ["virtual", "rdma"],
            "processor": PROCESSOR,
            "env_vars": ENVIRONMENT,
            "extras": {
                **HARDWARE,
                "memory_mib": 480 * 1024,
                "hypervisor": {
                    "vendor": "VMware ESXi",
                    "build": "8.0.3-24022510",  # the exact build: results are keyed by it
                    "accelerator": "esxi",
                    "machine": "vmx-21",
                },
                "hypervisor_class": "esxi",
                "guest": {"kernel": "5.14.0-427", "vcpus": 64},
                "session_access": ["--partition=vm", "--account=hpcops", "--time=8:00:00"],
                # On which machine each VM is; a machine that is a native node, too, has that node's name.
                "nodes_of_hosts": {f"esx{host:02}": [f"vm{host:02}"] for host in range(1, 9)},
            },
        },
    ],
}
