"""Slurm's configuration."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from string import Template

from vcluster.command import text
from vcluster.options import Options
from vcluster.requirements import program
from vcluster.topology import HEAD, HEAD_ADDRESS, Node

LICENCE = "host:1"
# The same on all nodes: each has its own /run.
RUN = Path("/run/vcluster")
CONF = RUN / "slurm.conf"
SPOOL = RUN / "spool"
MUNGE_SOCKET = RUN / "munge/socket"


def render(options: Options, native: list[Node], virtual: list[Node], state_save: Path, log: Path) -> str:
    """Return ``slurm.conf``.

    Parameters
    ----------
    native, virtual : list of Node
        The nodes of the two partitions.
    state_save : Path
        Where slurmctld keeps its state.
    log : Path
        Where it logs.
    """
    template = resources.files("vcluster").joinpath("slurm/slurm.conf").read_text(encoding="utf-8")
    # Neither side is to be refused for memory, and both are to be asked for in the same way.
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
        state_save=state_save,
        log=log,
        nodes="\n".join(lines),
        native=",".join(node.name for node in native),
        virtual=",".join(node.name for node in virtual),
    )


def munge_options() -> list[str]:
    """Return munged's options: everything of its own lies in one folder of the node's private /run."""
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


def version() -> str:
    """Return Slurm's version, such as ``22.05.8``."""
    words = text([program("slurmd"), "-V"]).split()
    return words[-1] if words else "unknown"


def plugin_directory() -> Path | None:
    """Return where Slurm's plugins are: distributions differ."""
    for pattern in ("/usr/lib/*/slurm-wlm", "/usr/lib/*/slurm", "/usr/lib64/slurm", "/usr/lib/slurm"):
        for folder in Path("/").glob(pattern.lstrip("/")):
            if (folder / "mpi_none.so").exists():
                return folder
    return None


def pmix_folder() -> Path | None:
    """Return the folder from which Slurm's plugin loads ``libpmix.so``, or None if there is no PMIx.

    The plugin wants that very name in that very folder, and only -dev packages bring the name: the nodes
    get a link there, in their own view of the folder.
    """
    for pattern in ("usr/lib/*/pmix2/lib", "usr/lib/*/pmix/lib", "usr/lib64", "usr/lib/*"):
        for folder in sorted(Path("/").glob(pattern)):
            if next(folder.glob("libpmix.so*"), None):
                return folder
    return None


def pmix_plugins() -> Path | None:
    """Return the folder of PMIx's own plugins, or None."""
    folder = pmix_folder()
    return folder / "pmix" if folder and (folder / "pmix").is_dir() else None


def mpi_plugins() -> tuple[str, ...]:
    """Return the values of ``srun --mpi`` that jobs can use here."""
    folder = plugin_directory()
    names = ["pmi2"] if folder and (folder / "mpi_pmi2.so").exists() else []
    if folder and (folder / "mpi_pmix.so").exists() and pmix_folder():
        names.append("pmix")
    return tuple(names)
