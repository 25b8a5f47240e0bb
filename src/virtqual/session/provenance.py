"""The code and the reviewed data that judge a session."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable
from functools import cache
from importlib.metadata import distributions, version
from pathlib import Path

import virtqual
from virtqual import paths
from virtqual.errors import InfrastructureError
from virtqual.files import execute
from virtqual.session.session import Provenance
from virtqual.site.configuration import find_system_files

#: The packages whose versions decide what runs come to.
_JUDGING = ("numpy", "pydantic", "reframe-hpc", "scipy")


@cache
def provenance() -> Provenance:
    """Return the provenance of the judgements of this process, read once."""
    systems = find_system_files()
    reviewed = (paths.references(), paths.site_references())
    packages = sorted(f"{package.name}=={package.version}" for package in distributions())
    # A checkout may be changed without a new version, and git may not answer for it.
    packages.append(_digest(Path(virtqual.__file__).parent.rglob("*.py")))
    return Provenance(
        version=virtqual.__version__,
        commit=_ask_git("rev-parse", "--verify", "HEAD"),
        modified=bool(_ask_git("status", "--porcelain", "--untracked-files=no")),
        references=_digest(file for directory in reviewed for file in directory.rglob("*.yaml")),
        site=_digest([*systems, *(paths.site() / "checks").rglob("*.py")]),
        packages=hashlib.sha256("\n".join(packages).encode()).hexdigest(),
        versions={"python": platform.python_version(), **{name: version(name) for name in _JUDGING}},
    )


def _ask_git(*arguments: str) -> str:
    """Return git's answer about the checkout, which another user may own; empty if there is none."""
    root = str(paths.find_root() or "")
    if not root:
        return ""
    command = ["git", "-c", f"safe.directory={root}", "-C", root, *arguments]
    try:
        return execute.run(command, seconds=30).stdout.strip()
    except InfrastructureError:
        return ""


def _digest(files: Iterable[Path]) -> str:
    """Return the SHA-256 of the names and contents of files, wherever they lie."""
    lines = []
    for file in files:
        if file.is_file():
            lines.append(f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n")
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()
