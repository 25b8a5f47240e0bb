"""Recorded commands, and a stand-in that repeats them.

A file begins with the line ``$ COMMAND``; standard output, standard error and exit code follow.
"""

import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

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


def index(folder: Path) -> dict[str, Recording]:
    """Return the recordings of a folder by command."""
    return {recording.command: recording for recording in map(read, sorted(folder.glob("*.txt")))}


def replay(folder: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a stand-in for `virtqual.files.execute.run`, which only repeats what is recorded in a folder."""
    known = index(folder)

    def run(
        words: Sequence[str], *, env: Mapping[str, str], seconds: float
    ) -> subprocess.CompletedProcess[str]:
        assert seconds > 0
        command = name_command(words, env)
        done = known.get(command) or Recording(command, "", f"not recorded: {command}", 99)
        return subprocess.CompletedProcess(words, done.code, done.stdout, done.stderr)

    return run
