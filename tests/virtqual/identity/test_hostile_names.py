"""Names that other people choose are text in the scripts that run on hosts and nodes."""

import hashlib
import os
import shutil
import subprocess

import pytest

import virtqual.job
from calling import call
from made_programs import write_program
from virtqual.identity import gather, kvm_host, readers
from virtqual.identity.cpus import cpu_list
from virtqual.stack import loaded

SHELLS = [["dash"], ["busybox", "sh"], ["bash", "--posix"]]
NAMES = (
    "plain",
    "my vm",
    "*",
    "x|;1eid>pwned;#",
    "x|;w pwned",
    "$(touch pwned)",
    "`touch pwned`",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "a:b",
    "back\\slash\\n\\c",
    "-n",
    "%s%n",
    "next\u2028/sys/module/kvm/parameters/ignore_msrs:FORGED",
    "return\r/sys/module/kvm/parameters/ignore_msrs:FORGED",
    # Numbers of other VMs: virsh takes a word for a number, then for a UUID, then for a name.
    "3",
    "1",
    "00000000-0000-0000-0000-000000000002",
)
VIRSH = """#!/bin/sh
cd "$VMS" || exit
case "$1 $2" in
    'list --name') cat names ;;
    'list --uuid') ls xml.* | sed 's/^xml[.]/00000000-0000-0000-0000-/' ;;
    dumpxml*)
        case $3 in
            [0-9] | [0-9][0-9]) cat "xml.$(printf %012d "$3")" ;;
            00000000-*) cat "xml.${3##*-}" ;;
            *) grep -lxF -e "$3" name.* | sed 's/^name/xml/' | xargs cat ;;
        esac ;;
esac
"""


@pytest.fixture(params=SHELLS, ids=" ".join)
def shell(request):
    if not shutil.which(request.param[0]):
        pytest.skip(f"no {request.param[0]} on this machine")
    return request.param


def gathered(shell, path, directory, **env):
    """Return what the script for KVM hosts prints, with the programs of a path before all others."""
    env = {"PATH": f"{path}:/usr/sbin:/usr/bin:/bin", "HOME": "/nonexistent", **env}
    done = subprocess.run(
        [*shell, "-c", kvm_host.script()], cwd=directory, env=env, capture_output=True, timeout=60
    )
    return gather.parse(done.stdout.decode(errors="replace"))


def test_the_names_of_vms_are_no_program(shell, tmp_path):
    programs, vms, work = (tmp_path / name for name in ("bin", "vms", "work"))
    for directory in (programs, vms, work):
        directory.mkdir()
    for name in ("one", "two", "three"):
        (work / name).touch()
    write_program(programs / "virsh", VIRSH)
    (vms / "names").write_bytes("".join(f"{name}\n" for name in NAMES).encode() + b"\n")
    for number, name in enumerate(NAMES):
        (vms / f"name.{number:012}").write_bytes(f"{name}\n".encode())
        text = name.replace("&", "&amp;").replace("<", "&lt;").replace("\r", "&#13;")
        (vms / f"xml.{number:012}").write_bytes(
            f"<domain type='kvm'>\n  <name>{text}</name>\n<vcpu>{number + 1}</vcpu></domain>\n".encode()
        )
    files = gathered(shell, programs, work, VMS=str(vms))
    assert sorted(entry.name for entry in work.iterdir()) == ["one", "three", "two"]
    assert len(files.under("/virsh")) == len(NAMES)
    assert files.texts.get("/sys/module/kvm/parameters/ignore_msrs", "") in ("N", "Y", "")
    processes = "".join(
        f"/proc/{number}/cmdline:{word}\n"
        for number, name in enumerate(NAMES)
        if "\r" not in name
        for word in ("-name", f"guest={name.replace(',', ',,')}")
    )
    # VMs may run on this machine.
    domains = {path: text for path, text in files.texts.items() if path.startswith("/virsh/")}
    vms_of_files = kvm_host.read_vms(
        gather.NodeFiles({**domains, **gather.parse(f"{processes}{gather.LAST_LINE}\n").texts}, {})
    )
    assert {name: fields["vcpus"] for name, fields in vms_of_files.items()} == {
        name: number + 1 for number, name in enumerate(NAMES) if "\r" not in name
    }


def test_the_path_of_an_executable_is_one_line(shell, tmp_path):
    """Any user may name a process qemu, and its executable as they like."""
    directory = tmp_path / "a\n/sys/module/kvm/parameters/ignore_msrs:FORGED\n" / "b* \\c [x]"
    directory.mkdir(parents=True)
    binary = shutil.copy("/bin/sleep", directory / "qemu-system-x86_64")
    with subprocess.Popen([binary, "60"]) as process:
        files = gathered(shell, "/usr/bin", tmp_path)
        process.kill()
    assert "FORGED" not in files.texts.get("/sys/module/kvm/parameters/ignore_msrs", "")
    if os.geteuid() == 0:
        assert files.texts[f"/proc/{process.pid}/exe"] == str(binary).replace("\n", "?")
    assert f"/proc/{process.pid}/package" not in files.texts


def test_only_programs_that_run_vms_are_vms(shell, tmp_path):
    names = ("qemu-system-x86_64", "qemu-kvm", "kvm", "qemu-img", "qemu-storage-daemon", "qemu-pr-helper")
    binaries = [shutil.copy("/bin/sleep", tmp_path / name) for name in names]
    processes = [subprocess.Popen([binary, "60"]) for binary in binaries]
    try:
        files = gathered(shell, "/usr/bin", tmp_path)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    is_vm = [f"/proc/{process.pid}/cmdline" in files.texts for process in processes]
    assert dict(zip(names, is_vm, strict=True)) == {name: name in names[:3] for name in names}


def test_arguments_of_qemu_stay_those_of_their_process(shell, tmp_path):
    binary = shutil.copy("/bin/dash", tmp_path / "qemu-system-x86_64")
    forged = "/sys/module/kvm/parameters/ignore_msrs:FORGED"
    words = [f"0{end}{forged}" for end in "\n\r\u2028"]
    with subprocess.Popen([binary, "-c", "read line", *words], stdin=subprocess.PIPE) as process:
        files = gathered(shell, "/usr/bin", tmp_path)
        process.kill()
    assert "FORGED" not in files.texts.get(forged.partition(":")[0], "")
    assert files.texts[f"/proc/{process.pid}/cmdline"].count("FORGED") == 3


def test_a_comma_in_the_name_of_a_vm_makes_it_no_other_vm():
    words = ["-name", "guest=vm1,,x,debug-threads=on", "-smp", "2"]
    text = "".join(f"/proc/7/cmdline:{word}\n" for word in words)
    assert list(kvm_host.read_vms(gather.parse(f"{text}{gather.LAST_LINE}\n"))) == ["vm1,x"]


@pytest.mark.parametrize("name", ["my program", "*", "a\\nb\\c", "[a]b", 'it\'s "$(x)"', "-n"])
def test_a_program_of_any_path_is_seen(tmp_path, name, shell):
    if shell[0] == "busybox":
        pytest.skip("seen.sh needs the tools of GNU, which busybox replaces by its own")
    directory = tmp_path / name
    directory.mkdir()
    library = next(
        line.split()[2] for line in subprocess.check_output(["ldd", "/bin/sh"], text=True).splitlines()
        if "libc.so" in line
    )  # fmt: skip
    shutil.copy(library, directory / "libc.so.6")
    program = shutil.copy("/bin/sleep", directory / name)
    files = shutil.copytree(next(iter(virtqual.job.__path__)), tmp_path / "job files")
    env = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(directory), "USER": f"test-{os.getpid()}"}
    try:
        records = []
        for _ in range(2):  # the second is what the first has kept in memory
            done = subprocess.run(
                [*shell, "-c", '. ./seen.sh; virtqual_seen "$1"', "sh", str(program)],
                cwd=files, env=env, capture_output=True, check=True,
            )  # fmt: skip
            records.append(loaded.parse(done.stdout.decode(), "n1"))
    finally:
        shutil.rmtree(f"/dev/shm/virtqual-3.{env['USER']}", ignore_errors=True)
    assert records[0] == records[1]
    files = records[0].files
    sha256 = hashlib.sha256((directory / "libc.so.6").read_bytes()).hexdigest()
    assert files["binary"].path == str(program)
    assert (files["libc.so.6"].path, files["libc.so.6"].sha256) == (str(directory / "libc.so.6"), sha256)


# -- sizes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["0-999999999", "65536", "0,70000", "9" * 5000, ",".join(["0-65535"] * 1000) + ",65536"], ids=len
)
def test_a_cpu_that_no_machine_has_is_refused_before_it_costs_memory(text):
    with pytest.raises(ValueError, match="names a CPU above 65535"):
        cpu_list(text)
    assert len(cpu_list("0-65535")) == 65536


@pytest.mark.parametrize("text", ["²", "1_0", "+1", "1-2-3", "-1", "a-b"])
def test_what_the_kernel_does_not_print_is_no_list_of_cpus(text):
    with pytest.raises(ValueError, match="is not a list of CPUs"):
        cpu_list(text)


DOMAIN = "<domain><vcpu>{}</vcpu><cputune><vcpupin vcpu='0' cpuset='{}'/></cputune>{}</domain>"


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("--libvirt", DOMAIN.format("x", "0", ""), "<vcpu>: 'x' is no whole number"),
        ("--libvirt", DOMAIN.format("9" * 5000, "0", ""), "is no whole number"),
        ("--libvirt", DOMAIN.format("1000000", "0", ""), "is no whole number up to 65536"),
        ("--libvirt", DOMAIN.format("2", "0-999999999", ""), "is no list of CPUs"),
        ("--libvirt", DOMAIN.format("2", "0", f"<memory>{'9' * 5000}</memory>"), "<memory>: '999"),
        ("--libvirt", DOMAIN.format("2", "0", "<memory>²</memory>"), "<memory>: '²'"),
        ("--qemu", "qemu\0-smp\0" + "9" * 5000, "-smp"),
        ("--qemu", "qemu\0-smp\0cores=60000,threads=60000,sockets=60000", "up to 65536"),
        ("--qemu", "qemu\0-smp\0²", "-smp"),
        ("--qemu", "qemu\0-m\0" + "9" * 5000, "QEMU: memory"),
        ("--vmx", 'virtualHW.version = "21"\nnumvcpus = "many"', "numvcpus: 'many'"),
        ("--vmx", f'virtualHW.version = "21"\nmemSize = "{"9" * 5000}"', "memSize: '999"),
        ("--esxcli", f"   NUMA Node Count: {'9' * 5000}\n", "NUMA Node Count: '999"),
    ],
)
def test_a_size_that_no_host_has_is_refused_by_the_file(tmp_path, option, text, message):
    file = tmp_path / "handed-in"
    file.write_text(text)
    done = call("host", option, file, COLUMNS="300", code=2)
    assert f"virtqual: {file}: " in done.stderr
    assert message in done.stderr
    assert len(done.stderr) < 400 + len(str(file))


def test_lists_of_a_node_that_name_more_cpus_than_there_are():
    lines = [f"/sys/devices/system/node/node{n}/cpulist:0-65535" for n in range(3)]
    lines.append("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list:0-65535")
    with pytest.raises(gather.GatherError, match="names more than 256 CPUs"):
        readers.read(gather.parse("\n".join([*lines, gather.LAST_LINE])))
