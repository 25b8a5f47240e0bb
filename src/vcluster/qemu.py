"""QEMU: which build a binary is, what accelerates it here, and the command line of a VM."""

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

from vcluster.command import text
from vcluster.errors import ClusterError, OptionError, RequirementError
from vcluster.options import Accelerator, Options
from vcluster.topology import Node

# Programs at addresses of their own are new to a software-emulated CPU each time: at fixed ones a program
# starts in half the time (docs/vcluster.md).
FIXED_ADDRESSES = "norandmaps"
PROBE_SECONDS = 12.0
PROBE_MARK = "vcluster: PROBE OK"
DEFAULT_MACHINE = "pc"
# The second half only shortens the boot: self-tests, auditing, ports and grace periods that no job needs.
_CONSOLE = (
    "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check random.trust_cpu=on net.ifnames=0 "
    "audit=0 apparmor=0 nowatchdog cryptomgr.notests 8250.nr_uarts=2 rcupdate.rcu_expedited=1"
)


@dataclass(frozen=True)
class Build:
    """Identity of a hypervisor build: text of its version, and the binary's path and SHA-256."""

    version: str
    binary: Path
    sha256: str


def identify(binary: Path) -> Build:
    """Return which build a QEMU binary is; the package's version is added where the build does not say it.

    Raises
    ------
    OptionError
        If the binary does not run or is no QEMU.
    """
    first = (text([binary, "--version"], OptionError).splitlines() or [""])[0]
    match = re.match(r"QEMU emulator version (.+)", first)
    if match is None:
        raise OptionError(f"{binary} is no QEMU system emulator: its version line is {first!r}.")
    version = match[1].strip()
    if "(" not in version and (package := _package(binary)):
        version += f" ({package})"
    return Build(version, binary, hashlib.sha256(binary.read_bytes()).hexdigest())


def _package(binary: Path) -> str | None:
    try:
        name = text(["dpkg-query", "-S", binary.resolve()]).partition(":")[0]
        return text(["dpkg-query", "-W", "-f", "Debian ${Version}", name]).strip()
    except ClusterError:
        # No Debian, or a binary that no package brought.
        return None


def exact_machine(binary: Path, machine: str) -> str:
    """Return the versioned machine type behind an alias: ``pc`` is ``pc-i440fx-7.2`` in one build.

    Raises
    ------
    OptionError
        If this build has no such machine.
    """
    names = set()
    for line in text([binary, "-machine", "help"], OptionError).splitlines()[1:]:
        name = line.partition(" ")[0]
        alias = re.search(r"\(alias of ([^)]+)\)", line)
        if name == machine:
            return alias[1] if alias else name
        names.add(name)
    close = ", ".join(sorted(name for name in names if name.startswith(machine[:2]))[:6])
    raise OptionError(f"{binary} knows no machine {machine!r}; some it knows: {close}.")


def accelerator_arguments(accelerator: Literal["kvm", "tcg"]) -> list[str]:
    """Return the arguments that choose the accelerator."""
    return ["-accel", "kvm" if accelerator == "kvm" else "tcg,thread=multi"]


def default_cpu(accelerator: Literal["kvm", "tcg"]) -> str:
    """Return the CPU model that shows the guest all that the accelerator has."""
    return "host" if accelerator == "kvm" else "max"


def choose_accelerator(
    options: Options, build: Build, kernel: Path, initramfs: Path, cache: Path
) -> tuple[Literal["kvm", "tcg"], str]:
    """Decide what runs the guests, and say why.

    ``auto`` boots the guest's own kernel under KVM: a device that opens is no proof, since on some
    machines no guest ever starts under it.

    Raises
    ------
    RequirementError
        If kvm was asked for and does not work.
    """
    if options.accel is Accelerator.TCG:
        return "tcg", "asked for"
    works, reason = probe_kvm(options, build, kernel, initramfs, cache)
    if works:
        return "kvm", reason
    if options.accel is Accelerator.KVM:
        raise RequirementError(f"--accel kvm: {reason}.")
    return "tcg", reason


_BOOT = Path("/proc/sys/kernel/random/boot_id")


def probe_kvm(
    options: Options,
    build: Build,
    kernel: Path,
    initramfs: Path,
    cache: Path,
    *,
    seconds: float = PROBE_SECONDS,
    device: Path = Path("/dev/kvm"),
) -> tuple[bool, str]:
    """Boot a guest under KVM until it says so; the answer is kept for this binary and kernel.

    It is kept until the machine boots again, and where KVM was asked for only if it works: a guest that did
    not boot in time may do so when the machine has less to do.

    Parameters
    ----------
    seconds : float
        How long to wait for the guest.

    Returns
    -------
    tuple of bool and str
        Whether it works, and one clause that says what was seen.
    """
    if not os.access(device, os.R_OK | os.W_OK):
        return False, f"{device} {'may not be opened' if device.exists() else 'does not exist'}"
    settings = [build.sha256, kernel.name, initramfs.name, options.machine, options.cpu, *options.qemu_args]
    store = cache / f"kvm-{hashlib.sha256(repr(settings).encode()).hexdigest()[:16]}.json"
    boot = _BOOT.read_text(encoding="utf-8").strip()
    try:
        kept = json.loads(store.read_text(encoding="utf-8"))
        if kept["boot"] == boot and (kept["works"] or options.accel is not Accelerator.KVM):
            return bool(kept["works"]), str(kept["reason"])
    except (OSError, ValueError, KeyError):
        pass
    works, reason = _boot_probe(options, build.binary, kernel, initramfs, seconds)
    store.parent.mkdir(parents=True, exist_ok=True)
    found = {"works": works, "reason": reason, "boot": boot}
    store.write_text(json.dumps(found), encoding="utf-8")
    return works, reason


def _boot_probe(
    options: Options, binary: Path, kernel: Path, initramfs: Path, seconds: float
) -> tuple[bool, str]:
    command = [
        str(binary), *data_directories(binary), "-accel", "kvm",
        "-machine", options.machine or DEFAULT_MACHINE, "-cpu", options.cpu or "host",
        "-m", "256M", *_BARE, "-serial", "stdio",
        "-kernel", str(kernel), "-initrd", str(initramfs), "-append", f"{_CONSOLE} vcluster.probe",
        *options.qemu_args,
    ]  # fmt: skip
    # A guest that hangs does not answer to anything gentle: subprocess.run kills it.  The output until then
    # counts, which `vcluster.command` would drop.
    try:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as expired:
        seen = (expired.stdout or b"").decode(errors="replace")
        if PROBE_MARK in seen:
            return True, "a guest booted under KVM"
        return False, f"KVM opens, but no guest booted under it within {seconds:g} s"
    except OSError as error:
        return False, f"{binary} does not start: {error}"
    if PROBE_MARK in result.stdout.decode(errors="replace"):
        return True, "a guest booted under KVM"
    last = (result.stderr.decode(errors="replace").strip().splitlines() or ["nothing said"])[-1]
    return False, f"a guest under KVM ended early: {last[:200]}"


_BARE = ("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot")


@dataclass(frozen=True)
class Machine:
    """The virtual hardware that all VMs of a cluster, or all its emulated hosts, share.

    Attributes
    ----------
    root
        The root file system that they get read-only, as the machine below them sees it.
    shared
        Folders that they get read-write, each with the tag by which they mount it.
    vhost
        Whether the kernel of the machine below them carries their packets (vhost-net), not QEMU.
    kernel_options
        What the kernel's command line has beside what all have.
    """

    binary: Path
    accelerator: Literal["kvm", "tcg"]
    machine: str
    cpu: str
    vcpus: int
    memory_mib: int
    kernel: Path
    adapter: str
    vhost: bool
    root: Path
    shared: Mapping[str, Path]
    kernel_options: str
    extra: tuple[str, ...]


def command(machine: Machine, node: Node, *, initramfs: Path, console: Path) -> list[str]:
    """Return the command line of one VM; its tap interface is named after the node.

    Parameters
    ----------
    initramfs : Path
        The archive for this node.
    console : Path
        File that takes all that the guest prints.
    """
    passthrough = "security_model=passthrough,multidevs=remap"
    folders = []
    for tag, path in machine.shared.items():
        folders += ["-fsdev", f"local,id={tag},path={_escaped(path)},{passthrough}"]
        folders += ["-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
    return [
        str(machine.binary),
        *data_directories(machine.binary),
        "-name", f"{node.name},debug-threads=on",
        "-machine", machine.machine,
        *accelerator_arguments(machine.accelerator),
        "-cpu", machine.cpu,
        "-smp", str(machine.vcpus),
        "-m", f"{machine.memory_mib}M",
        *_BARE,
        # Appended to: what a machine said before it was lost is not lost with it.
        "-chardev", f"file,id=console,append=on,path={_escaped(console)}",
        "-serial", "chardev:console",
        "-object", "rng-random,id=rng,filename=/dev/urandom",
        "-device", "virtio-rng-pci,rng=rng",
        "-fsdev", f"local,id=root,path={machine.root},readonly=on,{passthrough}",
        "-device", "virtio-9p-pci,fsdev=root,mount_tag=root",
        *folders,
        "-netdev", f"tap,id=net,ifname={node.name},script=no,downscript=no{',vhost=on' * machine.vhost}",
        "-device", f"{machine.adapter},netdev=net,mac={node.mac},romfile=",
        "-kernel", str(machine.kernel),
        "-initrd", str(initramfs),
        "-append", f"{_CONSOLE} {machine.kernel_options}".strip(),
        *machine.extra,
    ]  # fmt: skip


def data_directories(binary: Path) -> list[str]:
    """Return the arguments by which a QEMU that was only unpacked finds the firmware beside it."""
    share = binary.parent.parent / "share"
    if share == Path("/usr/share"):
        return []
    return [
        word for name in ("qemu", "seabios") if (share / name).is_dir() for word in ("-L", str(share / name))
    ]


def _escaped(path: Path) -> str:
    return str(path).replace(",", ",,")


def vcpu_threads(pid: int) -> dict[int, int]:
    """Return the thread id of each vCPU, as far as QEMU has started and named them.

    One thread that runs all vCPUs in turn counts as vCPU -1.
    """
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text(encoding="utf-8")
        if match := re.match(r"CPU (\d+)/", name):
            found[int(match[1])] = int(task.name)
        elif name.startswith("ALL CPUs/"):
            found[-1] = int(task.name)
    return found


def pin(pid: int, cpus: tuple[int, ...]) -> bool:
    """Bind vCPU k of a VM to the k-th host CPU given; return whether all vCPUs were there."""
    threads = vcpu_threads(pid)
    for index, thread in threads.items():
        os.sched_setaffinity(thread, cpus if index < 0 else {cpus[index]})
    return -1 in threads or len(threads) == len(cpus)


PRIORITY = -10


def prefer(pid: int) -> None:
    """Run a VM before what else runs on the machine, as the task prolog does with tasks of native nodes.

    Measurements beside other load are worth little; both sides get the same priority. Without root nothing
    changes. The scheduling group (autogroup) counts between sessions where the kernel has it, the nice value
    within one and where it has not.
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(f"{PRIORITY}\n", encoding="utf-8")
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, int(thread.name), PRIORITY)
    # QEMU's own loop carries every message between VMs.  Whatever its nice value, it waits for the end of a
    # time slice of the vCPUs that poll for one: docs/vcluster.md has the figures.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(pid, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
