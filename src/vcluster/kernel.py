"""The guest kernel: found, fetched, unpacked, and given the modules it needs to reach the host's files."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import re
import struct
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from vcluster import initramfs
from vcluster.command import run, text
from vcluster.directory import StateDirectory
from vcluster.errors import ClusterError, RequirementError
from vcluster.requirements import program

# Modules that the guest needs before it sees the host's files; each brings those it depends on.
MODULES = ("virtio_pci", "virtio_net", "9pnet_virtio", "9p", "overlay", "virtio_rng")
# RDMA in software; a guest without it is still a node.
RDMA_MODULES = ("rdma_rxe",)
PACKAGE = "linux-image-amd64"
ELF = b"\x7fELF"


@dataclass(frozen=True)
class GuestKernel:
    """A guest kernel.

    Attributes
    ----------
    release : str
        The release that ``uname -r`` prints inside the guest.
    image : Path
        The kernel as distributed, compressed or not.
    base : Path
        Folder that holds ``lib/modules/<release>``.
    """

    release: str
    image: Path
    base: Path

    @property
    def modules(self) -> Path:
        """Where the modules are."""
        return self.base / "lib/modules" / self.release


def release_of(image: Path) -> str:
    """Read the release from the header of a bzImage or the text of an ELF image.

    Raises
    ------
    ClusterError
        If the file is neither.
    """
    data = image.read_bytes()
    if data[0x202:0x206] == b"HdrS":
        start = struct.unpack_from("<H", data, 0x20E)[0] + 0x200
        return data[start : data.index(b"\0", start)].decode().split()[0]
    match = re.search(rb"Linux version (\S+) ", data) if data[:4] == ELF else None
    if match is None:
        raise ClusterError(f"{image} is no Linux kernel for x86.")
    return match[1].decode()


def from_folder(path: Path) -> GuestKernel | None:
    """Return the newest kernel of a folder as ``dpkg-deb -x linux-image-*.deb`` makes it, or None."""
    for image in sorted((path / "boot").glob("vmlinu[xz]-*"), key=_version, reverse=True):
        release = image.name.partition("-")[2]
        if os.access(image, os.R_OK) and (path / "lib/modules" / release).is_dir():
            return GuestKernel(release, image, path)
    return None


def _version(image: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", image.name)]


def locate(
    directory: StateDirectory,
    kernel: Path | None,
    modules: Path | None,
    environ: Mapping[str, str] = os.environ,
) -> GuestKernel:
    """Find the guest kernel: as told, ``$VCLUSTER_KERNEL``, the state directory, the host's own.

    Raises
    ------
    RequirementError
        If there is none, or one that was named does not do.
    """
    named = kernel or (Path(environ["VCLUSTER_KERNEL"]) if environ.get("VCLUSTER_KERNEL") else None)
    if named is not None:
        found = _named(named.resolve(), modules)
        if missing := lacking(found):
            raise RequirementError(f"kernel {found.release} of {named} lacks modules: {', '.join(missing)}.")
        return found
    for folder in (directory.kernel, Path("/")):
        candidate = from_folder(folder)
        if candidate is not None and not lacking(candidate):
            return candidate
    raise RequirementError(
        "no guest kernel: run `vcluster kernel` to fetch one (no root needed, nothing is installed), "
        "or name one with --kernel."
    )


def _named(path: Path, modules: Path | None) -> GuestKernel:
    if path.is_dir():
        found = from_folder(path)
        if found is None:
            raise RequirementError(f"{path} holds no boot/vmlinuz-* with modules in lib/modules/.")
        return found
    if not path.is_file():
        raise RequirementError(f"the kernel {path} does not exist.")
    release = release_of(path)
    for base in (modules, path.parent, path.parent.parent, Path("/")):
        if base is not None and (base / "lib/modules" / release).is_dir():
            return GuestKernel(release, path, base.resolve())
    raise RequirementError(f"no lib/modules/{release} for the kernel {path}: say where with --modules.")


def module_files(kernel: GuestKernel, names: tuple[str, ...] = MODULES) -> list[Path]:
    """Return the files of these modules and all they depend on, in the order of loading.

    Raises
    ------
    RequirementError
        If one does not exist and is not built in either.
    """
    missing, files = _resolve(kernel, names)
    if missing:
        raise RequirementError(f"kernel {kernel.release} lacks modules: {', '.join(missing)}.")
    return files


def lacking(kernel: GuestKernel, names: tuple[str, ...] = MODULES) -> list[str]:
    """Return which of these modules a kernel has neither as files nor built in."""
    return _resolve(kernel, names)[0]


def _resolve(kernel: GuestKernel, names: tuple[str, ...]) -> tuple[list[str], list[Path]]:
    _index(kernel)
    missing, files = [], []
    for name in names:
        where = ("-d", kernel.base, "-S", kernel.release)
        try:
            depends = text([program("modprobe"), *where, "--show-depends", name])
        except RequirementError:
            missing.append(name)
            continue
        for line in depends.splitlines():
            kind, _, path = line.partition(" ")
            if kind == "insmod" and Path(path.strip()) not in files:
                files.append(Path(path.strip()))
    return missing, files


def _index(kernel: GuestKernel) -> None:
    # A package is indexed when it is installed; one that was only unpacked is not.
    if not (kernel.modules / "modules.dep.bin").exists():
        run([program("depmod"), "-b", kernel.base, kernel.release], seconds=120)


def unpacked(kernel: GuestKernel, cache: Path) -> Path:
    """Return the kernel as an ELF file, which QEMU boots in a third of the time (PVH entry).

    Raises
    ------
    ClusterError
        If its compression is unknown.
    """
    data = kernel.image.read_bytes()
    if data[:4] == ELF:
        return kernel.image
    target = cache / f"vmlinux-{kernel.release}-{hashlib.sha256(data).hexdigest()[:12]}"
    if not target.exists():
        # Boot protocol: setup sectors, then the payload at the offset and of the length in the header.
        setup = (data[0x1F1] or 4) + 1
        offset, length = struct.unpack_from("<II", data, 0x248)
        start = setup * 512 + offset
        _write(target, _decompress(data[start : start + length], kernel.image))
    return target


def _decompress(payload: bytes, image: Path) -> bytes:
    # After the compressed stream comes the unpacked size, which strict decoders take for rubbish.
    known: dict[bytes, Callable[[bytes], bytes]] = {
        b"\xfd7zXZ\0": lambda data: lzma.LZMADecompressor().decompress(data),
        b"\x1f\x8b": lambda data: gzip.decompress(data[:-4]),
        b"\x28\xb5\x2f\xfd": lambda data: _filter(["zstd", "-dc"], data[:-4]),
        b"\x02\x21\x4c\x18": lambda data: _filter(["lz4", "-dc"], data[:-4]),
    }
    for magic, decompress in known.items():
        if payload.startswith(magic):
            result = decompress(payload)
            if result[:4] == ELF:
                return result
    raise ClusterError(f"{image} is compressed in an unknown way: give the unpacked vmlinux with --kernel.")


def _filter(command: list[str], data: bytes) -> bytes:
    return run([program(command[0]), *command[1:]], data=data, seconds=120)


def base_initramfs(
    kernel: GuestKernel, cache: Path, *, rdma: bool = False, adapter: str = "virtio-net-pci"
) -> Path:
    """Return the archive that all guests of this kernel start from: busybox, modules, first script.

    Modules for RDMA are in a folder of their own, which the guest takes along and loads later.

    Raises
    ------
    RequirementError
        If the kernel has no module for the network adapter, which is named as QEMU names the device.
    """
    busybox = program("busybox").read_bytes()
    if b"/ld-linux" in busybox[:4096]:
        raise RequirementError("busybox is not static: install the Debian package busybox-static.")
    init = resources.files("vcluster").joinpath("guest/init").read_bytes()
    # virtio's is among the modules of all; others are named as QEMU's devices are.
    own = () if adapter.startswith("virtio") else (adapter,)
    folders = {"modules": module_files(kernel, (*MODULES, *own))}
    if rdma:
        folders["rdma"] = module_files(kernel, RDMA_MODULES)
    known = [(name, f, f.stat().st_mtime_ns) for name, files in folders.items() for f in files]
    stamp = hashlib.sha256(busybox + init + repr(known).encode())
    target = cache / f"initramfs-{kernel.release}-{stamp.hexdigest()[:12]}"
    if not target.exists():
        names = ("bin", "dev", "proc", "sys", "host", "layer", "new", "node", *folders)
        entries = [initramfs.folder(name) for name in names]
        entries += [initramfs.file("bin/busybox", busybox, 0o755), initramfs.file("init", init, 0o755)]
        for folder, files in folders.items():
            modules = [_module(f) for f in files]
            entries += [initramfs.file(f"{folder}/{name}", content) for name, content in modules]
            entries.append(initramfs.file(f"{folder}/order", "".join(f"{name}\n" for name, _ in modules)))
        _write(target, initramfs.archive(entries))
    return target


def _module(path: Path) -> tuple[str, bytes]:
    """Return name and content of a module, unpacked: some distributions compress them."""
    data = path.read_bytes()
    if path.suffix == ".xz":
        return path.stem, lzma.decompress(data)
    if path.suffix == ".gz":
        return path.stem, gzip.decompress(data)
    if path.suffix == ".zst":
        return path.stem, _filter(["zstd", "-dc"], data)
    return path.name, data


def _write(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
        file.write(data)
    Path(file.name).replace(target)
