"""Bring Spack and its package repository: from the machine, a mirror, or where they are published."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from virtqual.errors import InfrastructureError, UsageError
from virtqual.files import execute
from virtqual.stack.pins import SPACK, Repository
from virtqual.stack.repositories import checkout
from virtqual.stack.spack import Spack, variables

# Repositories in a mirror directory, besides sources and binaries.
MIRRORED = {"spack": "spack.git", "packages": "spack-packages.git"}
_ANOTHER = f"unset SPACK_ROOT, or take it off PATH, to have {SPACK.release} brought"


def spack(state: Path, *, mirror: Path | None = None, offline: bool = False) -> Spack:
    """Find Spack, or bring the pinned release.

    Parameters
    ----------
    state
        The stack's directory; a Spack that is brought lives in ``spack-<release>`` there.
    mirror
        A directory made by ``virtqual stack mirror``.
    offline
        Nothing but the mirror and this machine may be used.

    Raises
    ------
    UsageError
        ``SPACK_ROOT`` names none.
    InfrastructureError
        The machine has no usable Spack, and none can be brought.
    """
    found = _found(state)
    if found is None:
        root = state / f"spack-{SPACK.release}"
        checkout(SPACK, root, mirrored=mirror / MIRRORED["spack"] if mirror else None, offline=offline)
        found = root / "bin/spack"
    env = variables(state, offline=offline)
    try:
        said = execute.run_checked([found, "--version"], "it does not run", env=env, seconds=120)
    except InfrastructureError as error:
        raise InfrastructureError(f"Spack is {found}, but {error}; {_ANOTHER}") from error
    version, number = said.strip().partition(" ")[0], re.match(r"(\d+)\.(\d+)", said)
    if number is None or number[1] != "1" or number[2] == "0":
        raise InfrastructureError(
            f"{found} is Spack {version or 'of no version'}; {SPACK.release} is supported (newer ones before "
            f"2.0 may do, older ones have another form of package repositories): {_ANOTHER}"
        )
    return Spack(found, version, env)


def _found(state: Path) -> Path | None:
    if root := os.environ.get("SPACK_ROOT"):
        named = Path(root) / "bin/spack"
        if not named.is_file():
            raise UsageError(
                f"SPACK_ROOT is {root}, but {named} is not there: name the directory of a Spack, or unset it "
                f"to have {SPACK.release} brought"
            )
        return named
    brought = state / f"spack-{SPACK.release}/bin/spack"
    if brought.is_file():
        return brought
    on_path = shutil.which("spack")
    return Path(on_path) if on_path else None


def packages(state: Path, pinned: Repository, *, mirror: Path | None = None, offline: bool = False) -> Path:
    """Bring the package repository at its pinned commit; return the directory of its recipes."""
    root = state / f"packages-{pinned.commit[:12]}"
    mirrored = mirror / MIRRORED["packages"] if mirror else None
    checkout(pinned, root, mirrored=mirrored, offline=offline)
    return root / "repos/spack_repo/builtin"
