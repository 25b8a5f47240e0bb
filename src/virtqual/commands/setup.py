"""`virtqual setup`: set up the registry stack, if no other stack will be used."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from virtqual import paths
from virtqual.errors import UsageError
from virtqual.files.wording import suggest_similar
from virtqual.report.console import verbatim
from virtqual.stack import manifest, registry, spack

_say = verbatim(soft_wrap=not sys.stdout.isatty())


def command(
    stack: Annotated[
        str,
        typer.Option(help="stack that will be used (default: the one with the most features, else registry)"),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be installed, and stop")] = False,
    extra: Annotated[
        list[str] | None, typer.Option(help="an extra of the registry stack that is set up, too (repeatable)")
    ] = None,
    package: Annotated[
        list[str] | None, typer.Option(help="another package of the distribution to install (repeatable)")
    ] = None,
) -> None:
    """Set up the registry stack (Debian 12), unless another stack is used; nothing is installed twice."""
    stacks = paths.stacks()
    used = _choose_stack(manifest.find_stacks(stacks), stack)
    is_registry = used == registry.NAME
    if extra and not is_registry:
        raise UsageError(
            f"--extra is for the registry stack, and {used} is used: add --stack {registry.NAME}"
        )
    recipe = registry.choose_recipe(stacks, extra or ()) if is_registry else None
    todo = registry.plan(stacks, recipe, tuple(package or ()))
    current = registry.load_current(stacks, recipe) if recipe else None
    _show_missing(todo, stacks / registry.NAME)
    if current and not (todo.wheels or todo.packages or todo.unpacked):
        _say.print(f"registry stack {current.hash} is set up: {', '.join(current.features)}")
        return
    if not is_registry:
        _say.print(f"stack {used} is set up: nothing is installed into the registry stack")
    if dry_run:
        return
    registry.install(stacks, todo)
    if recipe:
        written = registry.write_manifest(stacks, recipe)
        _say.print(f"registry stack {written.hash}:")
        for program in written.programs:
            _say.print(f"  {program.name} {program.version} ({program.origin})")


def _show_missing(todo: registry.InstallPlan, directory: Path) -> None:
    """Print what will be installed."""
    for words, names in (
        ("packages of the distribution to install", todo.packages),
        (f"packages to unpack into {directory}", todo.unpacked),
        (f"wheels to install into {directory}", todo.wheels),
    ):
        if names:
            _say.print(f"{words}: {' '.join(names)}")


def _choose_stack(names: Collection[str], name: str) -> str:
    if name and name != registry.NAME and name not in names:
        message = f"no stack {name!r} is set up (there are: {', '.join(names) or 'none'})"
        similar = suggest_similar(name, {*names, registry.NAME, spack.NAME} - {name})
        if name == spack.NAME or not similar:
            similar = f"{manifest.name_setup(name)} sets it up"
        raise UsageError(f"{message}; {similar}")
    return name or next(iter(names), registry.NAME)
