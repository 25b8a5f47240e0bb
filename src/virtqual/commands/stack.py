"""`virtqual stack`: the exact stack, built by Spack."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from virtqual import paths
from virtqual.commands.speaking import speaking
from virtqual.errors import InfrastructureError, RefusedError
from virtqual.report.console import verbatim
from virtqual.stack import build as building
from virtqual.stack import environment, manifest
from virtqual.stack import jobs as jobbing
from virtqual.stack import mirror as mirroring
from virtqual.stack.alone import alone
from virtqual.stack.environment import Choices, Side
from virtqual.stack.plan import BuildPlan

app = typer.Typer(help="The exact stack, built by Spack once for both partitions.", no_args_is_help=True)
_say = verbatim(soft_wrap=True)


Mpi = Annotated[str, typer.Option(help="another MPI library than spack.yaml's: mvapich2, mvapich, mpich")]
Site = Annotated[
    Path | None, typer.Option(help="directory of the site's own Spack configuration (default: config/site)")
]
Set = Annotated[str, typer.Option("--set", help="set to build: micro, apps or all")]
Without = Annotated[list[str] | None, typer.Option(help="a package of the set to leave out (repeatable)")]


@app.command()
def build(
    which: Set = "all",
    mpi: Mpi = "",
    site: Site = None,
    without: Without = None,
    mirror: Annotated[
        Path | None, typer.Option(help="directory of `virtqual stack mirror` to take everything from")
    ] = None,
    buildcache: Annotated[str, typer.Option(help="URL or directory of a signed build cache")] = "",
    unsigned: Annotated[
        bool, typer.Option("--unsigned", help="accept packages of --buildcache that are not signed")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="use no network at all")] = False,
    side: Annotated[
        Side, typer.Option(help="native builds; virtual installs the same lock from --buildcache only")
    ] = "native",
    lock: Annotated[Path | None, typer.Option(help="lock file to install, as another side made it")] = None,
    jobs: Annotated[int | None, typer.Option("-j", "--jobs", min=1, help="processes of one build")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show the plan, and stop")] = False,
) -> None:
    """Build the stack, or what of it is not there yet, and write its manifest."""
    with speaking():
        root = paths.root()
        request = jobbing.BuildRequest(
            set=which,
            without=tuple(without or ()),
            choices=Choices(mpi=mpi, site=environment.site_directory(root, site), side=side),
            mirror=mirror,
            buildcache=buildcache,
            unsigned=unsigned,
            lock=lock,
            offline=offline,
            jobs=jobs,
        )
        job = jobbing.make(request, root, paths.stacks())
        locked = jobbing.known_lock(job)
        if dry_run:
            show(building.planned(job, locked) if locked else building.outlined(job), job)
            return
        if locked is None:
            show(building.outlined(job), job)
        made = building.build(job, _say.print, lambda planned: show(planned, job))
        _say.print(f"Spack stack {made.hash}:")
        for program in made.programs:
            _say.print(f"  {program.name} {program.version} ({program.origin})")


def show(plan: BuildPlan, job: jobbing.BuildJob) -> None:
    """Print what a build will do, or what can be said of it before its versions are worked out."""
    name = job.request.set
    if plan.roots:
        _say.print(f"set {name}: {', '.join(f'{p.name}@{p.version}' for p in plan.roots)}")
        _say.print(
            f"{len(plan.build)} packages to install, {plan.installed} there, {len(plan.machine)} from the "
            f"machine ({', '.join(f'{p.name}@{p.version}' for p in plan.machine)}); "
            f"{plan.free / 2**30:.0f} GiB free"
        )
    else:
        _say.print(
            f"set {name}: {', '.join(job.names)}; the versions of their dependencies are not known yet for "
            "this machine and configuration: the build works them out first, which takes a few minutes, and "
            f"then lists its packages; {plan.free / 2**30:.0f} GiB free"
        )
    for package in plan.build:
        notes = [f"{package.name}@{package.version}"]
        if size := plan.sizes.get(package.name):
            notes.append(f"{size / 2**20:.1f} MiB of sources")
        if tried := plan.tried.get(package.name):
            notes.append(f"{tried.minutes:g} min, {tried.size:g} MiB installed")
        _say.print(f"  {', '.join(notes)}")
    if plan.tried:
        minutes, size = (sum(part) for part in zip(*plan.tried.values(), strict=True))
        unknown = len(plan.build) - len(plan.tried)
        _say.print(
            f"{minutes:.0f} min on two cores and {size:.0f} MiB for the {len(plan.tried)} that were tried; "
            + (f"not timed: {unknown}" if unknown else "that is all of them")
        )
    for entry in plan.by_hand:
        _say.print(f"{'supplied' if entry.supplied else 'TO SUPPLY BY HAND'}: {entry}")
    for sentence in plan.missing:
        _say.print(f"MISSING: {sentence}")


@app.command("lock")
def lock_() -> None:
    """Concretize again, after a change of spack.yaml or config/, and write spack.lock."""
    with speaking():
        root = paths.root()
        job = jobbing.make(jobbing.BuildRequest(), root, paths.stacks())
        with alone(job.state):
            found, _ = building.begun(job, _say.print)
            building.concretised(job, found, _say.print, anew=True)
        _say.print(f"written: {environment.ship(job.made, root)}")


@app.command()
def mirror(
    directory: Annotated[Path, typer.Argument(help="where to gather it; can be filled bit by bit")],
    which: Set = "all",
    mpi: Mpi = "",
    site: Site = None,
    without: Without = None,
    source: Annotated[Path | None, typer.Option("--from", help="another mirror to take things from")] = None,
) -> None:
    """Gather all that an isolated site needs: Spack, recipes, sources, and what is built here already."""
    with speaking():
        request = jobbing.BuildRequest(
            set=which,
            without=tuple(without or ()),
            choices=Choices(mpi=mpi, site=environment.site_directory(paths.root(), site)),
            mirror=source,
        )
        job = jobbing.make(request, paths.root(), paths.stacks())
        lacking = mirroring.gather(job, directory.resolve(), _say.print)
        for sentence in lacking:
            _say.print(f"LACKING: {sentence}")
        if lacking:
            raise InfrastructureError(f"the mirror {directory} is not complete")
        _say.print(f"complete: virtqual stack build --offline --mirror {directory}")


@app.command()
def check(
    session: Annotated[
        str,
        typer.Option(
            help="also compare the libraries that the nodes of a session loaded (id, path or 'last')"
        ),
    ] = "",
) -> None:
    """Say which stacks are set up, what each can do, and whether a file of them has changed since.

    Exit code: 0 all is as it was, 4 the nodes of the session did not load the
    same, 5 a stack is missing or changed.
    """
    with speaking():
        if session:
            _compare(session)
        found = manifest.installed(paths.stacks())
        if not found:
            raise InfrastructureError(manifest.NONE)
        changed = {stack.name: list(stack.changed()) for stack in found}
        for number, stack in enumerate(found):
            used = "used unless --stack names another" if number == 0 else f"used by --stack {stack.name}"
            _say.print(f"{stack.name} {stack.hash} ({used})")
            for program in stack.programs:
                mpi = f", {program.mpi}" if program.mpi else ""
                _say.print(
                    f"  {program.name} {program.version}{mpi}: {', '.join(program.features)}", markup=False
                )
        if any(changed.values()):
            lines = ["not as they were set up:"]
            for name, sentences in changed.items():
                lines += [
                    *sentences,
                    *([f"{manifest.set_up_by(name)} sets it up again"] if sentences else []),
                ]
            raise InfrastructureError("\n  ".join(lines))


def _compare(session: str) -> None:
    from virtqual.preflight.software import other_software
    from virtqual.session import store

    runs = store.load(store.find(session, paths.sessions())).runs
    found = list(other_software(runs, processor=True))
    if not any(run.software for run in runs):
        raise InfrastructureError(f"session {session} does not say what its nodes loaded: it is an older one")
    if found:
        lines = [f"{name}: {reason}" for name, reason in found]
        raise RefusedError("\n  ".join(["the nodes did not see the same:", *lines]))
    _say.print(f"all {len(runs)} runs of the session loaded the same files and saw the same CPU features")
