"""QEMU: which build a binary is, whether KVM works, and the command line of a machine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vcluster.command import read_output
from vcluster.errors import ClusterError, OptionError
from vcluster.options import Options
from vcluster.processes import read_boot_id
from vcluster.state import QemuBuild
from vcluster.topology import Node

# A software-emulated CPU translates a program again if its address is new: at fixed addresses programs start
# in half the time (docs/vcluster.md).
FIXED_ADDRESSES = "norandmaps"
PROBE_SECONDS = 12.0
PROBE_MARK = "vcluster: PROBE OK"
DEFAULT_MACHINE = "pc"
# The second line only shortens the boot: no job needs these tests, audits, ports and grace periods.
KERNEL_OPTIONS = (
    "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check random.trust_cpu=on net.ifnames=0 "
    "audit=0 apparmor=0 nowatchdog cryptomgr.notests 8250.nr_uarts=2 rcupdate.rcu_expedited=1"
)
BARE_MACHINE = ("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot")
# The nice value of tasks on both sides: measurements beside other load are worth little.
PRIORITY = -10


def identify(binary: Path) -> QemuBuild:
    """Return the build of a QEMU binary; the package's version is added if the build does not state it."""
    first_line = (read_output([binary, "--version"], OptionError).splitlines() or [""])[0]
    match = re.match(r"QEMU emulator version (.+)", first_line)
    if match is None:
        raise OptionError(f"{binary} is no QEMU system emulator: its version line is {first_line!r}.")
    version = match[1].strip()
    if "(" not in version:
        # No package is known on systems other than Debian, or for a binary that was built here.
        with contextlib.suppress(ClusterError):
            package = read_output(["dpkg-query", "-S", binary.resolve()]).partition(":")[0]
            package_version = read_output(["dpkg-query", "-W", "-f", "${Version}", package]).strip()
            version += f" (Debian {package_version})"
    return QemuBuild(build=version, binary=binary, sha256=hashlib.sha256(binary.read_bytes()).hexdigest())


def resolve_machine(binary: Path, machine: str) -> str:
    """Return the versioned machine type behind an alias: ``pc`` is ``pc-i440fx-7.2`` in one build."""
    names = []
    for line in read_output([binary, "-machine", "help"], OptionError).splitlines()[1:]:
        name = line.partition(" ")[0]
        if name == machine:
            alias = re.search(r"\(alias of ([^)]+)\)", line)
            return alias[1] if alias else name
        names.append(name)
    similar_names = sorted(name for name in names if name.startswith(machine[:2]))[:6]
    raise OptionError(f"{binary} has no machine {machine!r}; it has for example {', '.join(similar_names)}.")


def probe_kvm(
    options: Options,
    build: QemuBuild,
    kernel: Path,
    initramfs: Path,
    cache: Path,
    *,
    seconds: float = PROBE_SECONDS,
    device: Path = Path("/dev/kvm"),
) -> tuple[bool, str]:
    """Boot the guest's kernel under KVM, as on some machines the device opens but no guest starts.

    Return whether KVM works, and a clause with the reason. The result is kept for this binary and kernel
    until the machine boots again.
    """
    if not os.access(device, os.R_OK | os.W_OK):
        return False, f"{device} {'may not be opened' if device.exists() else 'does not exist'}"
    settings = [build.sha256, kernel.name, initramfs.name, options.machine, options.cpu, *options.qemu_args]
    store = cache / f"kvm-{hashlib.sha256(repr(settings).encode()).hexdigest()[:16]}.json"
    boot = read_boot_id()
    try:
        result = json.loads(store.read_text(encoding="utf-8"))
        if result["boot"] == boot:
            return bool(result["works"]), str(result["reason"])
    except (OSError, ValueError, KeyError):
        pass
    works, reason = _boot_probe(options, build.binary, kernel, initramfs, seconds)
    store.parent.mkdir(parents=True, exist_ok=True)
    store.write_text(json.dumps({"works": works, "reason": reason, "boot": boot}), encoding="utf-8")
    return works, reason


def _boot_probe(
    options: Options, binary: Path, kernel: Path, initramfs: Path, seconds: float
) -> tuple[bool, str]:
    command = [
        str(binary), *firmware_options(binary), "-accel", "kvm",
        "-machine", options.machine or DEFAULT_MACHINE, "-cpu", options.cpu or "host",
        "-m", "256M", *BARE_MACHINE, "-serial", "stdio",
        "-kernel", str(kernel), "-initrd", str(initramfs), "-append", f"{KERNEL_OPTIONS} vcluster.probe",
        *options.qemu_args,
    ]  # fmt: skip
    # `command.run` would drop the output of a guest that has to be killed.
    try:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout or b""
        failure = f"KVM opens, but no guest booted under it within {seconds:g} s"
    except OSError as error:
        return False, f"{binary} does not start: {error}"
    else:
        last_line = (result.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        output, failure = result.stdout, f"a guest under KVM ended early: {last_line[:200]}"
    if PROBE_MARK in output.decode(errors="replace"):
        return True, "a guest booted under KVM"
    return False, failure


@dataclass(frozen=True)
class Machine:
    """The virtual hardware that all VMs of a cluster, or all its emulated hosts, share."""

    binary: Path
    accelerator: Literal["kvm", "tcg"]
    machine: str
    cpu: str
    vcpus: int
    memory_mib: int
    kernel: Path
    adapter: str
    # The kernel of the machine below carries packets (vhost-net), not QEMU.
    vhost: bool
    # The read-only root file system, as the machine below sees it.
    root: Path
    # Read-write folders, each with the tag by which a machine mounts it.
    shared: Mapping[str, Path]
    # Options of the kernel beside `KERNEL_OPTIONS`.
    kernel_options: str
    extra: tuple[str, ...]


def command(machine: Machine, node: Node, *, initramfs: Path, console: Path) -> list[str]:
    """Return the command line of one machine; its tap interface is named after the node."""
    passthrough = "security_model=passthrough,multidevs=remap"
    vhost = ",vhost=on" if machine.vhost else ""
    folders = []
    for tag, path in machine.shared.items():
        folders += ["-fsdev", f"local,id={tag},path={escape(path)},{passthrough}"]
        folders += ["-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
    return [
        str(machine.binary),
        *firmware_options(machine.binary),
        "-name", f"{node.name},debug-threads=on",
        "-machine", machine.machine,
        "-accel", "kvm" if machine.accelerator == "kvm" else "tcg,thread=multi",
        "-cpu", machine.cpu,
        "-smp", str(machine.vcpus),
        "-m", f"{machine.memory_mib}M",
        *BARE_MACHINE,
        # A machine that is started again keeps the last lines before its loss.
        "-chardev", f"file,id=console,append=on,path={escape(console)}",
        "-serial", "chardev:console",
        "-object", "rng-random,id=rng,filename=/dev/urandom",
        "-device", "virtio-rng-pci,rng=rng",
        "-fsdev", f"local,id=root,path={machine.root},readonly=on,{passthrough}",
        "-device", "virtio-9p-pci,fsdev=root,mount_tag=root",
        *folders,
        "-netdev", f"tap,id=net,ifname={node.name},script=no,downscript=no{vhost}",
        "-device", f"{machine.adapter},netdev=net,mac={node.mac},romfile=",
        "-kernel", str(machine.kernel),
        "-initrd", str(initramfs),
        "-append", f"{KERNEL_OPTIONS} {machine.kernel_options}".strip(),
        *machine.extra,
    ]  # fmt: skip


def firmware_options(binary: Path) -> list[str]:
    """Return the options that show an unpacked QEMU the firmware beside it."""
    share = binary.parent.parent / "share"
    if share == Path("/usr/share"):
        return []
    folders = [share / name for name in ("qemu", "seabios") if (share / name).is_dir()]
    return [word for folder in folders for word in ("-L", str(folder))]


def escape(path: Path) -> str:
    """Return a path as a value among others of one option."""
    return str(path).replace(",", ",,")


def pin(pid: int, cpus: tuple[int, ...]) -> bool:
    """Bind vCPU k of a machine to the k-th of these CPUs; return False if QEMU has not started all vCPUs."""
    pinned = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text(encoding="utf-8")
        if match := re.match(r"CPU (\d+)/", name):
            os.sched_setaffinity(int(task.name), {cpus[int(match[1])]})
            pinned += 1
        elif name.startswith("ALL CPUs/"):
            # One thread runs all vCPUs in turn.
            os.sched_setaffinity(int(task.name), cpus)
            return True
    return pinned == len(cpus)


def raise_priority(pid: int) -> None:
    """Run a machine before other programs, as the task prolog does with tasks of native nodes.

    An ordinary user cannot, and nothing changes. The kernel compares scheduling groups (autogroup) between
    sessions, if it has them, and nice values within a session.
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(f"{PRIORITY}\n", encoding="utf-8")
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, int(thread.name), PRIORITY)
    # QEMU's own loop carries all messages between VMs.  At any nice value it waits for the end of a time
    # slice of vCPUs that poll for a message: docs/vcluster.md has the figures.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(pid, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
