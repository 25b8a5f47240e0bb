"""QEMU: identity of a build, its command line, and the probe of KVM with scripts in its place."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from made_programs import write_program
from vcluster import qemu
from vcluster.errors import OptionError
from vcluster.options import Options
from vcluster.topology import make_nodes

HELP = """Supported machines are:
microvm              microvm (i386)
pc                   Standard PC (i440FX + PIIX, 1996) (alias of pc-i440fx-7.2)
pc-i440fx-7.2        Standard PC (i440FX + PIIX, 1996) (default)
"""


def fake(folder: Path, body: str) -> Path:
    return write_program(
        folder / "qemu",
        "#!/bin/bash\n"
        'case "$*" in\n'
        "--version) echo 'QEMU emulator version 9.9.9 (made up)'; exit ;;\n"
        f"'-machine help') cat <<'E'\n{HELP}E\nexit ;;\n"
        "esac\n" + body,
    )


@pytest.fixture
def device(tmp_path: Path) -> Path:
    path = tmp_path / "kvm"
    path.touch()
    return path


def probe(tmp_path: Path, device: Path, body: str, seconds: float = 5) -> tuple[bool, str]:
    build = qemu.identify(fake(tmp_path, body))
    options = Options(qemu=build.binary, shared=tmp_path)
    cache = tmp_path / "cache"
    return qemu.probe_kvm(options, build, Path("/k"), Path("/i"), cache, seconds=seconds, device=device)


def test_identity(tmp_path: Path) -> None:
    build = qemu.identify(fake(tmp_path, ""))
    assert build.build == "9.9.9 (made up)"
    assert len(build.sha256) == 64
    with pytest.raises(OptionError, match="no QEMU system emulator"):
        qemu.identify(Path("/bin/echo"))
    with pytest.raises(OptionError, match="failed"):
        qemu.identify(tmp_path / "none")


def test_machine_alias(tmp_path: Path) -> None:
    binary = fake(tmp_path, "")
    assert qemu.resolve_machine(binary, "pc") == "pc-i440fx-7.2"
    assert qemu.resolve_machine(binary, "microvm") == "microvm"
    with pytest.raises(OptionError, match="no machine 'pq35'"):
        qemu.resolve_machine(binary, "pq35")


@pytest.mark.parametrize(
    ("body", "seconds", "works", "reason"),
    [
        (f"echo '{qemu.PROBE_MARK}'", 5, True, "a guest booted under KVM"),
        # It boots, but does not power off.
        (f"echo '{qemu.PROBE_MARK}'\nexec sleep 60", 1, True, "a guest booted under KVM"),
        # It hangs and ignores signals.
        (
            "trap '' TERM INT HUP\nwhile :; do read -t 1 < /dev/zero; done", 1, False,
            "KVM opens, but no guest booted under it within 1 s",
        ),
        (
            "echo 'no such thing as KVM' >&2\nexit 1", 5, False,
            "a guest under KVM ended early: no such thing as KVM",
        ),
    ],
)  # fmt: skip
def test_probe(tmp_path: Path, device: Path, body: str, seconds: float, works: bool, reason: str) -> None:
    assert probe(tmp_path, device, body + "\n", seconds) == (works, reason)


def test_probe_is_kept_for_the_same_binary_only(tmp_path: Path, device: Path) -> None:
    count = f'echo x >> "{tmp_path}/runs"; echo "{qemu.PROBE_MARK}"\n'
    for _ in range(2):
        assert probe(tmp_path, device, count)[0]
    assert (tmp_path / "runs").read_text() == "x\n"
    assert not probe(tmp_path, device, "exit 1 # another binary\n")[0]
    assert len(list((tmp_path / "cache").iterdir())) == 2
    for file in (tmp_path / "cache").iterdir():
        assert set(json.loads(file.read_text())) == {"works", "reason", "boot"}


def test_a_failed_probe_is_repeated_after_a_boot(
    tmp_path: Path, device: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = (
        f'echo x >> "{tmp_path}/runs"; [ "$(wc -l < "{tmp_path}/runs")" -gt 1 ] && echo "{qemu.PROBE_MARK}"\n'
    )
    assert not probe(tmp_path, device, count)[0]
    assert not probe(tmp_path, device, count)[0]
    assert (tmp_path / "runs").read_text() == "x\n"
    monkeypatch.setattr(qemu, "read_boot_id", lambda: "another")
    assert probe(tmp_path, device, count)[0]


def test_no_device(tmp_path: Path) -> None:
    assert probe(tmp_path, tmp_path / "none", "") == (False, f"{tmp_path}/none does not exist")


def test_command() -> None:
    machine = qemu.Machine(
        Path("/q"), "tcg", "pc-i440fx-7.2", "max", 2, 1024, Path("/k"), "e1000", False, Path("/"),
        {"shared": Path("/a,b")}, "norandmaps", ("-x", "y"),
    )  # fmt: skip
    node = make_nodes("virtual", 1, 2, [0, 1])[0]
    line = qemu.command(machine, node, initramfs=Path("/i"), console=Path("/c"))
    assert line[0] == "/q"
    assert line[-2:] == ["-x", "y"]
    text = " ".join(line)
    for part in (
        "-machine pc-i440fx-7.2 -accel tcg,thread=multi -cpu max -smp 2 -m 1024M",
        "path=/a,,b,security_model=passthrough",
        "id=root,path=/,readonly=on",
        "ifname=vm1,script=no",
        "-device e1000,netdev=net,mac=02:00:0a:4d:02:01",
        "rcupdate.rcu_expedited=1 norandmaps",
        "-no-user-config",
    ):
        assert part in text


def test_a_qemu_that_was_only_unpacked_is_told_where_its_firmware_is(tmp_path: Path) -> None:
    for folder in ("bin", "share/qemu", "share/seabios"):
        (tmp_path / folder).mkdir(parents=True)
    options = qemu.firmware_options(tmp_path / "bin/qemu-system-x86_64")
    assert options == ["-L", str(tmp_path / "share/qemu"), "-L", str(tmp_path / "share/seabios")]
    assert qemu.firmware_options(Path("/usr/bin/qemu-system-x86_64")) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise a priority")
def test_no_vcpu_delays_qemus_own_loop_and_its_helpers_are_ordinary() -> None:
    # The process stands for QEMU's loop; its child is started, as QEMU's helpers are, when it runs already.
    script = "read -r _; sleep 30 & echo $!; wait"
    with subprocess.Popen(["sh", "-c", script], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        qemu.raise_priority(process.pid)
        process.stdin.write("go\n")
        process.stdin.flush()
        helper = int(process.stdout.readline())
        policies = [os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK for pid in (process.pid, helper)]
        os.kill(helper, 9)
        process.kill()
    assert policies == [os.SCHED_FIFO, os.SCHED_OTHER]
