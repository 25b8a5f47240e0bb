"""Arm nodes: what their processor is, and whether they are guests, which the processor does not tell.

The texts of ``/proc/cpuinfo`` are those that people have published of a Kunpeng 920, an A64FX, Neoverse N1
(Ampere Altra), V1 (Graviton3) and V2 (Grace).
"""

from pathlib import Path

import pytest

from virtqual.identity import gather, readers, seen
from virtqual.preflight.compare import compare
from virtqual.session import judge as judging

OUTPUTS = Path(__file__).parents[2] / "outputs/identity"
FAULTS = Path(__file__).parents[2] / "faults/preflight"
CPUINFO = """processor\t: 0
BogoMIPS\t: 200.00
Features\t: {features}
CPU implementer\t: {implementer}
CPU architecture: 8
CPU variant\t: {variant}
CPU part\t: {part}
CPU revision\t: {revision}
"""
N1 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
GRACE = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma lrcpc dcpop "
    "sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm sb paca pacg dcpodp sve2 sveaes "
    "svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svebf16 i8mm bf16 dgh bti"
)


def make_files(features=N1, implementer="0x41", variant="0x3", part="0xd0c", revision="1", **texts):
    cpuinfo = CPUINFO.format_map(locals())
    dmi = {f"{gather.DMI_DIR}/{name}": text for name, text in texts.items()}
    return gather.NodeFiles({"/proc/cpuinfo": cpuinfo, **dmi}, {})


@pytest.mark.parametrize(
    ("numbers", "model", "signature"),
    [
        ({}, "Arm Neoverse-N1", "Arm 0xd0c r3p1"),
        ({"part": "0xd40", "variant": "0x1"}, "Arm Neoverse-V1", "Arm 0xd40 r1p1"),
        ({"part": "0xd4f", "variant": "0x0", "revision": "0"}, "Arm Neoverse-V2", "Arm 0xd4f r0p0"),
        (
            {"implementer": "0x46", "part": "0x001", "variant": "0x1", "revision": "0"},
            "Fujitsu A64FX",
            "Fujitsu 0x001 r1p0",
        ),
        (
            {"implementer": "0x48", "part": "0xd01", "variant": "0x1", "revision": "0"},
            "HiSilicon Kunpeng 920",
            "HiSilicon 0xd01 r1p0",
        ),
        ({"implementer": "0xc0", "part": "0xac3"}, "Ampere AmpereOne (Ampere-1)", "Ampere 0xac3 r3p1"),
        (
            {"implementer": "0x7f", "part": "0xfff"},
            "implementer 0x7f part 0xfff",
            "implementer 0x7f 0xfff r3p1",
        ),
    ],
)
def test_the_processor(numbers, model, signature):
    cpu = readers.read(make_files(**numbers)).cpu
    assert (cpu.model, cpu.signature, cpu.architecture) == (model, signature, "aarch64")
    assert cpu.features.split()[0] == "aes"


def test_a_processor_of_two_kinds_of_cores_and_of_two_caches():
    node = readers.read(gather.parse((OUTPUTS / "arm-two-clusters.look").read_text("utf-8")))
    assert node.cpu.model == "Arm Cortex-A725 + Arm Cortex-X925"
    assert node.topology.last_level_bytes == (8 + 16) * 2**20
    assert node.hypervisor.present is False


@pytest.mark.parametrize(
    ("texts", "present", "accelerator"),
    [
        ({"sys_vendor": "QEMU", "product_name": "KVM Virtual Machine"}, True, "kvm"),
        ({"sys_vendor": "QEMU", "product_name": "QEMU Virtual Machine"}, True, "tcg"),
        ({"sys_vendor": "OpenStack Foundation", "product_name": "OpenStack Nova"}, True, None),
        ({"sys_vendor": "VMware, Inc.", "product_name": "VMware20,1"}, True, "esxi"),
        ({"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}, True, "hyperv"),
        ({"sys_vendor": "Amazon EC2", "product_name": "c7g.16xlarge"}, True, None),
        ({"sys_vendor": "Amazon EC2", "product_name": "c7g.metal"}, False, None),
        ({"sys_vendor": "HPE", "product_name": "Apollo 80"}, False, None),
        ({"sys_vendor": "Huawei", "product_name": "XA320 V2"}, False, None),
        ({"sys_vendor": "GIGABYTE", "product_name": "R272-P30-JG"}, False, None),
    ],
)
def test_firmware_tells_whether_a_node_is_a_guest(texts, present, accelerator):
    hypervisor = readers.read(make_files(**texts)).hypervisor
    assert hypervisor.present is present
    assert (hypervisor.accelerator if seen(hypervisor.accelerator) else None) == accelerator


def test_drivers_and_the_device_tree_tell_it_where_there_is_no_firmware():
    files = make_files()
    assert not seen(readers.read(files).hypervisor.present)
    for path, text, accelerator in (
        ("/sys/class/ptp/ptp0/clock_name", "KVM virtual PTP", "kvm"),
        ("/proc/device-tree/hypervisor/compatible", "linux,kvm ", "kvm"),
        ("/proc/device-tree/hypervisor/compatible", "xen,xen-4.17 xen,xen ", "xen"),
        ("/proc/device-tree/compatible", "linux,dummy-virt ", None),
        ("/sys/hypervisor/type", "xen", "xen"),
    ):
        hypervisor = readers.read(gather.NodeFiles({**files.texts, path: text}, {})).hypervisor
        assert hypervisor.present is True, path
        assert (hypervisor.accelerator if seen(hypervisor.accelerator) else None) == accelerator, path
    clock = {"/sys/class/ptp/ptp0/clock_name": "mlx5_ptp"}
    assert not seen(readers.read(gather.NodeFiles({**files.texts, **clock}, {})).hypervisor.present)


def make_node(name, **changes):
    """Return a node of the pair that matches, with another processor."""
    files = gather.parse((FAULTS / f"{name}.look").read_text("utf-8"))
    return readers.read(gather.NodeFiles({**files.texts, **make_files(**changes).texts}, {}))


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, set()),
        (
            {"part": "0xd4f", "variant": "0x0", "revision": "0", "features": GRACE},
            {"cpu-model", "cpu-features"},
        ),
        ({"revision": "0"}, {"cpu-model"}),
        ({"features": N1.replace(" atomics", "")}, {"cpu-features"}),
        # They change no instruction that compilers choose.
        ({"features": N1.replace(" evtstrm", "")}, set()),
    ],
    ids=["the same", "Neoverse V2 against N1", "another revision", "no LSE", "a flag of the system"],
)
def test_two_processors_are_refused(changes, refused):
    bare = {"sys_vendor": "GIGABYTE", "product_name": "R272-P30-JG"}
    findings = compare(make_node("bare", **bare), make_node("guest", **changes), judging.policy(), "esxi")
    assert {finding.item for finding in findings if finding.action == "refuse"} == refused
    if "part" in changes:
        (reason,) = (finding.reason for finding in findings if finding.item == "cpu-model")
        assert "Arm 0xd0c r3p1 natively and Arm 0xd4f r0p0 in the VM (Arm Neoverse-N1 against Arm" in reason
