"""Emulated hosts: machines made by QEMU's software SVM, each a native node with a real KVM guest beside it.

Native node and guest are equally slow, so that their ratio means what it means on hardware: the guest runs
under KVM of the host's kernel, with real exits, nested paging and steal time.
"""

from __future__ import annotations

import contextlib
import shlex
import socket
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from vcluster import initramfs, qemu
from vcluster.command import run, text
from vcluster.errors import NodeError, OptionError, RequirementError
from vcluster.kernel import GuestKernel, lacking
from vcluster.options import Options
from vcluster.slurm_conf import RUN
from vcluster.topology import Node

# The QEMU that emulates hosts, and what it loads into the machine, with the firmware.  It is unpacked apart,
# so that it stays the same whatever QEMU the VMs run under.
PACKAGES = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios")
EMULATOR = Path("usr/bin/qemu-system-x86_64")
# What a host loads to be one: its VM's network, KVM, and a watchdog that powers it off when it stands still.
MODULES = ("bridge", "tun", "vhost_net", "kvm_amd", "i6300esb")
KVM_MODULES = ("kvm", "kvm_amd", "kvm_intel")
# The machine's files as the host itself gets them, below its own layer in memory.
ROOT = RUN / "root"
# A host needs memory beside its node's and its VM's: for its kernel, and what QEMU itself takes (MiB).
OWN_MEMORY = 512
# Of a host and of its VM.  QEMU changes what interrupts a CPU has at VMRUN and #VMEXIT without a lock: one
# which another thread asks for at that moment can be lost (10.0, target/i386/tcg/system/svm_helper.c).  With
# a tick that comes by itself that costs 4 ms; a tick that the lost interrupt should have ordered never comes.
KERNEL_OPTIONS = f"{qemu.FIXED_ADDRESSES} nohz=off highres=off tsc=reliable"
# The timers of a VM are its host's.  One whose ticks go on while it is idle takes 8 % of its host's CPU.
VM_KERNEL_OPTIONS = f"{qemu.FIXED_ADDRESSES} highres=off tsc=reliable"
# QEMU takes an interrupt that the host's KVM injects at VMRUN for one still to be delivered, until the VM is
# left for the next time (7.2 to 10.0, svm_helper.c: `exception_index` stays set): a thread that asks the CPU
# to pause delivers it again.  Where that hits the entry of a system call, the VM's kernel panics.  With an
# end of interrupt that leaves the VM this is over within the interrupt's handler, where it does no harm.
VM_CPU = "kvm-pv-eoi=off"
# Without XSAVE: a guest's XSETBV does not reach the host's KVM under QEMU 7.2, which then tells the guest
# wrong sizes, so that the host used AVX and the guest did not.  Both take SSE, which is emulated faster.
CPU = "max,+svm,-xsave,-avx,-avx2,-f16c,-fma,-vaes"
BOOT_VM_ANEW = f"sh {RUN}/boot-vm-anew"
_ENDED = "vcluster: exit code "


def name(index: int) -> str:
    """Return the name of the host that native node `index` (from 1) is."""
    return f"host{index}"


def memory_mib(options: Options) -> int:
    """Return the memory of a host in MiB: its node and its VM are of the same size."""
    return 2 * options.memory_mib + OWN_MEMORY


def assert_possible(kernel: GuestKernel, options: Options, available_mib: int) -> None:
    """Make sure that hosts of this kind can be emulated here.

    Raises
    ------
    RequirementError, OptionError
        If the kernel lacks modules, or the machine memory.
    """
    if missing := lacking(kernel, MODULES):
        raise RequirementError(f"--hosts emulated: kernel {kernel.release} lacks {', '.join(missing)}.")
    wanted = options.vms * memory_mib(options)
    if available_mib < wanted:
        raise OptionError(
            f"--hosts emulated: {options.vms} hosts of {memory_mib(options)} MiB need {wanted} MiB, and this "
            f"machine has {available_mib} MiB available: ask for less with --memory or --vms."
        )
    parameters(kernel, options.kvm)


def parameters(kernel: GuestKernel, wanted: Mapping[str, str]) -> dict[str, list[str]]:
    """Return which module of KVM takes which of the parameters, as ``modprobe`` wants them.

    Raises
    ------
    OptionError
        If no module has a parameter of that name.
    """
    known = {module: _parameters_of(kernel, module) for module in ("kvm", "kvm_amd")}
    found: dict[str, list[str]] = {module: [] for module in known}
    for parameter, value in wanted.items():
        takes = [module for module, names in known.items() if parameter in names]
        if not takes:
            raise OptionError(
                f"--kvm {parameter}={value}: kvm and kvm_amd of kernel {kernel.release} have no such "
                f"parameter; they have {', '.join(sorted(set().union(*known.values())))}."
            )
        found[takes[0]].append(f"{parameter}={value}")
    return found


def _parameters_of(kernel: GuestKernel, module: str) -> list[str]:
    shown = text(["modinfo", "-b", str(kernel.base), "-k", kernel.release, "-F", "parm", module])
    return [line.partition(":")[0] for line in shown.splitlines()]


def emulator(folder: Path) -> Path:
    """Return the QEMU in the folder that its packages were unpacked in.

    Raises
    ------
    RequirementError
        If there is none, or it cannot emulate.
    """
    binary = folder / EMULATOR
    if not binary.exists():
        raise RequirementError(
            f"no QEMU that emulates hosts in {folder}: run `vcluster emulator` to fetch one (nothing is "
            "installed), or compare this machine itself with its VMs with --hosts here."
        )
    try:
        # Its accelerators are modules, which are read when they are asked for.
        nothing = ["-machine", "none", "-nodefaults", "-display", "none", "-monitor", "stdio"]
        run([binary, "-accel", "tcg", *nothing], data=b"quit\n")
    except RequirementError as error:
        raise RequirementError(f"{error}. Remove {folder}, and run `vcluster emulator`.") from None
    return binary


def machine(vm: qemu.Machine, emulator: Path, options: Options, logs: Path) -> qemu.Machine:
    """Return the hardware of the hosts.

    A host of one CPU also does its own work on it, which its VM sees as steal.  One of two stood still before
    long, under QEMU 7.2, 10.0 and 11.1 (docs/evidence.md).

    Parameters
    ----------
    vm
        That of the VMs, which run the same kernel.
    emulator
        The QEMU that emulates the hosts.
    options
        The cluster's options.
    logs
        Folder that the hosts write their VMs' consoles to.
    """
    return qemu.Machine(
        binary=emulator,
        accelerator="tcg",
        machine=qemu.exact_machine(emulator, qemu.DEFAULT_MACHINE),
        cpu=CPU,
        vcpus=options.cpus_of_native,
        memory_mib=memory_mib(options),
        kernel=vm.kernel,
        adapter="virtio-net-pci",
        vhost=False,
        root=Path("/"),
        shared={"shared": options.shared, "logs": logs},
        kernel_options=KERNEL_OPTIONS,
        extra=("-device", "i6300esb", "-action", "watchdog=poweroff"),
    )


def control(logs: Path, host: str) -> list[str]:
    """Return the arguments that give a host its second serial port, on which it takes commands."""
    return ["-serial", f"unix:{logs / host}.control,server=on,wait=off"]


def files(
    vm: Node, guest_command: list[str], kernel: GuestKernel, options: Options, logs: Path
) -> list[initramfs.ArchiveEntry]:
    """Return what a host gets in its ``/run/vcluster`` beside what every node gets."""
    modules = parameters(kernel, options.kvm)
    settings = {
        "VM": vm.name,
        "LOGS": str(logs),
        "KVM": " ".join(modules["kvm"]),
        "KVM_AMD": " ".join(modules["kvm_amd"]),
        "PIN": "yes" if options.pin else "",
    }
    lines = "".join(f"{key}={shlex.quote(value)}\n" for key, value in settings.items())
    return [
        initramfs.file("node/host.env", lines),
        initramfs.file("node/vm", f"exec {shlex.join(guest_command)}\n"),
        initramfs.file(
            "node/boot-vm-anew", resources.files("vcluster").joinpath("guest/boot-vm-anew").read_bytes()
        ),
    ]


def command(logs: Path, host: str, line: str, seconds: float = 60) -> tuple[int, str]:
    """Run a line of shell on a host.

    Parameters
    ----------
    logs
        The cluster's folder of logs, where the host's socket is.
    host
        Name of the host.
    line
        One line of shell; it gets no input.
    seconds
        How long it may be silent.

    Returns
    -------
    tuple of int and str
        Its exit code, and what it wrote to standard output and standard error.

    Raises
    ------
    NodeError
        If the host is not there, or the line does not end in time.
    """
    said = b""
    try:
        with socket.socket(socket.AF_UNIX) as line_to_host:
            line_to_host.settimeout(seconds)
            line_to_host.connect(str(logs / f"{host}.control"))
            line_to_host.sendall(line.replace("\n", " ").encode() + b"\n")
            while (answer := _answer(said)) is None:
                received = line_to_host.recv(65536)
                if not received:
                    raise NodeError(f"host {host} was lost while it ran {line!r}.")
                said += received
    except TimeoutError:
        raise NodeError(f"host {host} has not answered {line!r} within {seconds:g} s.") from None
    except OSError as error:
        raise NodeError(f"host {host} does not answer: {error.strerror or error}.") from None
    return answer


def _answer(said: bytes) -> tuple[int, str] | None:
    """Return exit code and output; None as long as the line that states the code is not whole."""
    output, mark, code = said.decode(errors="replace").rpartition(_ENDED)
    return (int(code), output) if mark and code.endswith("\n") else None


def kvm_parameters(logs: Path, host: str) -> dict[str, str]:
    """Return the parameters of KVM's modules that are in force on a host, by ``module.parameter``."""
    _, output = command(logs, host, "cd /sys/module && grep -s . kvm/parameters/* kvm_amd/parameters/*")
    lines = (line.partition(":") for line in output.splitlines())
    return {path.replace("/parameters/", "."): value for path, _, value in lines if "/parameters/" in path}


def kvm_parameters_here() -> dict[str, str]:
    """Return those of this machine."""
    found = {}
    for module in KVM_MODULES:
        for file in sorted(Path(f"/sys/module/{module}/parameters").glob("*")):
            # Some may be written only.
            with contextlib.suppress(OSError):
                found[f"{module}.{file.name}"] = file.read_text(encoding="utf-8").strip()
    return found
