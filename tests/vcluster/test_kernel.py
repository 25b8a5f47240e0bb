"""Finding and unpacking guest kernels, and the archives they start from."""

from __future__ import annotations

import gzip
import lzma
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from vcluster import initramfs, kernel
from vcluster.directory import StateDirectory
from vcluster.errors import ClusterError, RequirementError
from vcluster.requirements import find

ELF = b"\x7fELF" + b"rest of a kernel " * 100


def image(path: Path, payload: bytes) -> Path:
    """Write a bzImage: in its header the size of the setup and the place of the payload, then the payload."""
    data = bytearray(2 * 512)
    data[0x1F1] = 1
    struct.pack_into("<II", data, 0x248, 16, len(payload))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(data) + bytes(16) + payload + b"beyond")
    return path


@pytest.mark.parametrize(
    "compress",
    [lzma.compress, gzip.compress, lambda data: gzip.compress(data) + struct.pack("<I", len(data))],
    ids=["xz", "gzip", "gzip with its size"],
)
def test_unpacked(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    source = kernel.GuestKernel("6.9.1-test", image(tmp_path / "vmlinuz", compress(ELF)), tmp_path)
    result = kernel.unpack_kernel(source, tmp_path / "cache")
    assert result.read_bytes() == ELF
    assert kernel.unpack_kernel(source, tmp_path / "cache") == result


def test_unknown_compression(tmp_path: Path) -> None:
    source = kernel.GuestKernel("6.9.1-test", image(tmp_path / "vmlinuz", b"rubbish"), tmp_path)
    with pytest.raises(ClusterError, match="unknown way"):
        kernel.unpack_kernel(source, tmp_path / "cache")


def test_newest_of_a_folder(tmp_path: Path) -> None:
    for release in ("6.9.1-test", "6.10.0-test"):
        image(tmp_path / f"boot/vmlinuz-{release}", b"")
        (tmp_path / "lib/modules" / release).mkdir(parents=True)
    image(tmp_path / "boot/vmlinuz-7.0-without-modules", b"")
    found = kernel.find_newest_kernel(tmp_path)
    assert found is not None
    assert found.release == "6.10.0-test"


def test_missing_kernel_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "find_newest_kernel", lambda _: None)
    monkeypatch.delenv("VCLUSTER_KERNEL", raising=False)
    with pytest.raises(RequirementError, match="vcluster kernel"):
        kernel.locate_kernel(StateDirectory(tmp_path), None)
    with pytest.raises(RequirementError, match="none has no boot/vmlinuz"):
        kernel.locate_kernel(StateDirectory(tmp_path), tmp_path / "none")
    monkeypatch.setenv("VCLUSTER_KERNEL", str(tmp_path))
    with pytest.raises(RequirementError, match="has no boot/vmlinuz"):
        kernel.locate_kernel(StateDirectory(tmp_path), None)


@pytest.mark.skipif(find("busybox") is None, reason="no busybox to unpack the archive with")
def test_archives_that_follow_one_another_unpack(tmp_path: Path) -> None:
    first = initramfs.archive([initramfs.folder("a"), initramfs.file("a/b", "text", 0o600)])
    assert first == initramfs.archive([initramfs.folder("a"), initramfs.file("a/b", "text", 0o600)])
    assert len(first) % 512 == 0
    subprocess.run(["busybox", "cpio", "-i"], input=first, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "a/b").read_text() == "text"
    assert (tmp_path / "a/b").stat().st_mode & 0o777 == 0o600


def test_compressed_modules_are_unpacked(tmp_path: Path) -> None:
    for name, content in {
        "a.ko": b"code",
        "b.ko.xz": lzma.compress(b"code"),
        "c.ko.gz": gzip.compress(b"code"),
    }.items():
        (tmp_path / name).write_bytes(content)
    files = sorted(tmp_path.iterdir())
    assert [kernel.decompress(file.read_bytes()) for file in files] == [b"code"] * 3
    for file in files[1:]:
        with pytest.raises(ClusterError, match="end too early"):
            kernel.decompress(file.read_bytes()[:-4])
