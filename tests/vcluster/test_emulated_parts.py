"""What emulated hosts are made of, as far as that can be told without one."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from cluster_under_test import make_options
from typer.testing import CliRunner

from made_programs import write_program
from vcluster import emulated, fetch, nodefiles, preparation, qemu, topology
from vcluster.cli import app
from vcluster.directory import StateDirectory
from vcluster.errors import NodeError, OptionError, RequirementError
from vcluster.kernel import GuestKernel
from vcluster.options import Hosts, parse_hosts, parse_kvm
from vcluster.state import QemuBuild

KERNEL = GuestKernel("6.1", Path("/k"), Path("/base"))
FILES = nodefiles.BootFiles(KERNEL, Path("/image"), Path("/i"), None)
BUILD = QemuBuild(build="7.2.22", binary=Path("/q"), sha256="0")


def test_hosts() -> None:
    assert parse_hosts("here", None) == (Hosts.HERE, 2)
    assert parse_hosts("auto", 3) == (Hosts.AUTO, 3)
    assert parse_hosts("emulated", None) == (Hosts.EMULATED, 2)
    assert parse_hosts("emulated:4", None) == parse_hosts("emulated:4", 4) == (Hosts.EMULATED, 4)
    for text in ("emulated:", "here:2", "there"):
        with pytest.raises(
            OptionError, match=f"--hosts '{text}': expected auto, here, emulated or emulated:N"
        ):
            parse_hosts(text, None)
    with pytest.raises(OptionError, match="--hosts emulated:2 --vms 1: an emulated host carries one VM"):
        parse_hosts("emulated:2", 1)


@pytest.mark.parametrize(
    ("option", "value"), [("--vms", "0"), ("--vcpus", "0"), ("--memory", "100M"), ("--mac", "03:00:0a:4d")]
)
def test_an_option_that_is_out_of_bounds_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, value: str
) -> None:
    monkeypatch.setenv("VCLUSTER_DIR", str(tmp_path))
    done = CliRunner().invoke(app, ["up", option, value])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"vcluster: {option} {value.removesuffix('M')}: ")


def test_parameters_of_kvm_go_to_the_module_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"kvm": ["halt_poll_ns"], "kvm_amd": ["npt", "avic"]}
    monkeypatch.setattr(emulated, "_list_parameters", lambda _, module: names[module])
    values = parse_kvm(["npt=0", "halt_poll_ns=0"])
    assert emulated.assign_parameters(KERNEL, values) == {"kvm": ["halt_poll_ns=0"], "kvm_amd": ["npt=0"]}
    with pytest.raises(OptionError, match="no such parameter; they have avic, halt_poll_ns, npt"):
        emulated.assign_parameters(KERNEL, {"ept": "0"})
    for wrong in (["npt"], ["npt=0", "npt=1"], ["npt=0 avic=1"]):
        with pytest.raises(OptionError, match="expected PARAMETER=VALUE"):
            parse_kvm(wrong)


def test_a_host_has_memory_for_its_node_its_vm_and_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "list_missing_modules", lambda *_: [])
    monkeypatch.setattr(emulated, "_list_parameters", lambda *_: [])
    chosen = make_options(vcpus=1, memory_mib=1024)
    assert emulated.host_memory_mib(chosen) == 2560
    monkeypatch.setattr(emulated, "read_memory_mib", {"MemAvailable": 5120}.__getitem__)
    emulated.check_host(KERNEL, chosen)
    monkeypatch.setattr(emulated, "list_missing_modules", lambda *_: ["kvm_amd"])
    with pytest.raises(RequirementError, match=r"kernel 6\.1 lacks kvm_amd"):
        emulated.check_host(KERNEL, chosen)
    monkeypatch.setattr(emulated, "list_missing_modules", lambda *_: [])
    monkeypatch.setattr(emulated, "read_memory_mib", {"MemAvailable": 5119}.__getitem__)
    with pytest.raises(OptionError, match="2 hosts of 2560 MiB need 5120 MiB, and this machine has 5119 MiB"):
        emulated.check_host(KERNEL, chosen)


def test_a_host_gets_the_command_line_of_its_vm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "_list_parameters", lambda *_: ["npt"])
    vm = topology.make_nodes("virtual", 1, 1, [0])[0]
    chosen = make_options(vcpus=1, kvm={"npt": "0"}, pin=False)
    entries = emulated.make_entries(vm, ["/q", "-append", "a b"], KERNEL, chosen, Path("/logs"))
    texts = {entry.path: entry.content.decode() for entry in entries}
    assert texts["node/vm"] == "exec /q -append 'a b'\n"
    assert texts["node/host.env"] == "VM=vm1\nLOGS=/logs\nKVM=npt=0\nKVM_AMD=''\nPIN=''\n"
    assert "vm.pid" in texts["node/boot-vm-anew"]


def test_a_disk_of_a_host_is_new_at_each_start_and_waits_for_no_flush(tmp_path: Path) -> None:
    image = tmp_path / "a,b.disk"
    image.write_bytes(bytes(2**20) + b"of an earlier start")
    options = emulated.make_disk(image)
    assert options == ["-drive", f"file={tmp_path}/a,,b.disk,format=raw,if=virtio,cache=unsafe"]
    assert image.stat().st_size == emulated.DISK_MIB * 2**20
    content = image.read_bytes()
    assert b"of an earlier start" not in content
    assert content[0x438:0x43A] == b"\x53\xef"  # the magic number of ext4


def test_the_host_is_not_run_by_the_build_under_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu, "resolve_machine", lambda *_: "pc-i440fx-10.0")
    vm = qemu.Machine(
        Path("/q"), "kvm", "pc", "host", 1, 1024, Path("/k"), "e1000", True, emulated.ROOT, {}, "", ("-x",)
    )  # fmt: skip
    host = emulated.make_machine(vm, Path("/emulator"), make_options(vcpus=1, memory_mib=1024), Path("/logs"))
    node = topology.make_nodes("native", 1, 1, [0])[0]
    line = qemu.command(host, node, initramfs=Path("/i"), console=Path("/c"))
    assert line[0] == "/emulator"
    text = " ".join([*line, *emulated.control_port(Path("/logs"), "host1")])
    for part in (
        "-accel tcg,thread=multi -cpu max,+svm,-xsave,-avx,-avx2,-f16c,-fma,-vaes -smp 1 -m 2560M",
        "id=root,path=/,readonly=on",
        "id=logs,path=/logs,",
        "-device virtio-net-pci,",
        "watchdog=poweroff",
        "norandmaps nohz=off highres=off tsc=reliable",
        "-serial unix:/logs/host1.control,",
    ):
        assert part in text
    assert "-x" not in line
    assert "vhost" not in text
    own = qemu.command(
        vm, topology.make_nodes("virtual", 1, 1, [0])[0], initramfs=Path("/i"), console=Path("/c")
    )
    assert "ifname=vm1,script=no,downscript=no,vhost=on" in own[own.index("-netdev") + 1]


def test_the_accelerator_follows_the_options_and_the_probe(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(emulated, "find_emulator", lambda _: Path("/emulator"))
    monkeypatch.setattr(qemu, "identify", lambda _: BUILD)
    monkeypatch.setattr(qemu, "probe_kvm", lambda *_: (False, "it hangs"))

    def choose(**more: object) -> tuple[str, str, QemuBuild | None]:
        return preparation.choose_accelerator(
            StateDirectory(tmp_path), make_options(vcpus=1, **more), BUILD, FILES
        )

    assert choose() == ("kvm", "on emulated hosts: it hangs", BUILD)
    assert choose(hosts="emulated") == ("kvm", "on emulated hosts: asked for", BUILD)
    assert choose(hosts="here") == ("tcg", "it hangs", None)
    monkeypatch.setattr(qemu, "probe_kvm", lambda *_: (True, "a guest booted under KVM"))
    assert choose() == choose(hosts="here") == ("kvm", "a guest booted under KVM", None)


@pytest.mark.parametrize(("asked", "model"), [(None, "host"), ("EPYC", "EPYC")])
def test_a_vm_on_an_emulated_host_ends_its_interrupts_by_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: str | None, model: str
) -> None:
    """Without the option a VM panicked within three ping-pongs; with it no VM did in thirty."""
    monkeypatch.setattr(nodefiles, "make_boot_files", lambda *_: FILES)
    monkeypatch.setattr(qemu, "identify", lambda _: BUILD)
    monkeypatch.setattr(qemu, "resolve_machine", lambda *_: "pc")
    monkeypatch.setattr(emulated, "check_host", lambda *_: None)
    for emulator, cpu in ((BUILD, f"{model},kvm-pv-eoi=off"), (None, model)):
        choice = ("kvm", "asked for", emulator)
        monkeypatch.setattr(preparation, "choose_accelerator", lambda *_, choice=choice: choice)
        guests = preparation.choose_guests(StateDirectory(tmp_path), make_options(vcpus=1, cpu=asked), print)
        assert guests.machine.cpu == cpu
        # An idle VM has no ticks.
        assert "nohz" not in guests.machine.kernel_options
    with pytest.raises(OptionError, match="--disk-cache unsafe: only VMs on emulated hosts have a disk"):
        preparation.choose_guests(StateDirectory(tmp_path), make_options(disk_cache="unsafe"), print)
    with pytest.raises(OptionError, match="--kvm: only emulated hosts are given parameters of KVM"):
        preparation.choose_guests(StateDirectory(tmp_path), make_options(kvm={"npt": "0"}), print)


def serve_answer(logs: Path, answer: bytes) -> threading.Thread:
    """Stand in for a host that answers one line, in two parts."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(logs / "host1.control"))
    server.listen()

    def serve() -> None:
        connection, _ = server.accept()
        with server, connection:
            assert connection.recv(100) == b"a line\n"
            connection.sendall(answer[:5])
            connection.sendall(answer[5:])

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_a_line_on_a_host(tmp_path: Path) -> None:
    thread = serve_answer(tmp_path, b"out\nvcluster: exit code 3\n")
    assert emulated.run_on_host(tmp_path, "host1", "a line") == (3, "out\n")
    thread.join()
    (tmp_path / "host1.control").unlink()
    thread = serve_answer(tmp_path, b"out\nvcluster: exit code 3")
    with pytest.raises(NodeError, match="host host1 was lost while it ran 'a line'"):
        emulated.run_on_host(tmp_path, "host1", "a line")
    thread.join()
    with pytest.raises(NodeError, match="host host2 does not answer: No such file"):
        emulated.run_on_host(tmp_path, "host2", "a line")
    with pytest.raises(OptionError, match="runs one line"):
        emulated.run_on_host(tmp_path, "host1", "a line\nanother")


def test_an_emulator_is_looked_at_before_it_is_used(tmp_path: Path) -> None:
    with pytest.raises(RequirementError, match="run `vcluster emulator`"):
        emulated.find_emulator(tmp_path)
    text = "#!/bin/sh\necho could not load module >&2; exit 1\n"
    binary = write_program(tmp_path / emulated.EMULATOR, text)
    with pytest.raises(
        RequirementError, match=r"could not load module\. Remove .*, and run `vcluster emulator`"
    ):
        emulated.find_emulator(tmp_path)
    version = "[ $1 != --version ] || exec echo QEMU emulator version 9.1"
    binary.write_text(f"#!/bin/sh\n{version}\nread -r line; [ $line = quit ]\n")
    messages: list[str] = []
    assert fetch.fetch_emulator(tmp_path, messages.append) == binary
    assert len(messages) == 1
    assert messages[0].startswith("QEMU 9.1")
    assert messages[0].endswith(": already there")
