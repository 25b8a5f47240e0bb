"""Runs the commands of a cluster that has a state directory of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from vcluster.directory import StateDirectory
from vcluster.options import Options
from vcluster.processes import list_pids
from vcluster.state import State, load_state

LICENCE = ("-L", "host:1")
VCLUSTER = (sys.executable, "-c", "from vcluster.cli import app; app()")


def make_options(**changes: object) -> Options:
    return Options.model_validate({"qemu": "/usr/bin/qemu", "shared": "/srv/shared", **changes})


def eventually(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"did not happen within {seconds} s"
        time.sleep(0.2)


def command_lines() -> dict[int, str]:
    """Return the command line of every process on this machine."""
    lines = {}
    for pid in list_pids():
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        lines[pid] = line.replace(b"\0", b" ").decode(errors="replace")
    return lines


class Cluster:
    """Runs ``vcluster`` and Slurm's forwarding commands with a state directory of its own."""

    def __init__(self, root: Path, guest_kernel: Path | None = None) -> None:
        self.directory = StateDirectory(root)
        self.environment = {**os.environ, "VCLUSTER_DIR": str(root)}
        if guest_kernel is not None:
            self.environment["VCLUSTER_KERNEL"] = str(guest_kernel)

    def vcluster(self, *arguments: str, seconds: float = 240) -> subprocess.CompletedProcess[str]:
        return self._run([*VCLUSTER, *arguments], seconds, None)

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

    def begin_up(self) -> subprocess.Popen[str]:
        """Begin to bring the cluster up; the caller reads what the command prints."""
        return subprocess.Popen(
            [*VCLUSTER, "up", "--hosts", "here"],
            env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip

    def state(self) -> State:
        return load_state(self.directory.state_file)

    def is_healthy(self) -> bool:
        return self.vcluster("status").returncode == 0

    def submit(self, partition: str, script: str, *options: str) -> str:
        """Submit a job; return its number."""
        path = self.directory.shared / f"job-{time.monotonic_ns()}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        result = self.slurm("sbatch", "--parsable", "-p", partition, *LICENCE, *options, str(path))
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    def job(self, number: str) -> dict[str, str]:
        text = self.slurm("scontrol", "--oneliner", "show", "job", number).stdout
        return dict(part.split("=", 1) for part in text.split() if "=" in part)

    def wait_for_job(self, number: str, *states: str, seconds: float = 120) -> dict[str, str]:
        """Wait until a job is in one of these states."""
        eventually(lambda: self.job(number).get("JobState") in states, seconds)
        return self.job(number)

    def finished(self, number: str) -> dict[str, str]:
        return self.wait_for_job(number, "COMPLETED", "FAILED", "NODE_FAIL")

    def find_qemu(self, mark: str) -> int:
        """Return the QEMU of this cluster with this file of its logs on its command line."""
        path = f"{self.directory.logs}/{mark}"
        pids: list[int] = []

        def find() -> bool:
            lines = command_lines().items()
            pids[:] = [pid for pid, line in lines if path in line and "debug-threads=on" in line]
            return len(pids) == 1

        # A program that was just started has no command line for a moment.
        eventually(find, 10)
        return pids[0]

    def leftovers(self) -> list[str]:
        """Everything on the host that speaks of this cluster."""
        mark = str(self.directory.root)
        lines = [line for pid, line in command_lines().items() if pid != os.getpid()]
        for table in ("/proc/net/unix", "/proc/self/mountinfo"):
            lines += Path(table).read_text(encoding="utf-8").splitlines()
        lines += [str(path) for path in self.directory.root.rglob("*") if path.is_socket()]
        return [line for line in lines if mark in line]
