"""Recorded commands: a file begins with the line ``$ COMMAND``; standard output, standard error and exit code follow."""

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from made_programs import write_program

STDERR = "--- standard error"
EXIT = "--- exit code "


class Recording(NamedTuple):
    """What a command printed, and how it ended."""

    command: str
    stdout: str
    stderr: str
    code: int


def name_command(words: Sequence[str], env: Mapping[str, str]) -> str:
    """Return a command as a shell takes it, with the variables that change what Slurm prints."""
    # All commands are asked for numeric times.
    changing = ("SLURM_CLUSTERS", "SLURM_LABELIO")
    assignments = [f"{key}={value}" for key, value in sorted(env.items()) if key in changing]
    return shlex.join([*assignments, *words])


def write(folder: Path, recording: Recording) -> None:
    """Write a recording, named after the command; another one of the same command is replaced."""
    name = re.sub(r"[^\w.,=+-]+", "_", recording.command)[:100].rstrip("_.")
    others = [name, *(f"{name}.{number}" for number in range(2, 20))]
    for path in (folder / f"{other}.txt" for other in others):
        if not path.exists() or read(path).command == recording.command:
            break
    errors = [STDERR, recording.stderr.rstrip("\n")] if recording.stderr.strip() else []
    code = [f"{EXIT}{recording.code}"] if recording.code else []
    command = recording.command.replace("\n", "\n> ")
    parts = [f"$ {command}", *filter(None, [recording.stdout.rstrip("\n")]), *errors, *code]
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")


def read(path: Path) -> Recording:
    """Read a recording."""
    first, *rest = path.read_text(encoding="utf-8").splitlines()
    command = [first.removeprefix("$ ")]
    while rest and rest[0].startswith("> "):
        command.append(rest.pop(0).removeprefix("> "))
    code = int(rest.pop().removeprefix(EXIT)) if rest and rest[-1].startswith(EXIT) else 0
    middle = rest.index(STDERR) if STDERR in rest else len(rest)
    stdout, stderr = ("".join(f"{line}\n" for line in lines) for lines in (rest[:middle], rest[middle + 1 :]))
    return Recording("\n".join(command), stdout, stderr, code)


def index(*folders: Path) -> dict[str, Recording]:
    """Return the recordings of some folders by command."""
    paths = (path for folder in folders for path in sorted(folder.glob("*.txt")))
    return {recording.command: recording for recording in map(read, paths)}


def answer(folders: Sequence[Path], words: Sequence[str]) -> Recording:
    """Return the recording of a command; a command that was not recorded fails."""
    command = name_command(words, os.environ)
    known = index(*folders)
    return known.get(command) or Recording(command, "", f"not recorded: {command}", 99)


def install(bin_folder: Path, *folders: Path) -> None:
    """Write Slurm's commands, which only repeat what is recorded in some folders."""
    words = shlex.join([sys.executable, "-S", str(Path(__file__)), os.pathsep.join(map(str, folders))])
    for name in ("sinfo", "squeue", "scontrol", "sbatch", "srun", "scancel", "sacct", "sacctmgr"):
        write_program(bin_folder / name, f'#!/bin/sh\nexec {words} {name} "$@"\n')


def main() -> int:
    recording = answer([*map(Path, sys.argv[1].split(os.pathsep))], sys.argv[2:])
    sys.stdout.write(recording.stdout)
    sys.stderr.write(recording.stderr)
    return recording.code


if __name__ == "__main__":
    sys.exit(main())
