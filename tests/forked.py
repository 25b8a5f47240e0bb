"""Run `reframe` and `virtqual` in processes that are forked from one that has imported them already.

The start of either takes a second of imports, and the tests start them a thousand times.  The ReFrame that
`virtqual qualify` starts for a round is a fork of it.
"""

import atexit
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

#: Modules and functions that the programs call.
PROGRAMS = {"reframe": ("reframe.frontend.cli", "main"), "virtqual": ("virtqual.cli", "app")}

_server = multiprocessing.get_context("forkserver")
_modules = [module for module, _ in PROGRAMS.values()]
# The last two are imported on demand, and import all of virtqual.
_server.set_forkserver_preload(["pytest", *_modules, "virtqual.commands.propose", "virtqual.commands.report"])


def run_program(
    command: tuple[str, ...], env: Mapping[str, str], cwd: Path, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run one of `PROGRAMS` as `subprocess.run` does, and return what it printed."""
    sys.audit("os.fork")  # multiprocessing does not tell it, and --quick skips by it
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        files = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (out, err)]
        process = _server.Process(target=_become, args=(command, dict(env), str(cwd), files))
        process.start()
        process.join(timeout_s)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, timeout_s)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(command, process.exitcode, *texts)


class ForkedReframe:
    """A fork of this process that becomes ReFrame, as `virtqual.harness.process` uses `subprocess.Popen`."""

    def __init__(
        self,
        line: Sequence[str],
        *,
        env: dict[str, str],
        stdout: BinaryIO,
        stderr: int,
        start_new_session: bool,
        pass_fds: Sequence[int],
    ) -> None:
        assert (stderr, start_new_session) == (subprocess.STDOUT, True)
        # The descriptors of `pass_fds` are open in the fork, too.
        arguments = (("reframe", *line[1:]), env, stdout.fileno())
        self._process = multiprocessing.get_context("fork").Process(target=_become_round, args=arguments)
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float = float("inf")) -> int:
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() >= end:
                raise subprocess.TimeoutExpired("reframe", timeout)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def _become(command: tuple[str, ...], env: dict[str, str], cwd: str, files: list[str]) -> None:
    for descriptor, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND), descriptor)
    os.chdir(cwd)
    process = import_module("virtqual.harness.process")
    process.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": ForkedReframe})
    _call_program(command, env)


def _become_round(command: tuple[str, ...], env: dict[str, str], output: int) -> None:
    os.setsid()
    # Of a program that is started, no end removes the temporary directories of virtqual.
    weakref.finalize._registry.clear()
    # As a program that is started begins, whatever virtqual does at a signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    _call_program(command, env)


def _call_program(command: tuple[str, ...], env: dict[str, str]) -> None:
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [shutil.which(command[0]) or command[0], *command[1:]]
    module, function = PROGRAMS[command[0]]
    try:
        sys.exit(getattr(import_module(module), function)())
    finally:
        atexit._run_exitfuncs()  # multiprocessing ends a process without them
