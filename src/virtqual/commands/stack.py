"""`virtqual stack`: register installed programs, and check the registered stacks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from virtqual import paths
from virtqual.errors import InfrastructureError, UsageError
from virtqual.report.console import verbatim
from virtqual.stack import manifest
from virtqual.stack import modules as module_stack
from virtqual.stack import spack as spack_stack

app = typer.Typer(
    help="Register installed programs, and check the registered stacks.",
    no_args_is_help=True,
    add_completion=False,
)
_console = verbatim(soft_wrap=True)


@app.command()
def register(
    spack: Annotated[
        Path | None, typer.Option(help="directory of the installed Spack environment (default: the checkout)")
    ] = None,
    modules: Annotated[
        Path | None, typer.Option(help="YAML file of the modules that provide programs you already have")
    ] = None,
) -> None:
    """Write the manifest of installed programs, and say which checks they let run."""
    if spack and modules:
        raise UsageError("--spack and --modules are two stacks: register one after the other")
    if modules:
        stack = module_stack.register(modules, paths.stacks())
    else:
        environment = (spack or paths.root()).resolve()
        if spack is None and not spack_stack.has_spack():
            raise UsageError(
                "name what provides the programs: --modules FILE takes the modules of programs you have "
                "(docs/stack.md), --spack DIRECTORY an installed Spack environment; without either "
                "it is Spack's of the checkout, and there is no program spack on PATH or in SPACK_ROOT"
            )
        stack = spack_stack.register(environment, paths.stacks() / spack_stack.NAME)
    _console.print(f"stack {stack.name} {stack.hash}:")
    for program in stack.programs:
        _console.print(f"  {program.name} {program.version} ({program.origin})")
    checks = manifest.load_recipe("programs.yaml")["checks"]
    for what, features in (
        ("checks that have a program", [feature for feature in checks if feature in stack.features]),
        ("checks without a program", [feature for feature in checks if feature not in stack.features]),
    ):
        _console.print(f"{what}:{'' if features else ' none'}")
        for feature in features:
            _console.print(f"  {feature}: {', '.join(checks[feature])}")


@app.command()
def check() -> None:
    """List the registered stacks and their features, and report files that have changed since.

    Exit code: 0 no file has changed, 5 a stack is missing or a file has changed.
    """
    stacks = manifest.load_all(paths.stacks())
    if not stacks:
        raise InfrastructureError(manifest.NO_STACK_MESSAGE)
    for number, stack in enumerate(stacks):
        use = "the default" if number == 0 else f"selected by --stack {stack.name}"
        _console.print(f"{stack.name} {stack.hash} ({use})")
        for program in stack.programs:
            mpi = f", {program.mpi}" if program.mpi else ""
            features = ", ".join(program.features)
            _console.print(f"  {program.name} {program.version}{mpi}: {features}", markup=False)
    changes = []
    for stack in stacks:
        if sentences := list(stack.find_changes()):
            changes += [*sentences, f"{manifest.name_setup(stack.name, again=True)} sets it up again"]
    if changes:
        raise InfrastructureError("\n  ".join(["files have changed:", *changes]))
