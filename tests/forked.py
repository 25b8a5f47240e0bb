"""Run `reframe` and `virtqual` in processes that are forked from one that has imported them already.

The start of either takes a second of imports, and the tests start them a thousand times.
"""

import atexit
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

#: Modules and functions that the programs call.
PROGRAMS = {"reframe": ("reframe.frontend.cli", "main"), "virtqual": ("virtqual.cli", "app")}

_server = multiprocessing.get_context("forkserver")
_modules = [module for module, _ in PROGRAMS.values()]
# The last two are imported on demand, and import all of virtqual.
_server.set_forkserver_preload(["pytest", *_modules, "virtqual.commands.record", "virtqual.commands.report"])


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


def _become(command: tuple[str, ...], env: dict[str, str], cwd: str, files: list[str]) -> None:
    for descriptor, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND), descriptor)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [shutil.which(command[0]) or command[0], *command[1:]]
    module, function = PROGRAMS[command[0]]
    try:
        sys.exit(getattr(import_module(module), function)())
    finally:
        atexit._run_exitfuncs()  # multiprocessing ends a process without them
