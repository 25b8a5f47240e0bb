"""The files that nodes boot from, and those that they find in their ``/run/vcluster``."""

from __future__ import annotations

import secrets
import shlex
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from vcluster import initramfs, rdma
from vcluster.directory import StateDirectory
from vcluster.kernel import GuestKernel, locate_kernel, make_base_initramfs, unpack_kernel
from vcluster.options import Options
from vcluster.slurm_conf import CONF, RUN, SPOOL, find_pmix, munge_options, render
from vcluster.topology import PREFIX, Node, render_hosts_file


def write_files(
    directory: StateDirectory, options: Options, native: tuple[Node, ...], virtual: tuple[Node, ...]
) -> None:
    """Write the files of all nodes into the state directory's ``etc``; the munge key is new each time."""
    shutil.rmtree(directory.etc, ignore_errors=True)
    shutil.rmtree(directory.spool, ignore_errors=True)
    (directory.etc / "munge").mkdir(parents=True, mode=0o700)
    (directory.etc / "bin").mkdir()
    directory.spool.mkdir()
    package = resources.files("vcluster")
    texts = {
        "slurm.conf": render(options, native, virtual, directory.spool, directory.logs / "slurmctld.log"),
        "cgroup.conf": package.joinpath("slurm/cgroup.conf").read_text(encoding="utf-8"),
        "hosts": render_hosts_file([*native, *virtual]),
        "state-directory": f"{directory.root}\n",
    }
    for name, text in texts.items():
        (directory.etc / name).write_text(text, encoding="utf-8")
    for name, source in {"task-prolog": "slurm/task-prolog", "bin/sacct": "shim/sacct"}.items():
        (directory.etc / name).write_bytes(package.joinpath(source).read_bytes())
        (directory.etc / name).chmod(0o755)
    key = directory.etc / "munge/key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(1024))


@dataclass(frozen=True)
class BootFiles:
    """The kernel of the VMs, its unpacked image, and the part of the initramfs that all machines have.

    ``rdma_obstacle`` is the reason for which no node has RDMA, or None.
    """

    kernel: GuestKernel
    image: Path
    initramfs: Path
    rdma_obstacle: str | None


def make_boot_files(directory: StateDirectory, options: Options) -> BootFiles:
    """Find the guest kernel, and unpack and pack the files that all machines boot."""
    kernel = locate_kernel(directory, options.kernel)
    image = unpack_kernel(kernel, directory.cache)
    obstacle = rdma.find_obstacle(kernel) if options.rdma else "not asked for"
    adapter = options.nic.device
    initramfs = make_base_initramfs(kernel, directory.cache, rdma=obstacle is None, adapter=adapter)
    return BootFiles(kernel, image, initramfs, obstacle)


def pack_initramfs(
    directory: StateDirectory,
    node: Node,
    files: BootFiles,
    options: Options,
    entries: Iterable[initramfs.ArchiveEntry],
) -> Path:
    """Write the initramfs of one machine, which has more entries than the base; return its path."""
    # The variables that the guest's scripts read.
    variables = {
        "NODE_NAME": node.name,
        "NODE_ADDRESS": node.address,
        "PREFIX": str(PREFIX),
        "SHARED": str(options.shared),
        "MODULES": str(files.kernel.base),
        "SPOOL": str(SPOOL),
        "SLURM_CONF": str(CONF),
        "MUNGE": shlex.join(munge_options()),
        "PMIX": str(find_pmix() or ""),
        "RDMA": "" if files.rdma_obstacle else rdma.DEVICE,
        "RUN": str(RUN),
        "VCPUS": str(options.vcpus),
        "VM": "",
    }
    script = resources.files("vcluster").joinpath("guest/node-init").read_bytes()
    node_entries = [
        initramfs.file("node/node.env", render_variables(variables)),
        initramfs.file("node/node-init", script, 0o755),
        *_copy_etc(directory.etc),
        *entries,
    ]
    target = directory.cache / f"{node.name}.initramfs"
    # It holds the munge key.
    target.touch(mode=0o600)
    target.chmod(0o600)
    target.write_bytes(files.initramfs.read_bytes() + initramfs.archive(node_entries))
    return target


def render_variables(variables: dict[str, str]) -> str:
    """Return variables as lines that a shell reads."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())


def _copy_etc(etc: Path) -> Iterator[initramfs.ArchiveEntry]:
    """Yield the files of ``etc`` that a machine gets.

    The prolog moves tasks of native nodes. In a VM it would only cost, and on one side alone.
    """
    for path in sorted(etc.rglob("*")):
        name = f"node/{path.relative_to(etc)}"
        if path.is_dir():
            yield initramfs.ArchiveEntry(name, path.stat().st_mode)
        elif path.name == "slurm.conf":
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            yield initramfs.file(name, "".join(line for line in lines if not line.startswith("TaskProlog=")))
        elif path.name != "task-prolog":
            yield initramfs.file(name, path.read_bytes(), path.stat().st_mode & 0o777)
