"""From a request for a build to the environment, the packages and the lock that it means here."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

from virtqual.errors import UsageError
from virtqual.stack import environment, lock, manifest, pins
from virtqual.stack.environment import Choices, Environment
from virtqual.stack.lock import Lock
from virtqual.stack.pins import Repository
from virtqual.stack.programs import NAME

INVENTORY = "mirror.json"


@dataclass(frozen=True)
class BuildRequest:
    """A person's request for a build; see ``virtqual stack build --help``."""

    set: str = "all"
    without: tuple[str, ...] = ()
    choices: Choices = field(default_factory=Choices)
    mirror: Path | None = None
    buildcache: str = ""
    unsigned: bool = False
    lock: Path | None = None
    offline: bool = False
    jobs: int | None = None


@dataclass(frozen=True)
class BuildJob:
    """A build on this machine, worked out from a request.

    Attributes
    ----------
    request
        The person's request.
    root
        The checkout.
    state
        The stack's directory.
    recipes
        The repository of upstream's recipes.
    made
        The environment.
    names
        The packages of ``spack.yaml`` to build.
    """

    request: BuildRequest
    root: Path
    state: Path
    recipes: Repository
    made: Environment
    names: tuple[str, ...]


def make(request: BuildRequest, root: Path, stacks: Path) -> BuildJob:
    """Work out what a request means; nothing is written.

    Raises
    ------
    UsageError
        Something was named that is not there.
    """
    _assert_there(request)
    said = pins.stack(root)
    members = said.members(request.set)
    if unknown := set(request.without) - set(members):
        raise UsageError(f"--without {', '.join(sorted(unknown))}: not in the set {request.set!r}")
    state = stacks / NAME
    names = tuple(name for name in members if name not in request.without)
    if not names:
        raise UsageError(f"--without leaves nothing of the set {request.set!r}: name fewer packages")
    made = environment.prepare(root, state, request.choices)
    if request.lock is not None:
        made = _own(made, request.lock)
    if request.choices.side == "virtual":
        _assert_same_place(request, made.store)
    # A lock of everything serves every set; where there is none, a set is worked out alone.
    if given_lock(request, root, made) is None:
        # With what an earlier set has brought: a manifest is of one lock.
        names = (*names, *(name for name in _brought(state, made) if name not in (*names, *request.without)))
        if set(names) != set(said.members("all")):
            made = made.part(names)
    return BuildJob(request, root, state, said.packages, made, names)


def _assert_there(request: BuildRequest) -> None:
    """Assert that what a build is to take from is there: Spack passes over a mirror that is not."""
    if request.mirror and not (request.mirror / INVENTORY).is_file():
        raise UsageError(
            f"the mirror {request.mirror}: {INVENTORY} is not there, so this is no directory that "
            "`virtqual stack mirror` has filled; a URL will not do, copy or mount it"
        )
    if request.buildcache and "://" not in request.buildcache and not Path(request.buildcache).is_dir():
        raise UsageError(f"--buildcache {request.buildcache}: neither a URL nor a directory that is there")
    if request.unsigned and not request.buildcache:
        raise UsageError("--unsigned is an option for --buildcache: name a build cache, or leave it out")
    _assert_signed(request.buildcache, unsigned=request.unsigned)


def _assert_signed(url: str, *, unsigned: bool) -> None:
    """Assert that a build cache is signed, or comes over a safe network if the user vouches for it."""
    scheme = url.partition("://")[0].lower()
    if scheme.startswith("oci") and not unsigned:
        raise UsageError(
            f"--buildcache {url}: Spack verifies no signature of packages in a registry of containers. "
            "Add --unsigned if you vouch for all packages in it"
        )
    if scheme in ("http", "ftp", "oci+http") and unsigned:
        raise UsageError(
            f"--buildcache {url} --unsigned: without signatures packages can be replaced on the way. "
            "Use https or a directory, or sign the packages"
        )


def _assert_same_place(request: BuildRequest, store: Path) -> None:
    """Assert that what a build cache gives will be, byte for byte, what the native side has."""
    if request.lock is None or not request.buildcache:
        raise UsageError(
            "--side virtual installs what --side native has built: it needs --buildcache, and as --lock "
            "the spack.lock that is beside the native side's manifest.json"
        )
    native = lock.load(request.lock).store
    if native is None:
        raise UsageError(
            f"{request.lock} does not say where the native side has installed it: take the spack.lock "
            "that is beside the native side's manifest.json"
        )
    if native != store:
        raise UsageError(
            f"the native side's packages are in {native}, here they would be in {store}: a path is part of a "
            "binary, so the two sides would run different ones. Set VIRTQUAL_STATE to "
            f"{native.parents[2]} here too, or let both sides see one directory"
        )


def _brought(state: Path, made: Environment) -> list[str]:
    """Return the packages of the stack that is set up, if it is of the same configuration."""
    earlier = manifest.earlier(state)
    if earlier is None or earlier.pins.partition("-")[0] != made.digest:
        return []
    known = pins.programs()["programs"]
    return list(dict.fromkeys(known[program.name]["package"] for program in earlier.programs))


def known_lock(job: BuildJob) -> Lock | None:
    """Return the lock that a build would use, if it need not be worked out by Spack first."""
    file = given_lock(job.request, job.root, job.made)
    return lock.load(file) if file else None


def given_lock(request: BuildRequest, root: Path, made: Environment) -> Path | None:
    """Return the lock that was worked out before: here, by another side, for a mirror, or by us.

    Raises
    ------
    UsageError
        One was named, or comes with a mirror, that is for another operating system.
    """
    if request.lock is not None:
        return _for_this_machine(request.lock)
    if made.lock.is_file():
        return made.lock
    if request.mirror and _environment_of(request.mirror) == made.directory.name:
        return _for_this_machine(request.mirror / "spack.lock")
    return environment.shipped_lock(root, made)


def _environment_of(mirror: Path) -> str:
    """Return the name of the environment that a mirror was made for."""
    file = mirror / INVENTORY
    try:
        return str(json.loads(file.read_text(encoding="utf-8")).get("environment", ""))
    except (ValueError, AttributeError) as error:
        raise UsageError(
            f"{file}: not what `virtqual stack mirror` writes ({error}); make the mirror again"
        ) from None


def _for_this_machine(file: Path) -> Path:
    system, here = lock.load(file).system.partition("-")[0], environment.host_system()
    if system not in ("", here):
        raise UsageError(
            f"{file} is a lock for {system}, and this is {here}: the compiler and other packages "
            f"that it takes from the machine differ there. Take a lock or mirror that was made on {here}"
        )
    return file


def _own(made: Environment, given: Path) -> Environment:
    """Return an environment of its own for a lock that was named: later builds must not keep that lock."""
    if not given.is_file():
        raise UsageError(f"--lock {given}: no such file")
    digest = f"{made.digest}-lock-{manifest.sha256(given)[:12]}"
    directory = made.directory.with_name(f"environment-{digest}")
    return replace(made, directory=directory, digest=digest, plain=False)
