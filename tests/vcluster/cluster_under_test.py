"""Runs the commands of a cluster that has a state directory of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from vcluster.directory import StateDirectory
from vcluster.state import State, load_state


class Cluster:
    """Runs ``vcluster`` and Slurm's forwarding commands with a state directory of its own."""

    def __init__(self, root: Path) -> None:
        self.directory = StateDirectory(root)
        self.environment = {**os.environ, "VCLUSTER_DIR": str(root)}

    def vcluster(self, *arguments: str, seconds: float = 240) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from vcluster.cli import app; app()", *arguments]
        return self._run(command, seconds, None)

    def slurm(
        self, name: str, *arguments: str, cwd: Path | None = None, seconds: float = 120
    ) -> subprocess.CompletedProcess[str]:
        return self._run([str(self.directory.bin / name), *arguments], seconds, cwd or self.directory.shared)

    def _run(self, command: list[str], seconds: float, cwd: Path | None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.environment, cwd=cwd, capture_output=True, text=True, timeout=seconds,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def up(self, *options: str) -> State:
        """Bring the cluster up, on this machine unless the options say otherwise."""
        result = self.vcluster("up", *(options or ("--hosts", "here")))
        assert result.returncode == 0, result.stdout + result.stderr
        return self.state()

    def state(self) -> State:
        return load_state(self.directory.state_file)

    def leftovers(self) -> list[str]:
        """Everything on the host that speaks of this cluster."""
        mark = str(self.directory.root)
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and entry.name != str(os.getpid()):
                try:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    continue
                if mark in line:
                    found.append(f"process {entry.name} {line}")
        found += [
            line for line in Path("/proc/net/unix").read_text(encoding="utf-8").splitlines() if mark in line
        ]
        found += [
            line
            for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
            if mark in line
        ]
        found += [str(path) for path in self.directory.root.rglob("*") if path.is_socket()]
        return found
