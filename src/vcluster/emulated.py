"""Emulated hosts: machines made by QEMU's software SVM, each a native node with a real KVM guest beside it.

Native node and guest are equally slow, so that their ratio means what it means on hardware.  The guest runs
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
from vcluster.command import read_output, run
from vcluster.errors import NodeError, OptionError, RequirementError
from vcluster.host import read_memory_mib
from vcluster.kernel import GuestKernel, list_missing_modules
from vcluster.nodefiles import render_variables
from vcluster.options import DiskCache, Options
from vcluster.requirements import program
from vcluster.slurm_conf import RUN
from vcluster.topology import Node

# The QEMU that emulates hosts, with the modules and firmware that it loads.  It is unpacked into a folder of
# its own, so that it stays the same under any QEMU of the VMs.
PACKAGES = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios")
EMULATOR = Path("usr/bin/qemu-system-x86_64")
# A host's modules: its VM's network, KVM, disks, and a watchdog that powers the host off if it stands still.
MODULES = ("bridge", "tun", "vhost_net", "kvm_amd", "virtio_blk", "ext4", "i6300esb")
KVM_MODULES = ("kvm", "kvm_amd", "kvm_intel")
# The machine's files as the host itself gets them, below its own layer in memory.
ROOT = RUN / "root"
# A host has two disks, of which the second is its VM's.  Native node and VM mount their disk here.
SCRATCH = RUN / "scratch"
VM_DISK = Path("/dev/vdb")
DISK_MIB = 256
# The memory of a host's kernel and of the QEMU in it.
HOST_MEMORY_MIB = 512
# QEMU changes the interrupts of a CPU at VMRUN and #VMEXIT without a lock: an interrupt which another thread
# asks for at that moment can be lost (10.0, target/i386/tcg/system/svm_helper.c).  A periodic tick delivers
# it 4 ms later.  Without periodic ticks the lost interrupt may be the one that orders the next tick.
KERNEL_OPTIONS = f"{qemu.FIXED_ADDRESSES} nohz=off highres=off tsc=reliable"
# The timers of a VM are its host's.  An idle VM with periodic ticks takes 8 % of its host's CPU.
VM_KERNEL_OPTIONS = f"{qemu.FIXED_ADDRESSES} highres=off tsc=reliable"
# QEMU keeps an interrupt that the host's KVM injects at VMRUN as one to be delivered, until the VM is left
# for the next time (7.2 to 10.0, svm_helper.c: `exception_index` stays set).  If another thread asks the CPU
# to pause, QEMU delivers it again; at the entry of a system call the VM's kernel then panics.  With this
# option the end of an interrupt leaves the VM: a second delivery hits the interrupt's handler, harmlessly.
VM_CPU_OPTION = "kvm-pv-eoi=off"
# The CPU has no XSAVE.  A guest's XSETBV does not reach the host's KVM under QEMU 7.2, which then tells the
# guest wrong sizes: the host used AVX, and the guest did not.  Both take SSE, which is emulated faster.
CPU = "max,+svm,-xsave,-avx,-avx2,-f16c,-fma,-vaes"
BOOT_VM_ANEW = f"sh {RUN}/boot-vm-anew"
# guest/node-init ends the answer to a command with this text, the code and a line break.
EXIT_CODE_MARK = "vcluster: exit code "


def host_name(index: int) -> str:
    """Return the name of the host that native node `index` (from 1) is."""
    return f"host{index}"


def host_memory_mib(options: Options) -> int:
    """Return the memory of a host: its node and its VM are of the same size."""
    return 2 * options.memory_mib + HOST_MEMORY_MIB


def check_host(kernel: GuestKernel, options: Options) -> None:
    """Raise an error if the kernel lacks modules or parameters for hosts, or this machine memory."""
    if missing := list_missing_modules(kernel, MODULES):
        raise RequirementError(f"--hosts emulated: kernel {kernel.release} lacks {', '.join(missing)}.")
    needed_mib, available_mib = options.vms * host_memory_mib(options), read_memory_mib("MemAvailable")
    if available_mib < needed_mib:
        raise OptionError(
            f"--hosts emulated: {options.vms} hosts of {host_memory_mib(options)} MiB need {needed_mib} MiB, "
            f"and this machine has {available_mib} MiB available: ask for less with --memory or --vms."
        )
    assign_parameters(kernel, options.kvm)


def assign_parameters(kernel: GuestKernel, values: Mapping[str, str]) -> dict[str, list[str]]:
    """Return parameters of KVM by the module that has them, as ``modprobe`` takes them."""
    names = {module: _list_parameters(kernel, module) for module in ("kvm", "kvm_amd")}
    settings: dict[str, list[str]] = {module: [] for module in names}
    for parameter, value in values.items():
        modules = [module for module, parameters in names.items() if parameter in parameters]
        if not modules:
            raise OptionError(
                f"--kvm {parameter}={value}: kvm and kvm_amd of kernel {kernel.release} have no such "
                f"parameter; they have {', '.join(sorted({*names['kvm'], *names['kvm_amd']}))}."
            )
        settings[modules[0]].append(f"{parameter}={value}")
    return settings


def _list_parameters(kernel: GuestKernel, module: str) -> list[str]:
    output = read_output(["modinfo", "-b", str(kernel.base), "-k", kernel.release, "-F", "parm", module])
    return [line.partition(":")[0] for line in output.splitlines()]


def find_emulator(folder: Path) -> Path:
    """Return the QEMU in the folder of its unpacked packages; raise `RequirementError` if it does not run."""
    binary = folder.resolve() / EMULATOR
    if not binary.exists():
        raise RequirementError(
            f"no QEMU that emulates hosts in {folder}: run `vcluster emulator` to fetch one (nothing is "
            "installed), or compare this machine itself with its VMs with --hosts here."
        )
    try:
        # QEMU loads its accelerator, which is a module, only if it is asked for.
        empty_machine = ["-machine", "none", "-nodefaults", "-display", "none", "-monitor", "stdio"]
        run([binary, "-accel", "tcg", *empty_machine], data=b"quit\n")
    except RequirementError as error:
        raise RequirementError(f"{error}. Remove {folder}, and run `vcluster emulator`.") from None
    return binary


def make_machine(vm: qemu.Machine, emulator: Path, options: Options, logs: Path) -> qemu.Machine:
    """Return the hardware of the hosts, which run the kernel of the VMs.

    A host of one CPU also does its own work on it, which its VM sees as steal.  A host of two CPUs stood
    still before long, under QEMU 7.2, 10.0 and 11.1 (docs/evidence-clusters.md).
    """
    return qemu.Machine(
        binary=emulator,
        accelerator="tcg",
        machine=qemu.resolve_machine(emulator, qemu.DEFAULT_MACHINE),
        cpu=CPU,
        vcpus=options.cpus_per_native_node,
        memory_mib=host_memory_mib(options),
        kernel=vm.kernel,
        adapter="virtio-net-pci",
        vhost=False,
        root=Path("/"),
        shared={"shared": options.shared, "logs": logs},
        kernel_options=KERNEL_OPTIONS,
        extra=("-device", "i6300esb", "-action", "watchdog=poweroff"),
    )


def control_port(logs: Path, host: str) -> list[str]:
    """Return the options of QEMU that give a host its second serial port, on which it takes commands."""
    return ["-serial", f"unix:{logs / host}.control,server=on,wait=off"]


def disk_options(image: Path, cache: DiskCache) -> list[str]:
    """Return the options of QEMU that give a machine its next disk."""
    return ["-drive", f"file={qemu.escape(image)},format=raw,if=virtio,cache={cache}"]


def make_disk(image: Path) -> list[str]:
    """Make a disk with an empty file system, and return the options of QEMU that give it to a host.

    It keeps nothing beyond the cluster: a flush need not wait for the disk of this machine.
    """
    with image.open("wb") as file:
        file.truncate(DISK_MIB << 20)
    # Small file systems would have blocks of 1 KiB.
    run([program("mkfs.ext4"), "-q", "-F", "-b", "4096", image])
    return disk_options(image, DiskCache.UNSAFE)


def make_entries(
    vm: Node, vm_command: list[str], kernel: GuestKernel, options: Options, logs: Path
) -> list[initramfs.ArchiveEntry]:
    """Return the entries of a host's initramfs beside those of all nodes."""
    parameters = assign_parameters(kernel, options.kvm)
    variables = {
        "VM": vm.name,
        "LOGS": str(logs),
        "KVM": " ".join(parameters["kvm"]),
        "KVM_AMD": " ".join(parameters["kvm_amd"]),
        "PIN": "yes" if options.pin else "",
    }
    boot_script = resources.files("vcluster").joinpath("guest/boot-vm-anew").read_bytes()
    return [
        initramfs.file("node/host.env", render_variables(variables)),
        initramfs.file("node/vm", f"exec {shlex.join(vm_command)}\n"),
        initramfs.file("node/boot-vm-anew", boot_script),
    ]


def run_on_host(logs: Path, host: str, line: str, seconds: float = 60) -> tuple[int, str]:
    """Run one line of shell on a host, without input; return its exit code and all its output.

    A `NodeError` is raised if the host is lost, or prints nothing for so many seconds. The folder of
    logs has the host's socket.
    """
    if "\n" in line:
        raise OptionError(f"host {host} runs one line, and {line!r} has a line break: write it with `;`.")
    answer = b""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(seconds)
            connection.connect(str(logs / f"{host}.control"))
            connection.sendall(f"{line}\n".encode())
            while True:
                output, mark, code = answer.decode(errors="replace").rpartition(EXIT_CODE_MARK)
                if mark and code.endswith("\n"):
                    return int(code), output
                received = connection.recv(65536)
                if not received:
                    raise NodeError(f"host {host} was lost while it ran {line!r}.")
                answer += received
    except TimeoutError:
        raise NodeError(f"host {host} has not answered {line!r} within {seconds:g} s.") from None
    except OSError as error:
        raise NodeError(f"host {host} does not answer: {error.strerror or error}.") from None


def read_kvm_parameters(logs: Path, host: str) -> dict[str, str]:
    """Return the parameters of KVM's modules that are in force on a host, by ``module.parameter``."""
    _, output = run_on_host(logs, host, "cd /sys/module && grep -s . kvm/parameters/* kvm_amd/parameters/*")
    lines = (line.partition(":") for line in output.splitlines())
    return {path.replace("/parameters/", "."): value for path, _, value in lines if "/parameters/" in path}


def read_kvm_parameters_here() -> dict[str, str]:
    """Return the parameters that are in force on this machine."""
    parameters = {}
    for module in KVM_MODULES:
        for file in sorted(Path(f"/sys/module/{module}/parameters").glob("*")):
            # Some parameters cannot be read.
            with contextlib.suppress(OSError):
                parameters[f"{module}.{file.name}"] = file.read_text(encoding="utf-8").strip()
    return parameters
