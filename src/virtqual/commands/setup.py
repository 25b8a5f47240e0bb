"""`virtqual setup`: the registry stack, where it is the one that will be used."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from virtqual import paths
from virtqual.errors import UsageError
from virtqual.report.console import verbatim
from virtqual.stack import manifest, registry

_say = verbatim(soft_wrap=not sys.stdout.isatty())


def command(
    stack: Annotated[
        str, typer.Option(help="the stack that will be used (default: the one that is there, else registry)")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be installed, and stop")] = False,
    package: Annotated[
        list[str] | None, typer.Option(help="another package of the distribution to install (repeatable)")
    ] = None,
) -> None:
    """Set up the registry stack, unless another one will be used; nothing is installed twice."""
    stacks = paths.stacks()
    used = _used(manifest.find_stacks(stacks), stack)
    ours = used == registry.NAME
    todo = registry.plan(stacks, tuple(package or ()), stack=ours)
    found = registry.load_current(stacks) if ours else None
    if todo.packages:
        _say.print(f"packages of the distribution to install: {' '.join(todo.packages)}")
    if todo.wheels:
        _say.print(f"wheels to install into {registry.directory(stacks)}: {' '.join(todo.wheels)}")
    if found and todo.complete:
        _say.print(f"registry stack {found.hash} is set up: {', '.join(found.features)}")
        return
    if not ours:
        _say.print(f"stack {used} is set up: of the registry stack nothing is installed")
    if dry_run:
        return
    registry.install(stacks, todo)
    if ours:
        made = registry.write_manifest(stacks)
        _say.print(f"registry stack {made.hash}:")
        for program in made.programs:
            _say.print(f"  {program.name} {program.version} ({program.origin})")


def _used(there: list[str], asked: str) -> str:
    if asked and asked != registry.NAME and asked not in there:
        raise UsageError(
            f"no stack {asked!r} is set up (there are: {', '.join(there) or 'none'}); "
            f"{manifest.name_setup(asked)} sets it up"
        )
    return asked or next(iter(there), registry.NAME)
