"""`virtqual system`: write and check a system file."""

from __future__ import annotations

import difflib
import os
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from virtqual import paths
from virtqual.commands.options import WaitHours
from virtqual.errors import InfrastructureError, UsageError
from virtqual.files.records import write_file
from virtqual.identity import gather, readers
from virtqual.qualify.opening import choose_class, find_stated_class
from virtqual.report.console import verbatim
from virtqual.site import audit, probe, slurm, systems
from virtqual.site.configuration import load_system, read_systems
from virtqual.site.draft import Draft
from virtqual.site.observed import Observed, observe, reconcile
from virtqual.site.options import parse_options
from virtqual.site.slurm import SlurmPartition, read_partition
from virtqual.site.systems import System, SystemFileError
from virtqual.site.waiting import DEFAULT_WAIT_HOURS, Wait
from virtqual.verdict.pairs import SIDES

app = typer.Typer(
    help="Write a system file by what Slurm and the nodes show, and check one.",
    no_args_is_help=True,
    add_completion=False,
)
_console = verbatim(soft_wrap=True)
#: The name under which a node prints whether it sees a file of this machine.
_SEEN = "/virtqual/seen"

Name = Annotated[str, typer.Argument(help="name of the system")]


@app.command("init")
def init_system(
    name: Name,
    native: Annotated[str, typer.Option(help="Slurm's partition of bare-metal nodes", metavar="PARTITION")],
    virtual: Annotated[str, typer.Option(help="Slurm's partition of VMs", metavar="PARTITION")],
    account: Annotated[str, typer.Option(help="account for jobs on both partitions")] = "",
    qos: Annotated[str, typer.Option(help="QOS for jobs on both partitions")] = "",
    wait: WaitHours = None,
) -> None:
    """Write the system file, by what Slurm and a node of each partition show.

    A short job runs on one node of each partition. Values that only people know are
    marked TODO. A file that exists is not overwritten: the difference is printed.
    """
    file = _find_new_file(name)
    if native == virtual:
        raise UsageError(f"--native and --virtual both name {native}: name two partitions")
    options = [f"--{key}={value}" for key, value in (("account", account), ("qos", qos)) if value]
    partitions = [read_partition(partition) for partition in (native, virtual)]
    stated = parse_options(options)
    if wrong := [problem for part in partitions for problem in audit.find_wrong_options(part, stated)]:
        raise UsageError(f"the command line {'; it '.join(wrong)}")
    has_accounting, prefix = slurm.has_accounting(), paths.make(paths.state() / "reframe")
    with _place_marker(prefix) as commands:
        hours = wait or DEFAULT_WAIT_HOURS
        looks = [
            _look_at_node(partition, [f"--partition={partition.name}", *options], commands, hours)
            for partition in partitions
        ]
    sides = reconcile(*(observed for observed, _ in looks))
    for note in dict.fromkeys(note for side in sides for note in side.notes):
        _console.print(note)
    seen_prefix = prefix if all(sees_prefix for _, sees_prefix in looks) else None
    text = Draft(name, *sides, options, seen_prefix, has_accounting).compose()
    if file.exists():
        before = file.read_text(encoding="utf-8").splitlines()
        for line in difflib.unified_diff(before, text.splitlines(), str(file), "now", lineterm="", n=1):
            _console.print(line)
        raise UsageError(f"{file} exists and was not changed: the lines above are what would be written now")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(text, file)
    _console.print(f"{file} is written. These values are left to you:")
    error = systems.read(file).content
    for mistake in error.mistakes if isinstance(error, SystemFileError) else ():
        _console.print(f"  {mistake}")
    _console.print(f"Then: virtqual system check {name} --on-nodes")


@app.command("check")
def check_system(
    name: Name,
    on_nodes: Annotated[
        bool, typer.Option("--on-nodes", help="compare with a node of each partition, by a short job")
    ] = False,
    wait: WaitHours = None,
) -> None:
    """Say what is missing in a system file, and what Slurm and the nodes show otherwise.

    Exit code: 0 nothing; 2 something; 4 the class is not for these VMs; 5 Slurm or a
    node does not answer.
    """
    try:
        system = load_system(name)
    except SystemFileError as error:
        _end_if_wrong(error.file, error.mistakes)
    find_stated_class(system)
    _end_if_wrong(system.file, list(audit.compare_with_slurm(system)))
    if on_nodes:
        _end_if_wrong(system.file, _compare_with_nodes(system, wait or system.native_extras.wait_hours))
    # The nodes may show that the accelerator is wrong, and not the class.
    choose_class("", system)
    nodes = ", and so do the nodes" if on_nodes else ""
    _console.print(f"{system.file}: nothing is missing, Slurm agrees with it{nodes}")


def _end_if_wrong(file: str, mistakes: list[str]) -> None:
    """Print the mistakes in a system file, if there are any, and end the command."""
    if mistakes:
        _console.print(f"{file}:")
        for mistake in mistakes:
            _console.print(f"  {mistake}")
        _console.print("docs/system-file.md has every key.")
        raise typer.Exit(UsageError.exit_code)


def _compare_with_nodes(system: System, wait_hours: float) -> list[str]:
    prefix, mistakes, observed = Path(system.prefix), [], []
    if not os.access(prefix, os.W_OK):
        mistakes.append(f"system.prefix: {prefix} is no directory here that can be written: make it")
        prefix = Path(tempfile.gettempdir())
    with _place_marker(prefix) as commands:
        for side in SIDES:
            partition = system.partition(side)
            in_slurm = read_partition(partition.slurm_name)
            node, sees_prefix = _look_at_node(in_slurm, partition.access, commands, wait_hours)
            observed.append(node)
            if not (sees_prefix or mistakes):
                mistakes.append(f"system.prefix: {node.node} does not see {prefix} of this machine")
    return [*mistakes, *audit.compare_with_nodes(system, *observed)]


def _look_at_node(
    partition: SlurmPartition, options: Sequence[str], commands: str, wait_hours: float
) -> tuple[Observed, bool]:
    """Return a node of a partition, and whether it printed that it sees the marker."""
    _console.print(f"a short job looks at a node of partition {partition.name}", style="dim")
    files = probe.gather_from_node(
        partition.name,
        options,
        Wait(wait_hours, _console.print),
        commands=commands,
        more=gather.ALL_CACHES,
    )
    return observe(partition, readers.read(files)), _SEEN in files.texts


@contextmanager
def _place_marker(directory: Path) -> Iterator[str]:
    """Make a file for a while, and yield the shell commands that print whether a node sees it."""
    try:
        with tempfile.NamedTemporaryFile(dir=directory, prefix="seen-") as file:
            yield f"[ -e {shlex.quote(file.name)} ] && echo {_SEEN}:yes\n"
    except OSError as error:
        raise InfrastructureError(f"{directory}: {error.strerror}") from error


def _find_new_file(name: str) -> Path:
    """Return the file of a new system, whose name no other file has."""
    if not systems.is_name(name):
        raise UsageError(f"{name!r} {systems.NO_NAME}")
    file = paths.site() / "systems" / f"{name}.py"
    other = read_systems().get(name)
    if other and other.path != file:
        raise UsageError(f"system {name!r} is defined by {other.path}: choose another name")
    return file
