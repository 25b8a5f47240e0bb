"""One commit of a git repository, whole or not at all: in a checkout, or in a mirror's bare repository."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from virtqual.errors import InfrastructureError
from virtqual.files import execute
from virtqual.stack.pins import Repository

OUT_OF_REACH = (
    "the network is out of reach and no mirror was given, so the Spack stack cannot be built here ({what}). "
    "Nothing was changed. On a machine with a network `virtqual stack mirror DIR` gathers everything; here, "
    "then: `ci/build-stack --offline --mirror DIR`. A registry stack that is set up needs none of this: "
    "ci/qualify uses it."
)


def checkout(pinned: Repository, root: Path, *, mirrored: Path | None, offline: bool) -> None:
    """Have one commit of a repository in a directory.

    Parameters
    ----------
    pinned
        The repository and the commit.
    root
        The directory; nothing is done where it has that commit.
    mirrored
        A mirror's copy to take it from, or None.
    offline
        Whether the place of publication may not be asked.

    Raises
    ------
    InfrastructureError
        The commit is neither there, nor in the mirror, nor within reach.
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
    _git(part, "checkout", "--quiet", "--detach", "FETCH_HEAD")
    if _commit(part) != pinned.commit:
        raise InfrastructureError(f"{url} gave another commit than {pinned.commit}")
    shutil.rmtree(root, ignore_errors=True)
    part.rename(root)


def bare(pinned: Repository, have: Path, target: Path) -> None:
    """Have one commit of a repository in a bare repository, from a checkout of it or from its place.

    Raises
    ------
    InfrastructureError
        Neither gave it.
    """
    if target.is_dir() and _has(target, pinned.commit):
        return
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    _git(target, "init", "--bare", "--quiet")
    fetch = ("fetch", "--quiet", "--depth", "1")
    wanted = f"{pinned.commit}:refs/heads/pinned"
    try:
        _git(target, *fetch, have.as_uri(), wanted)
    except InfrastructureError:
        try:
            reach(pinned.url)
            _git(target, *fetch, pinned.url, wanted)
        except InfrastructureError:
            shutil.rmtree(target, ignore_errors=True)
            raise


def reach(url: str) -> None:
    """Assert that a repository can be reached, before anything is changed.

    Raises
    ------
    InfrastructureError
        The repository cannot be reached; the message says what to do instead.
    """
    env = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        command = ["git", "ls-remote", "--exit-code", url, "HEAD"]
        execute.run_checked(command, "no answer", env=env, seconds=30)
    except InfrastructureError:
        raise InfrastructureError(OUT_OF_REACH.format(what=f"{url} does not answer")) from None


def _commit(root: Path) -> str:
    # Without one of its own, git takes that of a directory above.
    if not (root / ".git").exists():
        return ""
    try:
        return _git(root, "rev-parse", "HEAD").strip()
    except InfrastructureError:
        return ""


def _has(root: Path, commit: str) -> bool:
    try:
        _git(root, "cat-file", "-e", commit)
    except InfrastructureError:
        return False
    return True


def _git(root: Path, *arguments: str) -> str:
    return execute.run_checked(["git", "-C", root, *arguments], f"git {arguments[0]} failed in {root}")
