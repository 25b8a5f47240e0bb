"""Gather everything that building the stack needs, for a site without a network."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from virtqual.errors import InfrastructureError
from virtqual.stack import bring, build, lock, repositories, wheels
from virtqual.stack.alone import alone
from virtqual.stack.build import Say
from virtqual.stack.jobs import INVENTORY, BuildJob
from virtqual.stack.lock import Lock, Package
from virtqual.stack.pins import SPACK
from virtqual.stack.spack import Spack, log_file


def gather(job: BuildJob, target: Path, say: Say) -> list[str]:
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
        A sentence for each part that could not be gathered; empty if the mirror is complete.

    Raises
    ------
    InfrastructureError
        Nothing can be gathered: no Spack, or no package repository.
    """
    with alone(job.state):
        return _gather(job, target, say)


def _gather(job: BuildJob, target: Path, say: Say) -> list[str]:
    found, upstream = build.begun(job, say)
    target.mkdir(parents=True, exist_ok=True)
    lacking: list[str] = []

    def part(name: str, fill: Callable[..., None], *arguments: Any) -> None:
        say(name)
        try:
            fill(*arguments)
        except InfrastructureError as error:
            lacking.append(f"{name}: {error}")

    for repository, have, name in (
        (job.recipes, upstream.parents[2], bring.MIRRORED["packages"]),
        (SPACK, found.program.parents[1], bring.MIRRORED["spack"]),
    ):
        part(name, repositories.bare, repository, have, target / name)
    part(wheels.DIRECTORY, wheels.gather, job.root, target)
    locked = build.concretised(job, found, say)
    todo = build.planned(job, locked)
    build.supply(job, todo)
    supplied = {entry.package for entry in todo.by_hand if entry.supplied}
    by_hand = [entry for entry in todo.by_hand if not entry.supplied]
    lacking += map(str, by_hand)
    leave = {root.name for root in _others(job, locked)} | {entry.package for entry in by_hand}
    part(" ".join(["sources", *sorted(supplied)]), _sources, job, found, target, leave)
    there = lock.installed(job.made.store)
    ready = [root for root in todo.roots if root.hash in there]
    if ready:
        part("build_cache", _binaries, job, found, target, ready)
    else:
        say("build_cache: nothing is built here yet; an isolated site builds from the sources")
    lock.copy(job.made.lock, target / "spack.lock", job.made.store if ready else None)
    _write_inventory(job, target, lacking)
    return lacking


def _write_inventory(job: BuildJob, target: Path, lacking: list[str]) -> None:
    inventory = {
        "schema": "virtqual-mirror/1",
        "set": job.request.set,
        "environment": job.made.directory.name,
        "spack": SPACK._asdict(),
        "packages": job.recipes._asdict(),
        "lacking": lacking,
    }
    (target / INVENTORY).write_text(json.dumps(inventory, indent=2) + "\n", encoding="utf-8")


def _others(job: BuildJob, locked: Lock) -> list[Package]:
    wanted = {root.hash for root in locked.of(job.names)}
    return [locked.packages[hash_] for hash_ in locked.roots if hash_ not in wanted]


def _sources(job: BuildJob, found: Spack, target: Path, leave: set[str]) -> None:
    # Private: with what must not be published, NAMD; a mirror is for the site that made it.
    command = ["mirror", "create", "--private", "--directory", str(target / "sources"), "--all"]
    if leave:
        command += ["--exclude-specs", " ".join(sorted(leave))]
    found.do(job.made.directory, command, log_file(job.state, "mirror"), "not all could be had")


def _binaries(job: BuildJob, found: Spack, target: Path, roots: list[Package]) -> None:
    command = ["buildcache", "push", "--private", "--unsigned", "--update-index", str(target / "build_cache")]
    command += [f"/{root.hash}" for root in roots]
    found.do(job.made.directory, command, log_file(job.state, "buildcache"), "not all could be written")
