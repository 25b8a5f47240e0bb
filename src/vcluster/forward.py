"""Slurm commands for shells outside the cluster's namespaces."""

from __future__ import annotations

import shlex
import shutil
from importlib import resources
from pathlib import Path

from vcluster.directory import StateDirectory, replace_file
from vcluster.requirements import SEARCH_PATH, program

COMMANDS = ("sbatch", "srun", "squeue", "sacct", "scancel", "scontrol", "sinfo")


def install_commands(directory: StateDirectory) -> Path:
    """Write the forwarding commands and return their folder."""
    template = resources.files("vcluster").joinpath("shim/forward").read_text(encoding="utf-8")
    # The forwarding commands may be on the PATH already.
    folders = [folder for folder in SEARCH_PATH.split(":") if Path(folder) != directory.bin]
    for name in COMMANDS:
        if name == "sacct":
            real = "/run/vcluster/bin/sacct"
        else:
            real = shutil.which(name, path=":".join(folders)) or str(program(name))
        script = template.replace("@ENTRY@", shlex.quote(str(directory.entry_file)))
        script = script.replace("@REAL@", shlex.quote(real))
        script = script.replace("@NSENTER@", shlex.quote(str(program("nsenter"))))
        target = directory.bin / name
        # A shell may be reading the file.
        if not target.exists() or target.read_text(encoding="utf-8") != script:
            replace_file(target, script.encode(), 0o755)
    return directory.bin
