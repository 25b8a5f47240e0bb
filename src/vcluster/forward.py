"""Slurm commands for shells outside the cluster's namespaces."""

from __future__ import annotations

import shlex
import shutil
from importlib import resources
from pathlib import Path

from vcluster.directory import StateDirectory
from vcluster.requirements import SEARCH, program

COMMANDS = ("sbatch", "srun", "squeue", "sacct", "scancel", "scontrol", "sinfo")


def install(directory: StateDirectory) -> Path:
    """Write the forwarding commands and return their folder."""
    directory.bin.mkdir(parents=True, exist_ok=True)
    template = resources.files("vcluster").joinpath("shim/forward").read_text(encoding="utf-8")
    nsenter = shlex.quote(str(program("nsenter")))
    for name in COMMANDS:
        real = _real(name, directory.bin)
        text = template.replace("@ENTRY@", shlex.quote(str(directory.entry_file)))
        text = text.replace("@REAL@", shlex.quote(real)).replace("@NSENTER@", nsenter)
        target = directory.bin / name
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            new = target.with_name(f".{name}.new")
            new.write_text(text, encoding="utf-8")
            new.chmod(0o755)
            new.replace(target)
    return directory.bin


def _real(name: str, ours: Path) -> str:
    if name == "sacct":
        return "/run/vcluster/bin/sacct"
    folders = [folder for folder in SEARCH.split(":") if Path(folder) != ours]
    return shutil.which(name, path=":".join(folders)) or str(program(name))
