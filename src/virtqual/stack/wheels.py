"""The Python packages that virtqual itself is made with, for a site that reaches no package index."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from virtqual.stack import machine

#: Where they are in a mirror; ``ci/build-stack`` looks there.
DIRECTORY = "wheels"


def gather(root: Path, target: Path) -> None:
    """Have pip download what ``ci/venv`` installs: for this Python's version and this kind of machine.

    Parameters
    ----------
    root
        The checkout, whose ``pyproject.toml`` says what is needed.
    target
        The mirror.

    Raises
    ------
    InfrastructureError
        pip could not have one of them.
    """
    said = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*said["build-system"]["requires"], *said["project"]["dependencies"]]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    command += ["--only-binary", ":all:", "--dest", str(target / DIRECTORY), *wanted]
    machine.run(command, f"pip could not have all of {', '.join(wanted)}")
