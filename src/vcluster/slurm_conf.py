"""Slurm's configuration."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from string import Template

from vcluster.options import Options
from vcluster.topology import HEAD, HEAD_ADDRESS, Node

LICENCE = "host:1"
# These paths are the same on all nodes: each has its own /run.
RUN = Path("/run/vcluster")
CONF = RUN / "slurm.conf"
SPOOL = RUN / "spool"
MUNGE_SOCKET = RUN / "munge/socket"


def render(
    options: Options, native: tuple[Node, ...], virtual: tuple[Node, ...], spool: Path, log: Path
) -> str:
    """Return ``slurm.conf``; slurmctld saves its state in the folder `spool`."""
    template = resources.files("vcluster").joinpath("slurm/slurm.conf").read_text(encoding="utf-8")
    # Slurm must not refuse a job on either side for memory, and jobs ask both sides for the same.
    memory = options.memory_mib * 3 // 4
    lines = [
        f"NodeName={node.name} NodeAddr={node.address} CPUs={len(node.cpus)} RealMemory={memory} "
        "State=UNKNOWN"
        for node in (*native, *virtual)
    ]
    return Template(template).substitute(
        head=HEAD,
        head_address=HEAD_ADDRESS,
        munge_socket=MUNGE_SOCKET,
        licence=LICENCE,
        task_prolog=RUN / "task-prolog",
        node_tmp=RUN / "node",
        spool=SPOOL,
        state_save=spool,
        log=log,
        nodes="\n".join(lines),
        native=",".join(node.name for node in native),
        virtual=",".join(node.name for node in virtual),
    )


def munge_options() -> list[str]:
    """Return munged's options: all its files are in one folder of the node's private /run."""
    home = RUN / "munge"
    return [
        "--foreground",
        "--force",
        f"--socket={MUNGE_SOCKET}",
        f"--key-file={home}/key",
        f"--pid-file={home}/pid",
        f"--log-file={home}/log",
        f"--seed-file={home}/seed",
        "--num-threads=2",
    ]


def find_plugins() -> Path | None:
    """Return the folder of Slurm's plugins, which differs between distributions."""
    for pattern in ("usr/lib/*/slurm-wlm", "usr/lib/*/slurm", "usr/lib64/slurm", "usr/lib/slurm"):
        for folder in Path("/").glob(pattern):
            if (folder / "mpi_none.so").exists():
                return folder
    return None


def find_pmix() -> Path | None:
    """Return the folder of PMIx's library, or None.

    Slurm's plugin loads the name ``libpmix.so`` from this folder. Only -dev packages bring the name: nodes
    get a link in their own view of the folder.
    """
    for pattern in ("usr/lib/*/pmix2/lib", "usr/lib/*/pmix/lib", "usr/lib64", "usr/lib/*"):
        for folder in sorted(Path("/").glob(pattern)):
            if next(folder.glob("libpmix.so*"), None):
                return folder
    return None


def find_pmix_plugins() -> Path | None:
    """Return the folder of PMIx's own plugins, or None."""
    folder = find_pmix()
    return folder / "pmix" if folder and (folder / "pmix").is_dir() else None
