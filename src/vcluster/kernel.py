"""The guest kernel: found, unpacked, and given the modules it needs to reach the host's files."""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import struct
import zlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from vcluster import initramfs
from vcluster.command import read_output, run
from vcluster.directory import StateDirectory, replace_file
from vcluster.errors import ClusterError, RequirementError
from vcluster.requirements import program

# Modules that the guest needs before it sees the host's files; the modules that they depend on are added.
MODULES = ("virtio_pci", "virtio_net", "9pnet_virtio", "9p", "overlay", "virtio_rng")
# RDMA in software; a guest without it is still a node.
RDMA_MODULES = ("rdma_rxe",)
ELF_MAGIC = b"\x7fELF"
# The kernel's build appends its unpacked size to compressed images.
SIZE_BYTES = 4


@dataclass(frozen=True)
class GuestKernel:
    """A guest kernel: ``uname -r``, the image as distributed, and the folder of ``lib/modules/RELEASE``."""

    release: str
    image: Path
    base: Path


def find_newest_kernel(folder: Path) -> GuestKernel | None:
    """Return the newest kernel of a folder as ``dpkg-deb -x linux-image-*.deb`` makes it, or None."""
    kernels = []
    for image in (folder / "boot").glob("vmlinu[xz]-*"):
        release = image.name.partition("-")[2]
        if os.access(image, os.R_OK) and (folder / "lib/modules" / release).is_dir():
            kernels.append(GuestKernel(release, image, folder))
    return max(
        kernels, key=lambda kernel: list(map(int, re.findall(r"\d+", kernel.image.name))), default=None
    )


def locate_kernel(directory: StateDirectory, kernel: Path | None) -> GuestKernel:
    """Find the guest kernel: `kernel`, ``$VCLUSTER_KERNEL``, in the state directory, or the host's own."""
    if path := kernel or os.environ.get("VCLUSTER_KERNEL"):
        guest_kernel = find_newest_kernel(Path(path).resolve())
        if guest_kernel is None:
            raise RequirementError(
                f"{path} has no boot/vmlinuz-* with modules in lib/modules/: "
                "name a folder that `dpkg-deb -x linux-image-*.deb` makes."
            )
        if missing := list_missing_modules(guest_kernel):
            raise RequirementError(
                f"kernel {guest_kernel.release} of {path} lacks modules: {', '.join(missing)}."
            )
        return guest_kernel
    for folder in (directory.kernel, Path("/")):
        candidate = find_newest_kernel(folder)
        if candidate is not None and not list_missing_modules(candidate):
            return candidate
    raise RequirementError(
        "no guest kernel: run `vcluster kernel` to fetch one (no root needed, nothing is installed), "
        "or name one with --kernel."
    )


def find_module_files(kernel: GuestKernel, names: tuple[str, ...] = MODULES) -> list[Path]:
    """Return the files of these modules and all they depend on, in the order of loading."""
    files, missing = _resolve_modules(kernel, names)
    if missing:
        raise RequirementError(f"kernel {kernel.release} lacks modules: {', '.join(missing)}.")
    return files


def list_missing_modules(kernel: GuestKernel, names: tuple[str, ...] = MODULES) -> list[str]:
    """Return the modules that a kernel has neither as files nor built in."""
    return _resolve_modules(kernel, names)[1]


def _resolve_modules(kernel: GuestKernel, names: tuple[str, ...]) -> tuple[list[Path], list[str]]:
    """Return the files of modules, and the names of missing modules."""
    # A package is indexed when it is installed; a package that was only unpacked is not.
    if not (kernel.base / "lib/modules" / kernel.release / "modules.dep.bin").exists():
        run([program("depmod"), "-b", kernel.base, kernel.release], seconds=120)
    files: list[Path] = []
    missing = []
    for name in names:
        folder = ("-d", kernel.base, "-S", kernel.release)
        try:
            output = read_output([program("modprobe"), *folder, "--show-depends", name])
        except RequirementError:
            missing.append(name)
            continue
        for line in output.splitlines():
            action, _, path = line.partition(" ")
            if action == "insmod" and Path(path.strip()) not in files:
                files.append(Path(path.strip()))
    return files, missing


def unpack_kernel(kernel: GuestKernel, cache: Path) -> Path:
    """Return the kernel as an ELF file, which QEMU boots in a third of the time (PVH entry)."""
    data = kernel.image.read_bytes()
    if data.startswith(ELF_MAGIC):
        return kernel.image
    target = cache / f"vmlinux-{kernel.release}-{hashlib.sha256(data).hexdigest()[:12]}"
    if not target.exists():
        # Boot protocol: setup sectors, then the payload at the offset and of the length in the header.
        setup_sectors = (data[0x1F1] or 4) + 1
        offset, length = struct.unpack_from("<II", data, 0x248)
        start = setup_sectors * 512 + offset
        unpacked = decompress(data[start : start + length], SIZE_BYTES)
        if not unpacked.startswith(ELF_MAGIC):
            raise ClusterError(
                f"{kernel.image} is compressed in an unknown way: name another kernel with --kernel."
            )
        replace_file(target, unpacked)
    return target


def decompress(data: bytes, trailer_bytes: int = 0) -> bytes:
    """Return data unpacked as its first bytes say, or as it is; programs do not get the trailer.

    Raises
    ------
    ClusterError
        The data end too early.
    """
    decompressor: Any = None
    if data.startswith(b"\xfd7zXZ\0"):
        decompressor = lzma.LZMADecompressor()
    if data.startswith(b"\x1f\x8b"):
        decompressor = zlib.decompressobj(wbits=31)
    if decompressor:
        unpacked: bytes = decompressor.decompress(data)
        if not decompressor.eof:
            raise ClusterError("compressed data of the kernel or of a module end too early")
        return unpacked
    for magic, name in ((b"\x28\xb5\x2f\xfd", "zstd"), (b"\x02\x21\x4c\x18", "lz4")):
        if data.startswith(magic):
            return run([program(name), "-dc"], data=data[: len(data) - trailer_bytes], seconds=120)
    return data


def make_base_initramfs(
    kernel: GuestKernel, cache: Path, *, rdma: bool = False, adapter: str = "virtio-net-pci"
) -> Path:
    """Return the archive that all guests of this kernel start from: busybox, modules, first script.

    Modules for RDMA are in a folder of their own, which the guest takes along and loads later. The adapter
    has QEMU's name.
    """
    busybox = program("busybox").read_bytes()
    if b"/ld-linux" in busybox[:4096]:
        raise RequirementError("busybox is not static: install the Debian package busybox-static.")
    init = resources.files("vcluster").joinpath("guest/init").read_bytes()
    # The module of virtio's adapter is in MODULES; others have the name of QEMU's device.
    adapter_modules = () if adapter.startswith("virtio") else (adapter,)
    folders = {"modules": find_module_files(kernel, (*MODULES, *adapter_modules))}
    if rdma:
        folders["rdma"] = find_module_files(kernel, RDMA_MODULES)
    versions = [(name, file, file.stat().st_mtime_ns) for name, files in folders.items() for file in files]
    stamp = hashlib.sha256(busybox + init + repr(versions).encode())
    target = cache / f"initramfs-{kernel.release}-{stamp.hexdigest()[:12]}"
    if not target.exists():
        names = ("bin", "dev", "proc", "sys", "host", "layer", "new", "node", *folders)
        entries = [initramfs.folder(name) for name in names]
        entries += [initramfs.file("bin/busybox", busybox, 0o755), initramfs.file("init", init, 0o755)]
        for folder, files in folders.items():
            # Some distributions compress modules; the guest loads them by any name.
            entries += [
                initramfs.file(f"{folder}/{file.name}", decompress(file.read_bytes())) for file in files
            ]
            entries.append(initramfs.file(f"{folder}/order", "".join(f"{file.name}\n" for file in files)))
        replace_file(target, initramfs.archive(entries))
    return target
