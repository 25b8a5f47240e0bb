"""Gather everything that building the stack needs, for a site without a network."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from virtqual.errors import InfrastructureError
from virtqual.stack import bring, build, environment, lock, wheels
from virtqual.stack.alone import alone
from virtqual.stack.build import Say
from virtqual.stack.jobs import INVENTORY, Job
from virtqual.stack.pins import SPACK, Repository


def gather(job: Job, target: Path, say: Say) -> list[str]:
    """Fill a mirror directory; what is in it already is not fetched again.

    Parameters
    ----------
    job
        The stack; its ``mirror`` is one to copy from, if it has one.
    target
        The directory.
    say
        Told of every part.

    Returns
    -------
    list of str
        What could not be gathered, a sentence each; empty if the mirror is complete.

    Raises
    ------
    InfrastructureError
        Nothing can be gathered: no Spack, or no package repository.
    """
    with alone(job.state):
        return _gather(job, target, say)


def _gather(job: Job, target: Path, say: Say) -> list[str]:
    request, pinned = job.request, job.recipes
    found = bring.spack(job.state, mirror=request.mirror, offline=request.offline)
    upstream = bring.packages(job.state, pinned, mirror=request.mirror, offline=request.offline)
    target.mkdir(parents=True, exist_ok=True)
    lacking: list[str] = []

    def part(name: str, fill: Callable[[], None]) -> None:
        say(name)
        try:
            fill()
        except InfrastructureError as error:
            lacking.append(f"{name}: {error}")

    repositories = (
        (pinned, upstream.parents[2], bring.MIRRORED["packages"]),
        (SPACK, found.program.parents[1], bring.MIRRORED["spack"]),
    )
    for repository, have, name in repositories:
        part(name, lambda r=repository, h=have, n=name: _bare(r, h, target / n))  # type: ignore[misc]
    part(wheels.DIRECTORY, lambda: wheels.gather(job.root, target))
    environment.write(job.made, job.root, request.choices, upstream, build.mirrors(job))
    locked = build.concretised(job, found, say)
    todo = build.planned(job, locked)
    supplied = {entry.package for entry in todo.by_hand if entry.supplied}
    by_hand = [entry for entry in todo.by_hand if not entry.supplied]
    lacking += [str(entry) for entry in by_hand]
    build.supply(job, todo)

    def sources() -> None:
        # Private: with what must not be published, NAMD; a mirror is for the site that made it.
        command = ["mirror", "create", "--private", "--directory", str(target / "sources"), "--all"]
        leave = sorted({root.name for root in _others(job, locked)} | {entry.package for entry in by_hand})
        if leave:
            command += ["--exclude-specs", " ".join(leave)]
        _run(job, found, command, "mirror")

    part(" ".join(["sources", *sorted(supplied)]), sources)

    there = lock.installed(job.made.store)
    ready = [root for root in todo.roots if root.hash in there]
    if ready:
        push = ["buildcache", "push", "--private", "--unsigned", "--update-index"]
        push += [str(target / "build_cache"), *(f"/{root.hash}" for root in ready)]
        part("build_cache", lambda: _run(job, found, push, "buildcache"))
    else:
        say("build_cache: nothing is built here yet; an isolated site builds from the sources")
    lock.note(job.made.lock, target / "spack.lock", **({"store": str(job.made.store)} if ready else {}))
    inventory = {
        "schema": "virtqual-mirror/1",
        "set": request.set,
        "environment": job.made.directory.name,
        "spack": SPACK._asdict(),
        "packages": pinned._asdict(),
        "lacking": lacking,
    }
    (target / INVENTORY).write_text(json.dumps(inventory, indent=2) + "\n", encoding="utf-8")
    return lacking


def _others(job: Job, locked: lock.Lock) -> list[lock.Package]:
    wanted = {root.hash for root in locked.of(job.names)}
    return [locked.packages[hash_] for hash_ in locked.roots if hash_ not in wanted]


def _bare(pinned: Repository, have: Path, target: Path) -> None:
    """Have one commit of a repository in a bare repository, from a checkout of it or from its place."""
    if target.is_dir() and _git(target, "cat-file", "-e", pinned.commit) == "":
        return
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    _git(target, "init", "--bare", "--quiet")
    wanted = f"{pinned.commit}:refs/heads/pinned"
    if error := _git(target, "fetch", "--quiet", "--depth", "1", have.as_uri(), wanted):
        bring.reach(pinned.url)
        error = _git(target, "fetch", "--quiet", "--depth", "1", pinned.url, wanted)
        if error:
            shutil.rmtree(target, ignore_errors=True)
            raise InfrastructureError(f"{pinned.url} at {pinned.commit} could not be fetched: {error}")


def _git(root: Path, *arguments: str) -> str:
    """Run git and return what went wrong, empty if nothing did."""
    done = subprocess.run(
        ["git", "-C", root, *arguments], capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    return (done.stderr.strip() or "failed") if done.returncode else ""


def _run(job: Job, found: bring.Spack, arguments: list[str], what: str) -> None:
    log = build.log_file(job, what)
    if build.run(job, found, arguments, log, lambda line: None):
        raise InfrastructureError(f"Spack's reason is in {log}:\n{build.tail(log, 6)}")
