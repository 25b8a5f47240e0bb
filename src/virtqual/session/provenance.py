"""Which code and which reviewed data judge a session."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

import virtqual
from virtqual import paths
from virtqual.files import execute
from virtqual.session.session import Provenance
from virtqual.site.configuration import system_files


@cache
def provenance() -> Provenance:
    """Return the provenance of what this process judges, read once."""
    root = paths.root()
    git = ["git", "-C", str(root)]
    own = root / "checks" / "site"
    packages = sorted(f"{package.name}=={package.version}" for package in distributions())
    return Provenance(
        version=virtqual.__version__,
        commit=(execute.read_output([*git, "rev-parse", "HEAD"], seconds=10) or "").strip(),
        modified=bool(
            execute.read_output([*git, "status", "--porcelain", "--untracked-files=no"], seconds=30)
        ),
        references=_digest(paths.references().rglob("*.yaml")),
        site=_digest([*system_files(root / "reframe" / "systems"), *own.rglob("*.py")]),
        packages=hashlib.sha256("\n".join(packages).encode()).hexdigest(),
    )


def _digest(files: Iterable[Path]) -> str:
    """Return the SHA-256 of the names and contents of files, in the order of their names."""
    digest = hashlib.sha256()
    for file in sorted(set(files)):
        if file.is_file():
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"{file.name} {content}\n".encode())
    return digest.hexdigest()
