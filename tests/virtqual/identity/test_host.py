"""The facts of a hypervisor's host, from its own files."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from calling import call
from made_programs import ESXCLI
from virtqual.errors import UsageError
from virtqual.identity import gather, host, kvm_host, seen

#: Descriptions of VMs and hosts that other people have published, reduced.
OTHERS = Path(__file__).parents[2] / "outputs/hosts"
LIBVIRT = """<domain type='kvm'><name>n1</name><memory unit='GiB'>64</memory>
<memoryBacking><hugepages/><locked/></memoryBacking><vcpu placement='static'>2</vcpu>
<cputune><vcpupin vcpu='0' cpuset='0'/><vcpupin vcpu='1' cpuset='1'/></cputune>
<numatune><memory mode='strict' nodeset='0'/></numatune>
<os><type arch='x86_64' machine='pc-q35-9.2'>hvm</type></os><cpu mode='host-passthrough'/></domain>"""
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
    fields = host.read_libvirt(LIBVIRT)
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
    loose = host.read_libvirt(
        LIBVIRT.replace("<vcpupin vcpu='1' cpuset='1'/>", "").replace("strict", "preferred")
    )
    assert (loose["vcpus_pinned"], loose["memory_pinned"]) == (False, False)


def test_qemu_arguments():
    fields = host.read_qemu(QEMU.split())
    expected = {"accelerator": "kvm", "hardware": "pc-q35-9.2", "cpu_mode": "host", "vcpus": 8}
    assert fields.items() >= {**expected, "memory_mib": 16384, "memory_pinned": False}.items()
    fields = host.read_qemu(f"{QEMU} {BOUND}".split())
    assert (fields["memory_pinned"], fields["memory_backing"]) == (True, "huge pages")


@pytest.mark.parametrize(
    ("bound", "memory_pinned"),
    [
        ({"host-nodes": [0], "policy": "bind"}, True),
        ({"host-nodes": [], "policy": "bind"}, False),
        ({"host-nodes": [0], "policy": "preferred"}, False),
    ],
)
def test_memory_as_libvirt_gives_it_to_qemu(bound, memory_pinned):
    memory = {"qom-type": "memory-backend-memfd", "id": "m", "hugetlb": True, "size": 2**34, **bound}
    fields = host.read_qemu([*QEMU.split(), "-object", json.dumps(memory)])
    assert (fields["memory_pinned"], fields["memory_backing"]) == (memory_pinned, "huge pages")
    with pytest.raises(UsageError, match=r"-object .* is not JSON"):
        host.read_qemu([*QEMU.split(), "-object", '{"qom-type":'])


def test_esxi():
    fields = host.read_vmx(VMX) | host.read_esxcli(ESXCLI)
    made = host.make_host(fields, "esxi01")
    assert (made.vendor, made.build, made.accelerator) == ("VMware ESXi", "8.0.3-24022510", "esxi")
    assert (made.hardware, made.vcpus, made.cpus_per_node, made.smt) == ("vmx-21", 32, 64, "on")
    assert made.prefer_ht is made.memory_pinned is made.memory_reserved is True
    assert made.vcpus_pinned is False
    assert not seen(made.governor)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (host.read_libvirt, "<x/>"),
        (host.read_libvirt, "<"),
        (host.read_vmx, ""),
        (host.read_esxcli, "a"),
        (host.read_esxcli, "NUMA Node Count:  \n"),
        (host.read_qemu, ["-smp", "maxcpus=4"]),
        (host.read_qemu, ["-m", "much"]),
    ],
)
def test_other_texts_are_refused(parse, text):
    with pytest.raises(UsageError, match=r"^(libvirt|QEMU|ESXi): "):
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
        ("[", "is not YAML"),
    ):
        file.write_text(wrong)
        with pytest.raises(UsageError, match=says):
            host.load(file)


def files_of(*absent, **texts):
    """Return what the script prints of files, of which some cannot be read."""
    return gather.NodeFiles(
        {f"/{path}": text.strip() for path, text in texts.items()},
        {f"/{path}": "is a directory" for path in absent},
    )


KVM = {
    "proc/cmdline": "BOOT_IMAGE=/vmlinuz ro intel_iommu=on,sp_off iommu=pt iommu.strict=0 noiommu_ quiet\n",
    "sys/module/kvm/parameters/halt_poll_ns": "200000\n",
    "sys/module/kvm_intel/parameters/ept": "Y\n",
    "sys/module/kvm_intel/parameters/nested": "N\n",
    "sys/module/kvm_intel/srcversion": "533BB7E5866E52F63B9ACCB\n",
    "sys/module/vfio_iommu_type1/parameters/disable_hugepages": "N\n",
}


def test_the_files_of_a_kvm_host(tmp_path):
    fields = kvm_host.read_files(files_of(**KVM))
    assert fields == {
        "module_parameters": {
            "kvm.halt_poll_ns": "200000",
            "kvm_intel.srcversion": "533BB7E5866E52F63B9ACCB",
            "kvm_intel.ept": "Y",
            "kvm_intel.nested": "N",
            "vfio_iommu_type1.disable_hugepages": "N",
        },
        "iommu_options": "intel_iommu=on,sp_off iommu=pt iommu.strict=0",
        "iommu_large_pages": False,
    }
    made = host.make_host(fields, "host")
    (tmp_path / "host.json").write_text(host.write(made))
    assert host.load(tmp_path / "host.json") == made


def test_what_a_host_does_not_show_is_no_default():
    fields = kvm_host.read_files(files_of())
    assert {key: value for key, value in fields.items() if seen(value)} == {}
    assert "KVM is not loaded" in fields["module_parameters"].not_observable
    assert host.make_host(fields, "host").iommu_options == fields["iommu_options"]
    fields = kvm_host.read_files(files_of(**{"proc/cmdline": "ro quiet\n"}))
    assert fields["iommu_options"] == "none"
    assert "iommu_large_pages" not in fields
    pages = {"sys/module/vfio_iommu_type1/parameters/disable_hugepages": "Y"}
    fields = kvm_host.read_files(files_of("sys/module/kvm/parameters/nested", **pages))
    assert fields["module_parameters"]["kvm.nested"].startswith("not observable (")
    assert fields["iommu_large_pages"] is False


def vm(process, name, qemu=QEMU, **files):
    """Return the lines that the script prints of a VM's process."""
    words = f"{qemu} -name guest={name},debug-threads=on".split()
    lines = [("cmdline", word) for word in words] + list(files.items())
    return "".join(f"/proc/{process}/{file}:{line}\n" for file, line in lines)


PACKAGE = "qemu-kvm-core 9.0.0-10.el9"


def test_the_vms_of_a_host():
    alike = {"exe": "/usr/libexec/qemu-kvm", "package": PACKAGE}
    text = vm(11, "n1", **alike) + vm(12, "n2", **alike)
    text += "".join(f"/virsh/n1:{line}\n" for line in LIBVIRT.splitlines())
    vms = kvm_host.read_vms(gather.parse(f"{text}virtqual-look/1\n"))
    assert list(vms) == ["n1", "n2"]
    assert vms["n1"]["vcpus_pinned"] is True
    assert kvm_host.select_vm(vms, "n2") == host.read_qemu(QEMU.split()) | {"qemu_package": PACKAGE}
    common = kvm_host.select_vm(vms)
    assert common["qemu_package"] == PACKAGE
    assert common["vcpus"].not_observable == "differs between the VMs n1, n2: name one by --vm"
    assert common["vcpus"].differs
    assert kvm_host.select_vm({}) == {}
    with pytest.raises(UsageError, match="no VM 'n3' runs on this host; those that do: n1, n2"):
        kvm_host.select_vm(vms, "n3")


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"exe": "/usr/bin/q (deleted)"}, "/usr/bin/q: replaced since the VM was started"),
        ({"exe": "/opt/q"}, "no package of this host has /opt/q"),
        ({}, "/proc/11/exe: permission denied, only root sees QEMU's binary"),
    ],
    ids=["an upgrade", "an own build", "no root"],
)
def test_an_unknown_package_of_qemu_has_a_reason(files, says):
    vms = kvm_host.read_vms(gather.parse(f"{vm(11, 'n1', **files)}virtqual-look/1\n"))
    assert vms["n1"]["qemu_package"].not_observable == says
    assert vms["n1"]["qemu_package"].differs == ("replaced" in says)


def test_the_script_on_this_machine(tmp_path):
    copy = shutil.copy("/bin/sleep", tmp_path / "qemu-system-x86_64")
    gathered, libvirt, host_file = (tmp_path / name for name in ("gathered", "vm.xml", "host.json"))
    with subprocess.Popen([copy, "60"]) as process:
        vm_name = f"process {process.pid}"
        with gathered.open("w") as output:
            subprocess.run(["sh", "-c", call("host", "--script").output], stdout=output, check=True)
        direct = json.loads(call("host", "--here", "--vm", vm_name).output)
        process.kill()
    options = ["host", "--from", gathered, "--vm", vm_name]
    record = json.loads(call(*options).output)
    assert record["qemu_package"] == {"not_observable": f"no package of this host has {copy}"}
    assert {**record, "source": "this machine"} == direct
    assert {"kernel", "turbo", "module_parameters", "iommu_options"} <= record.keys()
    libvirt.write_text(LIBVIRT)
    host_file.write_text(call(*options, "--libvirt", libvirt).output)
    assert json.loads(host_file.read_text())["vcpus"] == 2
    assert "qemu package" in call("identity", "--host", host_file).output


@pytest.mark.parametrize("options", [["--vm", "n1"], ["--here", "--from", "x"]])
def test_options_that_do_not_go_together(options):
    call("host", *options, code=2)


def test_the_command(tmp_path):
    (tmp_path / "vm.vmx").write_text(VMX)
    (tmp_path / "cli.txt").write_text(ESXCLI)
    done = call("host", "--vmx", tmp_path / "vm.vmx", "--esxcli", tmp_path / "cli.txt", code=0)
    assert json.loads(done.output)["source"] == ".vmx and esxcli"
    (tmp_path / "host.json").write_text(done.output)
    shown = call("identity", "--host", tmp_path / "host.json", "--json")
    assert json.loads(shown.output)["host"]["build"] == "8.0.3-24022510"
    call("host", code=2)


@pytest.mark.parametrize(
    ("option", "vcpus"), [("4", 4), ("cpus=4,sockets=2", 4), ("sockets=2,cores=64,threads=2", 256)]
)
def test_vcpus_of_a_topology(option, vcpus):
    assert host.read_qemu(["-smp", option, "-m", "1T"]) == host.read_qemu(
        ["-smp", str(vcpus), "-m", "1048576M"]
    )


def test_a_vcpu_on_all_cpus_is_not_pinned():
    floats = LIBVIRT.replace("cpuset='0'", "cpuset='0-63,^3'").replace("cpuset='1'", "cpuset='0-63'")
    assert host.read_libvirt(LIBVIRT)["vcpus_pinned"]
    assert not host.read_libvirt(floats)["vcpus_pinned"]
    assert host.read_libvirt(LIBVIRT.replace("cpuset='0'", "cpuset='0,^0,3'"))["vcpus_pinned"]
    with pytest.raises(UsageError, match="is no list of CPUs"):
        host.read_libvirt(LIBVIRT.replace("cpuset='0'", "cpuset='all'"))


@pytest.mark.parametrize(("unit", "mib"), [("TiB", 2**20), ("GB", 953), ("KiB", 0)])
def test_memory_in_every_unit_of_libvirt(unit, mib):
    text = re.sub(r"<memory[ >][^<]*</memory>", f"<memory unit='{unit}'>1</memory>", LIBVIRT)
    assert host.read_libvirt(text)["memory_mib"] == mib


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("dumpxml-with-notice.xml", {"vcpus": 2, "vcpus_pinned": False, "memory_pinned": False}),
        ("edit-comment.xml", {"vcpus": 1, "memory_mib": 64}),
        ("kubevirt-4687.xml", {"vcpus": 4, "vcpus_pinned": True, "memory_pinned": False}),
        (
            "kubevirt-hotplug.xml",
            {
                **{"vcpus": 64, "vcpus_pinned": True, "memory_pinned": True, "virtual_numa_nodes": 2},
                **{"memory_mib": 245760, "memory_backing": "huge pages", "hardware": "pc-q35-rhel9.4.0"},
            },
        ),
        ("nova-2015.xml", {"vcpus": 1, "vcpus_pinned": False, "memory_pinned": False, "memory_mib": 512}),
        ("nova-test-pins.xml", {"vcpus": 2, "memory_pinned": False}),
        ("numatune-all.xml", {"vcpus": 128, "vcpus_pinned": False, "memory_pinned": False}),
        ("pin-two-cores.xml", {"vcpus": 4, "vcpus_pinned": False, "memory_pinned": False}),
        (
            "qemu-kubevirt.txt",
            {"vcpus": 64, "memory_mib": 256000, "accelerator": "kvm", "hardware": "pc-q35-rhel9.4.0"},
        ),
        ("vmx-crlf.vmx", {"vcpus": 64, "memory_mib": 262144, "latency_sensitivity": "high"}),
        ("vmx-debian.vmx", {"vcpus": 1, "vcpus_pinned": False, "memory_reserved": True}),
        ("vmx-nospace.vmx", {"vcpus": 64, "hardware": "vmx-7", "memory_reserved": False}),
        ("vmx-openebs.vmx", {"vcpus": 8, "vcpus_pinned": True, "memory_reserved": True}),
        ("esxcli-crlf.txt", {"build": "8.0.3-24022510"}),
        ("esxcli-wfs.txt", {"numa_nodes": 2, "cpus_per_node": 24, "memory_mib_per_node": 65261, "smt": "on"}),
    ],
)
def test_vms_and_hosts_of_other_people(file, expected):
    option = {"xml": "--libvirt", "vmx": "--vmx"}.get(file[-3:], "--qemu" if "qemu" in file else "--esxcli")
    record = json.loads(call("host", option, OTHERS / file, code=0).output)
    assert {key: record.get(key) for key in expected} == expected


def test_output_of_esxcli_in_another_form_is_refused_with_the_remedy():
    done = call("host", "--esxcli", OTHERS / "esxcli-xml.txt", code=2)
    assert "without --formatter" in done.output


PINNED_TO_PAIRS = LIBVIRT.replace("cpuset='0'", "cpuset='0,64'").replace("cpuset='1'", "cpuset='1,65'")


def test_a_vcpu_on_two_cpus_is_pinned_if_they_are_one_core():
    one_core = {0: frozenset({0, 64}), 1: frozenset({1, 65})}
    two_cores = {cpu: frozenset({cpu}) for cpu in (0, 1, 64, 65)}
    assert host.read_libvirt(PINNED_TO_PAIRS, one_core)["vcpus_pinned"] is True
    assert host.read_libvirt(PINNED_TO_PAIRS, two_cores)["vcpus_pinned"] is False
    assert (
        "whether they are one core is only"
        in host.read_libvirt(PINNED_TO_PAIRS)["vcpus_pinned"].not_observable
    )
    four_threads = LIBVIRT.replace("cpuset='0'", "cpuset='0-3'").replace("cpuset='1'", "cpuset='4-7'")
    cores = {cpu: frozenset(range(cpu // 4 * 4, cpu // 4 * 4 + 4)) for cpu in range(8)}
    assert host.read_libvirt(four_threads, cores)["vcpus_pinned"] is True
    assert host.read_libvirt(four_threads)["vcpus_pinned"] is False


@pytest.mark.parametrize(
    ("numatune", "memory_pinned"),
    [
        ("<memory mode='strict' nodeset='0'/>", True),
        ("<memory nodeset='0'/>", True),
        ("<memory mode='restrictive' nodeset='1'/>", True),
        ("<memory mode='strict' nodeset='0-1'/>", False),
        ("<memory mode='strict' nodeset='0-1,^1'/>", True),
        ("<memory mode='preferred' nodeset='0'/>", False),
        ("<memory mode='interleave' nodeset='0-1'/>", False),
        ("<memory mode='strict' placement='auto'/>", False),
        ("<memory placement='auto'/>", False),
    ],
)
def test_memory_is_pinned_to_one_node(numatune, memory_pinned):
    text = LIBVIRT.replace("<memory mode='strict' nodeset='0'/>", numatune)
    assert host.read_libvirt(text)["memory_pinned"] is memory_pinned


@pytest.mark.parametrize(
    ("backend", "memory_pinned"),
    [("host-nodes=0-1", False), ("host-nodes=0,host-nodes=1", False), ("host-nodes=1", True)],
)
def test_qemu_binds_memory_to_one_node(backend, memory_pinned):
    bound = BOUND.replace("host-nodes=0", backend)
    assert host.read_qemu(f"{QEMU} {bound}".split())["memory_pinned"] is memory_pinned


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees which file a process runs")
def test_the_version_of_another_file_than_the_one_of_that_path_is_read_from_it(tmp_path):
    """As in a container, whose QEMU has a path that is another file, or none, on its host."""
    binary = shutil.copy("/bin/sleep", tmp_path / "qemu-kvm")
    with binary.open("ab") as file:
        file.write(b"\0QEMU emulator version 8.2.0 (qemu-kvm-8.2.0-11.el9)\nCopyright\0")
    with subprocess.Popen([binary, "60"]) as process:
        shutil.copy("/bin/true", tmp_path / "another")
        (tmp_path / "another").rename(binary)
        printed = subprocess.run(["sh", "-c", kvm_host.script()], capture_output=True, text=True, check=True)
        process.kill()
    files = gather.parse(printed.stdout)
    assert files.texts[f"/proc/{process.pid}/version"] == (
        "QEMU emulator version 8.2.0 (qemu-kvm-8.2.0-11.el9)"
    )
    in_container = dict(files.texts) | {f"/proc/{process.pid}/exe": "/usr/libexec/qemu-kvm"}
    vms = kvm_host.read_vms(gather.NodeFiles(in_container, {}))
    assert vms[f"process {process.pid}"]["qemu_package"] == (
        "QEMU 8.2.0 (qemu-kvm-8.2.0-11.el9), not of this host's packages"
    )


@pytest.mark.parametrize(
    ("elements", "expected"),
    [
        # cputune-numatune: numad chooses, and a balloon has half of the memory.
        (
            "<memory unit='KiB'>131072</memory><currentMemory unit='KiB'>65536</currentMemory>"
            "<vcpu placement='auto' current='2'>6</vcpu><cputune><emulatorpin cpuset='1-3'/>"
            "<iothreadpin iothread='1' cpuset='2'/></cputune>"
            "<numatune><memory mode='strict' placement='auto'/></numatune>",
            {"vcpus": 2, "memory_mib": 64, "vcpus_pinned": False, "memory_pinned": False},
        ),
        # numatune-memnode
        (
            "<vcpu placement='static'>32</vcpu><numatune><memnode cellid='0' mode='preferred' nodeset='3'/>"
            "<memory mode='strict' nodeset='0-7'/><memnode cellid='2' mode='strict' nodeset='1-2,5-7,^6'/>"
            "</numatune><cpu><numa><cell id='0'/><cell id='1'/><cell id='2'/></numa></cpu>",
            {"vcpus": 32, "virtual_numa_nodes": 3, "memory_pinned": False},
        ),
        # numad-auto-vcpu-static-numatune
        (
            "<vcpu placement='auto'>2</vcpu><numatune><memory mode='interleave' nodeset='0'/></numatune>",
            {"vcpus": 2, "vcpus_pinned": False, "memory_pinned": False},
        ),
        # cpu-hotplug-startup, with pins for the vCPUs that are there
        (
            "<vcpu placement='static' current='3'>6</vcpu><vcpus><vcpu id='0' enabled='yes'/>"
            "<vcpu id='1' enabled='no'/><vcpu id='2' enabled='no'/><vcpu id='3' enabled='no'/>"
            "<vcpu id='4' enabled='yes'/><vcpu id='5' enabled='yes'/></vcpus><cputune>"
            "<vcpupin vcpu='0' cpuset='8'/><vcpupin vcpu='4' cpuset='9'/><vcpupin vcpu='5' cpuset='10'/>"
            "</cputune>",
            {"vcpus": 3, "vcpus_pinned": True},
        ),
        # memory-hotplug-dimm-addr
        (
            "<maxMemory slots='16' unit='KiB'>1099511627776</maxMemory><memory unit='KiB'>7434230</memory>"
            "<currentMemory unit='KiB'>7434230</currentMemory><vcpu placement='static' cpuset='0-1'>2</vcpu>",
            {"vcpus": 2, "vcpus_pinned": False, "memory_mib": 7259},
        ),
        # cputune
        (
            "<vcpu placement='static'>2</vcpu><cputune><vcpupin vcpu='0' cpuset='0'/>"
            "<vcpupin vcpu='1' cpuset='1'/><emulatorpin cpuset='1'/></cputune>",
            {"vcpus": 2, "vcpus_pinned": True},
        ),
    ],
)
def test_domains_of_libvirts_own_tests(elements, expected):
    fields = host.read_libvirt(f"<domain type='kvm'><name>a</name>{elements}</domain>")
    assert {key: fields[key] for key in expected} == expected


THREADS = """
import ctypes, os, sys, threading, time

def name(text):
    ctypes.CDLL(None).prctl(15, text, 0, 0, 0)

def run():
    name(b"CPU 0/KVM")
    os.sched_setaffinity(threading.get_native_id(), {min(os.sched_getaffinity(0))})
    ready.set()
    time.sleep(60)

ready = threading.Event()
threading.Thread(target=run, daemon=True).start()
ready.wait()
name(b"qemu-kvm")
print("ready", flush=True)
time.sleep(60)
"""


def test_the_threads_of_vcpus_show_where_they_may_run():
    """As for KubeVirt, whose libvirt is in a container of its own."""
    with subprocess.Popen([sys.executable, "-c", THREADS], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        printed = subprocess.run(["sh", "-c", kvm_host.script()], capture_output=True, text=True, check=True)
        process.kill()
    files = gather.parse(printed.stdout)
    assert files.texts[f"/proc/{process.pid}/vcpu"] == str(min(os.sched_getaffinity(0)))
    assert kvm_host.read_vms(files)[f"process {process.pid}"]["vcpus_pinned"] is True
    loose = {**files.texts, f"/proc/{process.pid}/vcpu": "0-63\n0-63"}
    vms = kvm_host.read_vms(gather.NodeFiles(loose, {}))
    assert vms[f"process {process.pid}"]["vcpus_pinned"] is False
