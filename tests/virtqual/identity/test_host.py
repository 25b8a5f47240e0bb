"""What only the hypervisor's host can say, from its own files."""

import json

import pytest
from typer.testing import CliRunner

from virtqual.cli import app
from virtqual.errors import UsageError
from virtqual.identity import host, seen

LIBVIRT = """<domain type='kvm'><name>n1</name><memory unit='GiB'>64</memory>
<memoryBacking><hugepages/><locked/></memoryBacking><vcpu placement='static'>2</vcpu>
<cputune><vcpupin vcpu='0' cpuset='0'/><vcpupin vcpu='1' cpuset='1'/></cputune>
<numatune><memory mode='strict' nodeset='0'/></numatune>
<os><type arch='x86_64' machine='pc-q35-9.2'>hvm</type></os><cpu mode='host-passthrough'/></domain>"""
ESXCLI = """   Product: VMware ESXi
   Version: 8.0.3
   Build: Releasebuild-24022510
   CPU Threads: 64
   Hyperthreading Active: true
   Physical Memory: 549755813888 Bytes
   NUMA Node Count: 2
"""
VMX = """virtualHW.version = "21"
numvcpus = "32"
memSize = "262144"
sched.mem.min = "262144"
numa.nodeAffinity = "0"
numa.vcpu.preferHT = "TRUE"
sched.cpu.latencySensitivity = "high"
"""
QEMU = "qemu-system-x86_64 -accel kvm -machine pc-q35-9.2,dump=off -cpu host,migratable=on -smp cpus=8 -m 16G"
BOUND = "-object memory-backend-memfd,id=m,size=16G,hugetlb=on,host-nodes=0,policy=bind -numa node,memdev=m"


def test_libvirt():
    fields = host.of_libvirt(LIBVIRT)
    assert fields == {
        "vcpus": 2,
        "vcpus_pinned": True,
        "memory_pinned": True,
        "virtual_numa_nodes": 1,
        "memory_backing": "huge pages",
        "memory_reserved": True,
        "accelerator": "kvm",
        "hardware": "pc-q35-9.2",
        "cpu_mode": "host-passthrough",
        "memory_mib": 65536,
    }
    loose = host.of_libvirt(
        LIBVIRT.replace("<vcpupin vcpu='1' cpuset='1'/>", "").replace("strict", "preferred")
    )
    assert (loose["vcpus_pinned"], loose["memory_pinned"]) == (False, False)


def test_qemu_arguments():
    fields = host.of_qemu(QEMU.split())
    assert fields["accelerator"] == "kvm"
    assert (fields["hardware"], fields["cpu_mode"], fields["vcpus"], fields["memory_mib"]) == (
        "pc-q35-9.2",
        "host",
        8,
        16384,
    )
    assert fields["memory_pinned"] is False
    fields = host.of_qemu(f"{QEMU} {BOUND}".split())
    assert (fields["memory_pinned"], fields["memory_backing"]) == (True, "huge pages")


def test_esxi():
    fields = host.of_vmx(VMX) | host.of_esxcli(ESXCLI)
    made = host.of(fields, "esxi01")
    assert (made.vendor, made.build, made.accelerator) == ("VMware ESXi", "8.0.3-24022510", "esxi")
    assert (made.hardware, made.vcpus, made.cpus_per_node, made.smt) == ("vmx-21", 32, 32, "on")
    assert made.prefer_ht is made.memory_pinned is made.memory_reserved is True
    assert made.vcpus_pinned is False
    assert not seen(made.governor)


@pytest.mark.parametrize(
    ("parse", "text"),
    [(host.of_libvirt, "<x/>"), (host.of_libvirt, "<"), (host.of_vmx, ""), (host.of_esxcli, "a")],
)
def test_other_texts_are_refused(parse, text):
    with pytest.raises(UsageError):
        parse(text)


def test_the_file_of_a_site(tmp_path):
    file = tmp_path / "host.yaml"
    file.write_text("schema: virtqual-host/1\nnuma_nodes: 2\nsmt: 'off'\n")
    made = host.load(file)
    assert (made.source, made.numa_nodes, made.smt) == (str(file), 2, "off")
    (tmp_path / "again.json").write_text(host.write(made))
    assert host.load(tmp_path / "again.json") == made
    for wrong, says in (
        ("numa_node: 2", "numa_node"),
        ("numa_nodes: two", "numa_nodes"),
        ("[", "neither JSON"),
    ):
        file.write_text(wrong)
        with pytest.raises(UsageError, match=says):
            host.load(file)


def test_the_command(tmp_path):
    (tmp_path / "vm.vmx").write_text(VMX)
    (tmp_path / "cli.txt").write_text(ESXCLI)
    done = CliRunner().invoke(
        app, ["host", "--vmx", str(tmp_path / "vm.vmx"), "--esxcli", str(tmp_path / "cli.txt")]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["source"] == ".vmx and esxcli"
    (tmp_path / "host.json").write_text(done.output)
    shown = CliRunner().invoke(app, ["identity", "--host", str(tmp_path / "host.json"), "--json"])
    assert json.loads(shown.output)["host"]["build"] == "8.0.3-24022510"
    assert CliRunner().invoke(app, ["host"]).exit_code == 2
