"""Every rule finds the fault that it is there for, and nothing in a pair that matches."""

from collections import defaultdict
from typing import get_args

import pytest
from preflight_pairs import node, run
from pydantic import BaseModel

from virtqual import paths
from virtqual.files.datafile import parse
from virtqual.identity import Load, NotObservable, gather, readers
from virtqual.identity import host as hosts
from virtqual.preflight.compare import apply_rules, compare, compare_runs
from virtqual.preflight.rules import RULES
from virtqual.session import judge as judging
from virtqual.stack.manifest import ProcessorTarget, load_recipe

HOST = {"accelerator": "esxi", "numa_nodes": 2, "cpus_per_node": 4, "vcpus": 8, "smt": "on"}
ONE_NODE = {r"^/sys/devices/system/node/node1/.*\n": "", r"(node0/cpulist):.*": r"\1:0-7"}
# A VM of as many CPUs as a NUMA node of the host has.
SIZED_TO_ONE = {
    r"^/sys/devices/system/node/node1/.*\n": "",
    r"^/sys/devices/system/cpu/cpu[2367]/topology/.*\n": "",
    r"^(/sys/devices/system/cpu/online):.*": r"\1:0-1,4-5",
    r"(Cpus_allowed_list:\t)0-7": r"\g<1>0-1,4-5",
}
BOUND_TO_ONE = {r"(Cpus_allowed_list:\t)0-7": r"\g<1>0-1,4-5"}
NO_SMT = {r"(cpu(\d)/topology/thread_siblings_list):.*": r"\1:\2"}
FDR = {r"100 Gb/sec \(4X EDR\)": "56 Gb/sec (4X FDR)"}
NO_HCA = {r"^/sys/class/infiniband/.*\n": ""}
ON_ONE_CORE = {r"(Cpus_allowed_list:\t)0-7": r"\g<1>0"}
# Its CPUs are not in use.
THIRD_NODE = {r"^(/sys/devices/system/node/node)1(/cpulist):.*\n": r"\g<0>\g<1>2\2:8-11\n"}
KVM = {"VMware, Inc.": "QEMU", "tsc hpet": "tsc kvm-clock hpet"}
NO_TUNED = {r"^/etc/tuned/active_profile:.*\n": ""}
# By item: edits of the native node, of the guest, what the host says, and words of the reason.
CASES = {
    "hypervisor-stated": [
        ({}, KVM, HOST, "the guest shows the accelerator kvm, esxi01 says esxi"),
        ({}, {" hypervisor": ""}, HOST, "shows no hypervisor"),
    ],
    "native-is-virtual": [
        ({"flags\t\t:": "flags\t\t: hypervisor"}, {}, {}, "itself runs under a hypervisor")
    ],
    "native-is-emulated": [
        (
            {"flags\t\t:": "flags\t\t: hypervisor", "(model name\t:).*": r"\1 QEMU TCG CPU version 2.5+"},
            {},
            {},
            "is emulated in software (QEMU TCG CPU version 2.5+)",
        )
    ],
    "cpu-model": [
        (
            {},
            {"model\t\t: 85": "model\t\t: 79"},
            {},
            "the CPU is GenuineIntel 6-85-7 natively and GenuineIntel 6-79-7",
        )
    ],
    "cpu-features": [
        ({}, {" avx2 bmi2": ""}, {}, "the VM's CPU lacks avx2 bmi2"),
        ({" avx2": ""}, {}, {}, "has avx2, which the native CPU lacks"),
    ],
    "cpu-count": [
        ({}, {r"(Cpus_allowed_list:\t)0-7": r"\g<1>0-3"}, {}, "the number of usable CPUs is 8 natively and 4")
    ],
    "clock-source": [({}, {"(current_clocksource):tsc": r"\1:hpet"}, {}, "virtual reads the time from hpet")],
    "clock-differs": [
        (
            {},
            {"(current_clocksource):tsc": r"\1:kvm-clock"},
            {},
            "the clock source is tsc natively and kvm-clock",
        )
    ],
    "frequency": [
        ({":performance": ":powersave"}, {}, {}, "powersave natively, not performance"),
        ({}, {}, {"turbo": "off"}, "turbo is on natively and off in the VM"),
        ({}, {}, {"governor": "powersave"}, "the frequency governor is performance natively and powersave"),
    ],
    "mitigations": [({}, {"(meltdown):.*": r"\1:Mitigation: PTI"}, {}, "meltdown: 'Not affected' against")],
    "numa-hidden": [
        ({}, ONE_NODE, {}, "2 NUMA nodes natively, the VM shows 1"),
        (ONE_NODE, ONE_NODE, HOST, "one NUMA node of 8 CPUs, a node of its host has 4"),
        ({}, {}, {"numa_hidden": True}, "the VM shows 2, as native does"),
    ],
    "numa-spread": [({}, SIZED_TO_ONE, {}, "in 2 NUMA nodes natively and in 1 of a VM that hides none")],
    "numa-false": [
        (ONE_NODE, {}, {}, "1 NUMA nodes natively, the VM shows 2"),
        (
            {},
            {"(node0/cpulist):.*": r"\1:0-5", "(node1/cpulist):.*": r"\1:6-7"},
            {},
            "[4, 4] CPUs natively and",
        ),
        (
            {},
            {r"(index3/shared_cpu_list):.*": r"\1:0-7"},
            {},
            "one last-level cache spans the NUMA nodes 0, 1",
        ),
        (
            {"(node0/cpulist):.*": r"\1:0-2", "(node1/cpulist):.*": r"\1:3-7"},
            {"(node0/cpulist):.*": r"\1:0-1", "(node1/cpulist):.*": r"\1:2-7"},
            {},
            "[3, 5] CPUs natively and [2, 6] in the VM",
        ),
    ],
    "numa-interleaved": [
        (ONE_NODE, ONE_NODE, {}, "native shows 2 sockets but 1 NUMA node"),
        ({}, {}, {"node_interleaving": True}, "the system file says that memory is interleaved"),
    ],
    "smt": [
        ({}, NO_SMT, {}, "the number of threads in use of one core is 2 natively and 1 in the VM"),
        (NO_SMT, NO_SMT, HOST, "8 vCPUs as cores, its host 4 cores with hyperthreads"),
    ],
    "caches": [
        ({}, {"(index3/size):.*": r"\1:16384K"}, {}, "the last-level cache is 19712K natively and 16384K")
    ],
    "vm-size": [({}, ONE_NODE, HOST, "8 vCPUs in 1 NUMA node, a node of its host has 4")],
    "placement": [({}, {}, {"vcpus_pinned": False, "memory_pinned": True}, "vCPUs are not pinned")],
    "overcommit": [
        ({}, {}, {"memory_reserved": False}, "memory is not reserved"),
        ({}, {}, {"other_vms": 3}, "3 other VMs"),
        ({}, {}, {"vms_per_host": 2}, "of one host, 2 VMs have 8 cores together, their host 4"),
    ],
    "memory-pages": [
        (
            {},
            {r"\[always\] madvise": "always [madvise]"},
            {},
            "the mode of transparent huge pages is always natively and madvise",
        ),
        ({}, {}, {"memory_backing": "base pages"}, "backed by base pages"),
        ({}, {}, {"iommu_large_pages": False}, "4 KiB pages"),
    ],
    "nic-emulated": [({}, {"DRIVER=mlx5_core": "DRIVER=e1000", "15B3:1018": "8086:100F"}, {}, "emulated")],
    "mtu": [({}, {"(ib0/mtu):.*": r"\1:2044"}, {}, "the MTU of ib0 is 4092 natively and 2044")],
    "hca-missing": [({}, {r"^/sys/class/infiniband/.*\n": ""}, {}, "1 RDMA devices natively, 0 in the VM")],
    "link-rate": [
        ({}, {"4: ACTIVE": "2: INIT"}, {}, "4: ACTIVE natively and 2: INIT"),
        ({}, {"100 Gb/sec": "50 Gb/sec"}, {}, "100 Gbit/s natively and 50"),
        (FDR, FDR, {"link_gbit": 100}, "port of native has 56 Gbit/s, extras.link_gbit says 100"),
        (FDR, FDR, {"link_gbit": 100}, "port of virtual has 56 Gbit/s, extras.link_gbit says 100"),
        (NO_HCA, NO_HCA, {"link_gbit": 100}, "the VM has no active RDMA port"),
        ({"4: ACTIVE": "2: INIT"}, {}, {}, "RDMA ports are 2: INIT natively and 4: ACTIVE in the VM"),
    ],
    "pcie-link": [({r"(current_link_width):16": r"\1:8"}, {}, {}, "has the width 8, it could have 16")],
    "nic-rate": [({}, {"(ib0/speed):.*": r"\1:56000"}, {}, "100000 Mbit/s natively and 56000")],
    "hca-locality": [({r"numa_node:0": "numa_node:5"}, {}, {}, "native: mlx5_0 is on NUMA node 5")],
    "hca-firmware": [({}, {"16.35.3006": "16.28.1002"}, {}, "16.35.3006 natively and 16.28.1002")],
    "write-combining": [({}, {"GenuineIntel": "AuthenticAMD"}, {}, "write combining is Intel only")],
    "kernel": [
        ({}, {"5.14.0-427": "5.14.0-503"}, {}, "the kernel is 5.14.0-427.el9.x86_64 natively and 5.14.0-503")
    ],
    "command-line": [
        ({}, {"mitigations=auto": "mitigations=off idle=poll"}, {}, "idle=poll mitigations=off")
    ],
    "tuned-profile": [
        (
            {},
            {"hpc-compute": "virtual-guest"},
            {},
            "the tuned profile is hpc-compute natively and virtual-guest",
        ),
        (
            {},
            NO_TUNED,
            {},
            "the tuned profile is hpc-compute natively, none is seen in the VM (/etc/tuned/active_p",
        ),
        (NO_TUNED, {}, {}, "hpc-compute in the VM, none is seen natively"),
    ],
    "numa-balancing": [
        ({}, {"(numa_balancing):0": r"\1:1"}, {}, "numa_balancing is 0 natively and 1 in the VM")
    ],
    "locked-memory": [
        (
            {},
            {"memory         unlimited": "memory         65536"},
            {},
            "the limit of locked memory is unlimited natively and 65536",
        )
    ],
    "swap-configured": [({}, {r"SwapTotal:\s+0": "SwapTotal: 2097152"}, {}, "virtual has 2048 MiB of swap")],
}
# Pairs of nodes that an item does not name: item, edits of both nodes, what the host says.
FAULTLESS = [
    ("hca-locality", {r"numa_node:0": "numa_node:5"}, {r"numa_node:0": "numa_node:5"}, {}),
    (
        "mitigations",
        {r"(vulnerabilities/mds):.*": r"\1:Mitigation: Clear CPU buffers; SMT vulnerable"},
        {r"(vulnerabilities/mds):.*": r"\1:Mitigation: Clear CPU buffers; SMT Host state unknown"},
        {},
    ),
    # A guest does not know what the hypervisor does, nor a host what its guests do.
    ("mitigations", {}, {r"(vulnerabilities/mds):.*": r"\1:Unknown: Dependent on hypervisor status"}, {}),
    ("mitigations", {r"(vulnerabilities/mds):.*": r"\1:KVM: Mitigation: VMX disabled"}, {}, {}),
    ("mitigations", {r"^/sys/devices/system/cpu/vulnerabilities/mds:.*\n": ""}, {}, {}),
    # What a guest shows itself counts before what its host says.
    (
        "frequency",
        {},
        {
            "^virtqual-look/1": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor:performance\n"
            "/sys/devices/system/cpu/intel_pstate/no_turbo:0\nvirtqual-look/1"
        },
        {"governor": "powersave", "turbo": "off"},
    ),
    ("memory-pages", {}, {}, {"memory_backing": "2M pages"}),
    # Words after -- are for the first process; parameters of ignored parts of the kernel have a point.
    ("command-line", {}, {"mitigations=auto": "mitigations=auto -- idle=poll"}, {}),
    ("command-line", {}, {"mitigations=auto": "mitigations=auto rd.lvm=0"}, {}),
    (
        "numa-interleaved",
        {**ONE_NODE, "(physical_package_id):1": r"\1:0"},
        ONE_NODE,
        {"node_interleaving": True},
    ),
    ("pcie-link", {"^.*current_link_width:.*\n": ""}, {"^.*max_link_speed:.*\n": ""}, {}),
    ("pcie-link", {"(max_link_speed):.*": r"\1:Unknown"}, {}, {}),
    ("nic-rate", {"^.*ib0/speed:.*\n": ""}, {}, {}),
    ("hca-locality", {"^/sys/class/infiniband/mlx5_0/device/.*\n": ""}, {}, {}),
    ("link-rate", {}, {}, {"link_gbit": 100}),
    ("link-rate", NO_HCA, {}, {"link_gbit": 100}),
    # Only the system file's statement would show this fault.
    ("link-rate", FDR, FDR, {}),
    ("numa-interleaved", ONE_NODE, ONE_NODE, {"node_interleaving": True}),
    ("smt", NO_SMT, NO_SMT, {**HOST, "vcpus": 4}),
    ("vm-size", {}, {}, {**HOST, "memory_mib": 8, "memory_mib_per_node": 4}),
    ("placement", {}, {}, {"numa_nodes": 1, "vcpus_pinned": True, "memory_pinned": False}),
    ("numa-hidden", {"(node0/cpulist):.*": r"\1:0-1", "(node1/cpulist):.*": r"\1:2-3"}, {}, {}),
    ("numa-hidden", ONE_NODE, ONE_NODE, {"numa_nodes": 1, "cpus_per_node": 4}),
    ("numa-hidden", ONE_NODE, ONE_NODE, {"numa_nodes": 2, "cpus_per_node": 8}),
    # A run on one core lies in one of the nodes that the VM shows.
    ("numa-hidden", ON_ONE_CORE, ON_ONE_CORE, HOST),
    # A VM of one of the host's two sockets.
    ("numa-false", THIRD_NODE, {}, {}),
    ("numa-false", {}, {r"(Cpus_allowed_list:\t)0-7": r"\g<1>0-4,6"}, {}),
    ("tuned-profile", NO_TUNED, NO_TUNED, {}),
]
# Further pairs of nodes that an item names, with the whole reason.
WHOLE_REASONS = [
    ("hypervisor-stated", {}, {" hypervisor": ""}, HOST, "the CPU of the virtual node shows no hypervisor"),
    (
        "native-is-virtual",
        {"flags\t\t:": "flags\t\t: hypervisor"},
        {},
        {},
        "the native node itself runs under a hypervisor (unknown)",
    ),
    (
        "native-is-virtual",
        {"flags\t\t:": "flags\t\t: hypervisor", "sys_vendor:.*": "sys_vendor:QEMU"},
        {},
        {},
        "the native node itself runs under a hypervisor (QEMU)",
    ),
    (
        "clock-source",
        {},
        {"(current_clocksource):tsc": r"\1:hpet"},
        {},
        "virtual reads the time from hpet, which is none of tsc, kvm-clock, xen, "
        "hyperv_clocksource_tsc_page, arch_sys_counter",
    ),
    *(
        ("pcie-link", edit, {}, {}, f"native: the PCIe link of {name} has the {what}")
        for name in ("mlx5_0", "ib0")
        for edit, what in (
            ({"(current_link_width):16": r"\1:8"}, "width 8, it could have 16"),
            (
                {"(current_link_speed):8.0": r"\1:2.5"},
                "speed 2.5 GT/s PCIe, it could have 8.0 GT/s PCIe",
            ),
        )
    ),
    (
        "command-line",
        {},
        {"mitigations=auto": "mitigations=auto idle=poll"},
        {},
        "the kernel's command line has, only natively: nothing; only in the VM: idle=poll",
    ),
    (
        "tuned-profile",
        NO_TUNED,
        {},
        {},
        "the tuned profile is hpc-compute in the VM, none is seen natively (/etc/tuned/active_profile: empty "
        "or not there)",
    ),
    (
        "hca-firmware",
        {},
        {"16.35.3006": "16.28.1002"},
        {},
        "the firmware of mlx5_0 is 16.35.3006 natively and 16.28.1002 in the VM",
    ),
    (
        "hca-locality",
        {r"(mlx5_0/device/numa_node):0": r"\1:-1"},
        {},
        {},
        "native: the NUMA node of mlx5_0",
    ),
    (
        "hca-locality",
        ONE_NODE,
        {r"numa_node:0": "numa_node:5"},
        {},
        "virtual: mlx5_0 is on NUMA node 5, the CPUs in use are on 0, 1",
    ),
    (
        "numa-hidden",
        {r"^/sys/devices/system/node/.*\n": ""},
        ONE_NODE,
        {},
        "the VM shows 2 sockets but 1 NUMA node",
    ),
    (
        "write-combining",
        {},
        {"GenuineIntel": "AuthenticAMD"},
        {},
        "ESXi on AuthenticAMD with an RDMA device: the study's write combining is Intel only",
    ),
    (
        "link-rate",
        {"4: ACTIVE": "2: INIT"},
        {},
        {},
        "the rate of an RDMA port: none is active, or a driver hides it",
    ),
    (
        "numa-false",
        {},
        {r"(Cpus_allowed_list:\t)0-7": r"\g<1>0-2,4-5"},
        {},
        "NUMA nodes have [4, 4] CPUs natively and [1, 4] in the VM",
    ),
    (
        "mitigations",
        {},
        {"(meltdown):.*": r"\1:Mitigation: PTI", "(vulnerabilities/mds):.*": r"\1:Vulnerable"},
        {},
        "mitigations differ (mds: 'Mitigation: Clear CPU buffers; SMT vulnerable' against 'Vulnerable'; "
        "meltdown: 'Not affected' against 'Mitigation: PTI')",
    ),
    (
        "vm-size",
        {},
        {},
        {**HOST, "vcpus": 9},
        "the VM has 9 vCPUs in 2 NUMA nodes, a node of its host has 4",
    ),
    (
        "placement",
        {},
        {},
        {"numa_nodes": 2, "vcpus_pinned": True, "memory_pinned": False},
        "esxi01: the VM's memory is not pinned",
    ),
]
QUIET = Load(seconds=10, steal=0.0, foreign=0.1, waiting=0.1, ballooned=0, swapped=0, memory_drift_mib=0)
LOADS = {
    "steal": [({"steal": 0.05}, "the hypervisor took 5.0% of the CPU time")],
    "foreign-load": [({"foreign": 0.8}, "0.80 CPUs were busy with other work")],
    "cpu-pressure": [({"waiting": 0.7}, "waited for a CPU in 70% of the time")],
    "ballooning": [({"ballooned": 512}, "512 pages"), ({"memory_drift_mib": -256}, "changed by -256 MiB")],
    "swapping": [({"swapped": 4096}, "4096 pages were swapped")],
}


# What benchmarks/lab/experiments.yaml says of a case, by the name of its test.
EXPECTED = {
    experiment["test"].split("::")[1]: experiment["answer"]
    for experiment in parse(paths.root() / "benchmarks/lab/experiments.yaml").content["experiments"]
    if "test_rules.py::" in experiment.get("test", "")
}
ANSWERS = {"refuse": "refused", "report": "reported"}

# What each item says that it could not see, if the nodes show nothing: of each side, or once.
UNSEEN_OF_SIDES = {
    "cpu-model": "the CPU",
    "cpu-features": "CPU features",
    "cpu-count": "the number of usable CPUs",
    "clock-source": "clock source",
    "clock-differs": "the clock source",
    "frequency": "the frequency governor, turbo",
    "mitigations": "mitigations",
    "numa-hidden": "NUMA nodes",
    "numa-false": "NUMA nodes",
    "smt": "the number of threads in use of one core",
    "caches": "the last-level cache",
    "memory-pages": "the mode of transparent huge pages",
    "kernel": "the kernel",
    "command-line": "the kernel's command line",
    "numa-balancing": "numa_balancing",
    "locked-memory": "the limit of locked memory",
}
UNSEEN = {
    "hypervisor-stated": ["neither the CPU's name nor a clock source tells it"],
    "native-is-virtual": ["/proc/cpuinfo: empty or not there"],
    "numa-interleaved": ["/sys/devices/system/cpu/cpu*/topology: not there"],
    "vm-size": [
        f"{what} of the VM and of a host node: esxi01 lacks one" for what in ("vCPUs", "MiB of memory")
    ],
    "placement": [
        f"whether the {what} pinned: the hypervisor's host was not asked"
        for what in ("vCPUs are", "memory is")
    ],
    "mtu": ["no network interface has the same name on both sides"],
}


def pair(native, virtual, host):
    guest = node("guest", **virtual)
    return node("bare", **native), guest.on(hosts.make_host(host, "esxi01")) if host else guest


@pytest.mark.parametrize(("item", "native", "virtual", "host"), FAULTLESS)
def test_no_rule_finds_a_fault_where_there_is_none(item, native, virtual, host):
    findings = compare(*pair(native, virtual, host), judging.policy(), "production")
    assert [finding for finding in findings if finding.item == item] == []


@pytest.mark.parametrize(("item", "native", "virtual", "host", "reason"), WHOLE_REASONS)
def test_a_rule_gives_its_reason(item, native, virtual, host, reason):
    findings = compare(*pair(native, virtual, host), judging.policy(), "production")
    assert reason in [finding.reason for finding in findings if finding.item == item]


def test_every_rule_has_a_fault():
    assert CASES.keys() == {item for item, rule in RULES.items() if rule.scope == "nodes"}
    assert LOADS.keys() == {item for item, rule in RULES.items() if rule.scope == "load"}


@pytest.mark.parametrize(
    ("item", "native", "virtual", "host", "says"),
    [(item, *case) for item, cases in CASES.items() for case in cases],
    ids=[item for item, cases in CASES.items() for _ in cases],
)
def test_the_rule_finds_its_fault(request, item, native, virtual, host, says):
    found = compare(*pair(native, virtual, host), judging.policy(), "production")
    reasons = [one.reason for one in found if one.item == item and one.action != "unseen"]
    assert any(says in reason for reason in reasons), reasons
    stated = compare(*pair(native, virtual, host), judging.policy(), "kvm")
    answers = {ANSWERS.get(one.action) for one in stated if one.item == item and says in one.reason}
    assert EXPECTED.get(request.node.name) in {None} | answers
    matched = compare(*pair({}, {}, {}), judging.policy(), "production")
    assert [one for one in matched if one.action != "unseen"] == []


def test_nodes_that_show_nothing_are_unseen_in_each_item_and_side():
    native = readers.read(gather.parse("/proc/sys/kernel/hostname:x\nvirtqual-look/1\n"), "")
    found = compare(native, native.on(hosts.make_host({}, "esxi01")), judging.policy(), "production")
    assert {one.action for one in found} == {"unseen"}
    reasons = {item: [one.reason for one in found if one.item == item] for item in UNSEEN}
    assert reasons == UNSEEN
    assert [(one.item, one.reason.partition(":")[0]) for one in found if one.item not in UNSEEN] == [
        (item, f"{what} of {side}")
        for item, whats in UNSEEN_OF_SIDES.items()
        for what in whats.split(", ")
        for side in ("native", "virtual")
    ]


@pytest.mark.parametrize(
    ("item", "change", "says"),
    [(item, *case) for item, cases in LOADS.items() for case in cases],
    ids=[item for item, cases in LOADS.items() for _ in cases],
)
def test_the_rule_finds_its_load(request, item, change, says):
    policy = judging.policy()
    found = apply_rules("load", policy, "kvm", QUIET.model_copy(update=change))
    assert [(one.item, says in one.reason) for one in found] == [(item, True)]
    assert EXPECTED.get(request.node.name) in (None, ANSWERS[found[0].action])
    assert apply_rules("load", policy, "kvm", QUIET) == []
    unseen = NotObservable(not_observable="not told")
    assert apply_rules("load", policy, "kvm", QUIET.model_copy(update=dict.fromkeys(change, unseen))) == []


HIDDEN = NotObservable(not_observable="hidden")
ALL_FACTS = {
    **{
        **HOST,
        "memory_mib": 90_000,
        "memory_mib_per_node": 96_000,
        "vcpus_pinned": True,
        "memory_pinned": True,
    },
    **{"memory_reserved": True, "other_vms": 0, "vms_per_host": 1, "memory_backing": "huge pages"},
    **{"governor": "performance", "turbo": "on", "iommu_large_pages": True, "link_gbit": 100},
}


def hide_each_fact(record):
    """Yield the name of each fact of a record that may be unseen, and the record without it."""
    for name, field in type(record).model_fields.items():
        part = getattr(record, name)
        if NotObservable in get_args(field.annotation):
            yield name, record.model_copy(update={name: HIDDEN})
        if isinstance(part, BaseModel) and part is not HIDDEN:
            for fact, copy in hide_each_fact(part):
                yield f"{name}.{fact}", record.model_copy(update={name: copy})


@pytest.mark.parametrize(
    ("native", "virtual", "items", "changes"),
    [
        ({}, {}, set(), {"vm-size": ["virtual topology.numa"]}),
        (
            {},
            ONE_NODE,
            {"vm-size", "numa-hidden"},
            {
                "numa-hidden": ["virtual topology.packages", "virtual topology.numa"],
                "vm-size": ["virtual host", "virtual host.cpus_per_node", "virtual host.vcpus"],
            },
        ),
        (
            {},
            SIZED_TO_ONE,
            {"vm-size", "cpu-count", "numa-spread"},
            {
                "numa-spread": [
                    *("native topology.packages", "native topology.numa"),
                    *("virtual topology.cpus", "virtual topology.packages", "virtual topology.numa"),
                ],
                "numa-hidden": ["virtual topology.cpus"],
                "vm-size": ["virtual host", "virtual host.cpus_per_node", "virtual host.vcpus"],
            },
        ),
        (
            NO_SMT,
            NO_SMT,
            {"smt"},
            {
                "smt": [
                    *("virtual topology.threads_per_core", "virtual host", "virtual host.smt"),
                    *("virtual host.numa_nodes", "virtual host.cpus_per_node", "virtual host.vcpus"),
                ],
                "vm-size": ["virtual topology.numa"],
            },
        ),
    ],
)
def test_a_fact_that_is_not_seen_changes_what_is_found_of_it_alone(native, virtual, items, changes):
    nodes = pair(native, virtual, ALL_FACTS)

    def find(native, virtual):
        findings = compare(native, virtual, judging.policy(), "production")
        return {finding.item for finding in findings if finding.action != "unseen"}

    assert find(*nodes) == items
    copies = [(f"native {fact}", (copy, nodes[1])) for fact, copy in hide_each_fact(nodes[0])]
    copies += [(f"virtual {fact}", (nodes[0], copy)) for fact, copy in hide_each_fact(nodes[1])]
    found = defaultdict(list)
    for fact, copy in copies:
        for item in find(*copy) ^ items:
            found[item].append(fact)
    assert found == {"tuned-profile": ["native tuned_profile", "virtual tuned_profile"], **changes}


@pytest.mark.parametrize(
    ("item", "limit", "change"),
    [
        ("steal", "share", lambda share: {"steal": share}),
        ("foreign-load", "cpus", lambda cpus: {"foreign": cpus, "seconds": 1000.0}),
        ("foreign-load", "cpu_seconds", lambda seconds: {"foreign": seconds, "seconds": 1.0}),
        ("cpu-pressure", "share", lambda share: {"waiting": share}),
        ("ballooning", "pages", lambda pages: {"ballooned": int(pages)}),
        ("ballooning", "mib", lambda mib: {"memory_drift_mib": -int(mib)}),
        ("swapping", "pages", lambda pages: {"swapped": int(pages)}),
    ],
)
def test_a_load_at_its_limit_is_allowed(item, limit, change):
    policy = judging.policy()
    load = QUIET.model_copy(update=change(policy.items[item].limits[limit]))
    assert apply_rules("load", policy, "kvm", load) == []


def test_a_host_of_one_cpu_that_works_for_its_vm_takes_no_more_than_another_vm():
    loads = [QUIET.model_copy(update={"steal": steal}) for steal in (0.0, 0.48, 0.64)]
    for hypervisor_class, refused in (
        ("kvm", [False, True, True]),
        ("kvm-on-emulated-hosts", [False, False, True]),
    ):
        assert [
            bool(apply_rules("load", judging.policy(), hypervisor_class, load)) for load in loads
        ] == refused


def test_starting_the_tasks_of_a_short_run_is_not_foreign_load():
    load = QUIET.model_copy(update={"seconds": 0.4, "foreign": 1.0})
    assert apply_rules("load", judging.policy(), "kvm", load) == []


def test_a_vm_sized_to_one_node_needs_native_runs_bound_to_one():
    """The remedies of the rules lead to a pair that no rule refuses."""

    def numa(native, host):
        found = compare(*pair(native, SIZED_TO_ONE, host), judging.policy(), "production")
        return {one.item: one.action for one in found if one.item.startswith("numa")}

    assert numa({}, {}) == {"numa-spread": "refuse"}
    assert numa(BOUND_TO_ONE, {}) == {}
    assert numa({}, {"numa_hidden": True}) == {"numa-spread": "report"}


def test_hidden_nodes_that_are_stated_are_reported():
    stated = pair({}, ONE_NODE, {**HOST, "numa_hidden": True})
    found = compare(*stated, judging.policy(), "production")
    actions = {one.action for one in found if one.item in ("numa-hidden", "vm-size")}
    studied = [
        one.item for one in found if one.reason.endswith("; this is studied, as extras.numa_hidden states")
    ]
    assert studied == ["numa-hidden", "numa-hidden", "vm-size"]
    assert "refuse" not in actions
    assert "report" in actions


@pytest.mark.parametrize("side", [0, 1])
def test_hidden_nodes_that_are_stated_are_not_judged_by_nodes_that_are_not_seen(side):
    nodes = list(pair({}, {}, {"numa_hidden": True}))
    topology = nodes[side].topology.model_copy(update={"numa": HIDDEN})
    nodes[side] = nodes[side].model_copy(update={"topology": topology})
    found = compare(*nodes, judging.policy(), "production")
    assert {one.action for one in found if one.item == "numa-hidden"} == {"unseen"}


@pytest.mark.parametrize(
    ("native", "virtual", "target", "says"),
    [
        ("x86_64_v4", "x86_64_v4", "x86_64_v4", []),
        ("x86_64_v3", "x86_64_v4", "x86_64_v3", []),
        ("x86_64_v4", "x86_64_v3", "x86_64_v4", ["virtual node", "for x86_64_v4: it lacks avx512bw, avx"]),
        (
            "x86_64_v2",
            "x86_64_v2",
            "x86_64_v3",
            ["native node", "abm, avx, avx2, bmi1 and ", "virtual node"],
        ),
    ],
)
def test_programs_that_a_processor_cannot_run_are_refused(native, virtual, target, says):
    features = load_recipe("programs.yaml")["targets"]
    flags = [{r"(flags\t\t:).*": rf"\1 {' '.join(features[level])}"} for level in (native, virtual)]
    nodes = node("bare", **flags[0]), node("guest", **flags[1])
    targets = [ProcessorTarget(name=target, features=features[target])]
    findings = compare(*nodes, judging.policy(), "emulated", targets)
    refusals = [finding for finding in findings if finding.item == "stack-target"]
    assert {finding.action for finding in refusals} == ({"refuse"} if says else set())
    text = " ".join(finding.text for finding in refusals)
    assert [words for words in says if words not in text] == []


def test_what_is_not_so_on_all_nodes_is_said_with_their_names():
    """One VM of two shows one NUMA node, and both another clock."""
    clock = {"(current_clocksource):tsc": r"\1:kvm-clock"}
    odd = node("guest", **clock, **ONE_NODE, **{"(hostname:).*": r"\1vm4"})
    others = node("guest", **clock), node("bare")
    runs = [
        run(side, pair, which, None)
        for pair, guest in enumerate((others[0], odd))
        for side, which in (("native", others[1]), ("virtual", guest))
    ]
    found = {finding.item: finding.reason for finding in compare_runs(runs, judging.policy(), "esxi")}
    assert found["numa-hidden"].startswith(f"{others[1].node} with vm4: ")
    assert found["clock-differs"].startswith("the clock source is tsc natively")


@pytest.mark.parametrize("hypervisor_class", ["esxi", "emulated"])
def test_a_session_of_one_pair_shows_what_its_nodes_show(hypervisor_class):
    nodes = node("bare", **{r"numa_node:0": "numa_node:5"}), node("guest", **{" avx2": ""})
    runs = [run(side, 0, which, None) for side, which in zip(("native", "virtual"), nodes, strict=True)]
    findings = compare_runs(runs, judging.policy(), hypervisor_class)
    assert findings == compare(*nodes, judging.policy(), hypervisor_class)
    # A node beside which no VM ran is not compared.
    identity = {**runs[0].identity, "spare": node("bare", **{" avx2": ""})}
    runs[0] = runs[0].model_copy(update={"identity": identity})
    assert compare_runs(runs, judging.policy(), hypervisor_class) == findings
    assert {"hca-locality", "cpu-features"} <= {finding.item for finding in findings}
