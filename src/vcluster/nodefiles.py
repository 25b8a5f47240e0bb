"""Files that every node finds in its ``/run/vcluster``."""

from __future__ import annotations

import secrets
import shlex
import shutil
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

from vcluster import initramfs
from vcluster.directory import StateDirectory
from vcluster.kernel import GuestKernel
from vcluster.options import Options
from vcluster.slurm_conf import CONF, RUN, SPOOL, munge_options, render
from vcluster.topology import PREFIX, Node, hosts_file


def write(directory: StateDirectory, options: Options, native: list[Node], virtual: list[Node]) -> None:
    """Write the files of all nodes into the state directory's ``etc``; the munge key is new each time."""
    shutil.rmtree(directory.etc, ignore_errors=True)
    shutil.rmtree(directory.spool, ignore_errors=True)
    (directory.etc / "munge").mkdir(parents=True, mode=0o700)
    (directory.etc / "bin").mkdir()
    directory.spool.mkdir()
    ours = resources.files("vcluster")
    texts = {
        "slurm.conf": render(options, native, virtual, directory.spool, directory.logs / "slurmctld.log"),
        "cgroup.conf": ours.joinpath("slurm/cgroup.conf").read_text(encoding="utf-8"),
        "hosts": hosts_file([*native, *virtual]),
        "state-directory": f"{directory.root}\n",
    }
    for name, text in texts.items():
        (directory.etc / name).write_text(text, encoding="utf-8")
    for name, source in {"task-prolog": "slurm/task-prolog", "bin/sacct": "shim/sacct"}.items():
        (directory.etc / name).write_bytes(ours.joinpath(source).read_bytes())
        (directory.etc / name).chmod(0o755)
    key = directory.etc / "munge/key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(1024))


def pack(
    directory: StateDirectory,
    node: Node,
    kernel: GuestKernel,
    base: Path,
    options: Options,
    *,
    pmix: Path | None,
    rdma: str | None,
    more: Sequence[initramfs.ArchiveEntry] = (),
) -> Path:
    """Return the initramfs of one machine: the common part, then everything this node gets.

    Parameters
    ----------
    base : Path
        The common part.
    pmix : Path or None
        See ``BootPlan``.
    rdma : str or None
        Name of the RDMA device that it is to make.
    more : sequence of ArchiveEntry
        What it gets beside what every node gets.
    """
    text = _settings(node, kernel, options, pmix, rdma)
    script = resources.files("vcluster").joinpath("guest/node-init").read_bytes()
    entries = [
        initramfs.file("node/node.env", text),
        initramfs.file("node/node-init", script, 0o755),
        *_copies(directory.etc),
        *more,
    ]
    target = directory.cache / f"{node.name}.initramfs"
    # It holds the munge key.
    target.touch(mode=0o600)
    target.chmod(0o600)
    target.write_bytes(base.read_bytes() + initramfs.archive(entries))
    return target


def _settings(node: Node, kernel: GuestKernel, options: Options, pmix: Path | None, rdma: str | None) -> str:
    """Return the variables that the guest's own scripts read, as a shell takes them."""
    variables = {
        "NODE_NAME": node.name,
        "NODE_ADDRESS": node.address,
        "PREFIX": str(PREFIX),
        "SHARED": str(options.shared),
        "MODULES": str(kernel.base),
        "SPOOL": str(SPOOL),
        "SLURM_CONF": str(CONF),
        "MUNGE": shlex.join(munge_options()),
        "PMIX": str(pmix or ""),
        "RDMA": rdma or "",
        "RUN": str(RUN),
        "VCPUS": str(options.vcpus),
        "VM": "",
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())


def _copies(etc: Path) -> Iterator[initramfs.ArchiveEntry]:
    """Yield what a guest gets of the files in ``etc``."""
    for path in sorted(etc.rglob("*")):
        inside = f"node/{path.relative_to(etc)}"
        if path.is_dir():
            yield initramfs.ArchiveEntry(inside, path.stat().st_mode)
        elif path.name == "slurm.conf":
            # The prolog moves tasks of native nodes.  In a VM it would only cost, and on one side alone.
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if not line.startswith("TaskProlog=")]
            yield initramfs.file(inside, "".join(kept))
        elif path.name != "task-prolog":
            yield initramfs.file(inside, path.read_bytes(), path.stat().st_mode & 0o777)
