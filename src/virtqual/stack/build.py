"""Build a set of the stack with Spack, keep its lock, and write its manifest."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from virtqual.errors import InfrastructureError, UsageError
from virtqual.stack import bring, environment, jobs, lock, manifest, plan, programs, sbom
from virtqual.stack.alone import alone
from virtqual.stack.jobs import BuildJob
from virtqual.stack.lock import Lock, Package
from virtqual.stack.manifest import Manifest
from virtqual.stack.plan import BuildPlan
from virtqual.stack.spack import Spack, log_file, tail

Say = Callable[[str], None]
Show = Callable[[BuildPlan], None]
_BEGINS = re.compile(r"^==> Installing (\S+)-([a-z0-9]{32})\b", re.M)
# Which package a log is of stands in its path alone: Spack's closing list has only what was asked for.
_LOG = re.compile(r"^\s+(/\S*/spack-stage-([^/\s]+)-([a-z0-9]{32})/\S+)\s*$", re.M)


def planned(job: BuildJob, locked: Lock) -> BuildPlan:
    """Return what a build will do.

    Raises
    ------
    UsageError
        The lock has not all that is to be built; without its roots a build would be one of nothing.
    """
    have = {root.name for root in locked.of(job.names)}
    if lacking := [name for name in job.names if name not in have]:
        raise UsageError(
            f"{job.request.lock or job.made.lock} is a lock without {', '.join(lacking)}: leave them out "
            f"({' '.join(f'--without {name}' for name in lacking)}), or name a lock that has them"
        )
    only_install = job.request.choices.side == "virtual"
    return plan.make(locked, job.names, job.made.store, job.request.mirror, only_install=only_install)


def outlined(job: BuildJob) -> BuildPlan:
    """Return what can be said of a build whose lock Spack has still to work out."""
    choices = job.request.choices
    return plan.outline(
        job.names,
        job.made.store,
        job.request.mirror,
        choices.site,
        only_install=choices.side == "virtual",
    )


def build(job: BuildJob, say: Say, show: Show = lambda plan: None) -> Manifest:
    """Build what is not there, and write the manifest.

    Parameters
    ----------
    job, say
        The stack to build, and a function that is told of every step.
    show
        Given the plan before anything is built.

    Raises
    ------
    InfrastructureError
        Something is missing or failed; the stack that was set up before stays as it was.
    """
    with alone(job.state):
        found, _ = begun(job, say)
        made = concretised(job, found, say)
        todo = planned(job, made)
        show(todo)
        if todo.lacking:
            lines = ["this machine lacks what the build needs:", *todo.lacking]
            raise InfrastructureError("\n  ".join(lines) + "\n--without PACKAGE leaves a program out")
        if todo.build:
            supply(job, todo)
            _install(job, found, todo, say)
        # What was there before must be what it was: nobody else would notice another program of one hash.
        there = [p for p in made.packages.values() if p.external is None and p not in todo.build]
        if spoilt := list(_spoilt(job, there)):
            raise InfrastructureError("\n".join(spoilt))
        return _finish(job, made, todo.roots)


def begun(job: BuildJob, say: Say) -> tuple[Spack, Path]:
    """Bring Spack and the recipes, and write the environment; return Spack and where the recipes are."""
    request, recipes = job.request, job.recipes
    found = bring.spack(job.state, mirror=request.mirror, offline=request.offline)
    upstream = bring.packages(job.state, recipes, mirror=request.mirror, offline=request.offline)
    say(f"Spack {found.version} ({found.note}), package repository {recipes.commit[:12]}")
    environment.write(job.made, job.root, request.choices, upstream, mirrors(job))
    return found, upstream


def mirrors(job: BuildJob) -> dict[str, Any]:
    """Return where sources and binaries are taken from, as Spack's ``mirrors.yaml`` has them."""
    found: dict[str, Any] = {}
    by_hand = job.state / "by-hand/mirror"
    found["by-hand"] = {"url": by_hand.as_uri(), "binary": False}
    if job.request.mirror:
        found["sources"] = {"url": (job.request.mirror / "sources").resolve().as_uri(), "binary": False}
        binaries = job.request.mirror / "build_cache"
        if binaries.is_dir():
            # The site made this directory itself (SECURITY.md).
            found["binaries"] = {"url": binaries.resolve().as_uri(), "source": False, "signed": False}
    if job.request.buildcache:
        url = job.request.buildcache
        found["buildcache"] = {
            "url": url if "://" in url else Path(url).resolve().as_uri(),
            "source": False,
            "signed": not job.request.unsigned,
        }
    return found


def concretised(job: BuildJob, found: Spack, say: Say, *, anew: bool = False) -> Lock:
    """Return the environment's lock, worked out by Spack if there is none yet.

    Parameters
    ----------
    job, found, say
        The stack to build, Spack, and a function that is told of every step.
    anew
        Have Spack work it out even if there is one.
    """
    given = None if anew else jobs.given_lock(job.request, job.root, job.made)
    if given and given != job.made.lock:
        shutil.copy(given, job.made.lock)
    if given is None:
        job.made.lock.unlink(missing_ok=True)
        say("working out versions and hashes (concretising): a few minutes")
        failed = "the stack cannot be concretised with this configuration"
        found.do(job.made.directory, ["concretize"], log_file(job.state, "concretize"), failed)
    return lock.load(job.made.lock)


def supply(job: BuildJob, todo: BuildPlan) -> None:
    """Put what a person supplied where Spack looks for it."""
    for entry in (each for each in todo.by_hand if each.supplied):
        place = job.state / f"by-hand/mirror/_source-cache/archive/{entry.sha256[:2]}"
        place.mkdir(parents=True, exist_ok=True)
        suffix = "".join(Path(entry.file).suffixes[-2:])
        shutil.copy(entry.place, place / f"{entry.sha256}{suffix}")


def _install(job: BuildJob, found: Spack, todo: BuildPlan, say: Say) -> None:
    left = {f"{package.name}-{package.version}" for package in todo.build}
    total, started = len(left), 0

    def follow(line: str) -> None:
        nonlocal started
        if match := _BEGINS.search(line):
            started += 1
            say(f"[{min(started, total)}/{total}] {match[1]}")

    options = ["install", "--only-concrete"]
    if job.request.choices.side == "virtual":
        options.append("--use-buildcache=only")
    if job.request.jobs:
        options.append(f"-j{job.request.jobs}")
    log = log_file(job.state, "install")
    wanted = [f"/{root.hash}" for root in todo.roots]
    code = found.run(job.made.directory, [*options, *wanted], log, follow)
    there = lock.installed(job.made.store)
    if code or any(root.hash not in there for root in todo.roots):
        raise InfrastructureError(failure(log, job, todo.build, there))


def failure(log: Path, job: BuildJob, build: Iterable[Package], there: frozenset[str]) -> str:
    """Return which package failed, where its log is, and what is still in place."""
    text = log.read_text(encoding="utf-8", errors="replace")
    lacking = {each.hash: each for each in build if each.hash not in there}
    # The first: what comes after it may only have failed because of it.
    found = _LOG.search(text)
    begun = next((match for match in _BEGINS.finditer(text) if match[2] in lacking), None)
    if found:
        where, package = Path(found[1]), str(lacking.get(found[3], found[2]))
    else:
        # It failed before it had a log: no source, or its recipe's own mistake.
        where, package = log, str(lacking[begun[2]]) if begun else "a package"
    good = manifest.earlier(job.state)
    last = (
        f"the last good stack ({good.hash}) is still in place"
        if good
        else "no Spack stack was set up before; the registry stack is not touched"
    )
    return (
        f"{package} could not be built; its log: {where}\n{tail(where, 8)}\n"
        f"{_count(len(lacking), 'package')} left, {last}; the same command goes on where it stopped, "
        "--without PACKAGE leaves a program out"
    )


def _spoilt(job: BuildJob, packages: Iterable[Package]) -> Iterator[str]:
    """Yield a sentence for each file of packages that is not what it was when the stack was set up."""
    before = manifest.earlier(job.state)
    for package, program in product(packages, before.programs if before else ()):
        for why in program.changed_below(prefix(job.made.store, package)):
            again = f"`spack uninstall --force /{package.hash[:7]}`, and build it anew"
            yield f"{why}, and no build of ours did that: {package} is not used as it is; {again}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{' is' if number == 1 else 's are'}"


def _finish(job: BuildJob, locked: Lock, roots: Sequence[Package]) -> Manifest:
    """Write lock, provenance and manifest, the manifest last: what it says is then there."""
    # A smaller set must not take away what a larger one has brought.
    there = lock.installed(job.made.store)
    every = [locked.packages[hash_] for hash_ in locked.roots]
    present = [root for root in every if root.hash in there or root in roots]
    made = programs.make(locked, present, lambda package: prefix(job.made.store, package), job.made.digest)
    lock.copy(job.made.lock, job.state / "spack.lock", job.made.store)
    shutil.copy(job.made.directory / "spack.yaml", job.state / "spack.yaml")
    kept = {
        "schema": "virtqual-lock/1",
        "packages": {"git": job.recipes.url, "commit": job.recipes.commit},
        "spack": locked.spack,
        "lock_sha256": manifest.sha256(job.state / "spack.lock"),
        "environment": job.made.directory.name,
        "system": locked.system,
    }
    (job.state / "provenance.json").write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    sbom.write(made, job.state)
    made.write(job.state)
    return made


def prefix(store: Path, package: Package) -> Path:
    """Return where a package of a lock is, or will be, installed."""
    return package.external or store / f"{package.name}-{package.version}-{package.hash}"
