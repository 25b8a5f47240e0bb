"""`virtqual system`: write and check a system file."""

from __future__ import annotations

import difflib
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from virtqual import paths
from virtqual.commands.options import WaitHours
from virtqual.errors import InfrastructureError, UsageError
from virtqual.files.records import write_file
from virtqual.identity import gather, readers, seen
from virtqual.qualify.opening import choose_class, find_stated_class
from virtqual.references import project_references
from virtqual.report.console import verbatim
from virtqual.site import audit, probe, slurm, systems
from virtqual.site.configuration import load_system, read_systems
from virtqual.site.draft import Draft
from virtqual.site.hosts import shorten
from virtqual.site.limits import (
    explain_constraint,
    find_max_minutes,
    find_max_nodes,
    find_obstacles,
    find_wrong_selection,
)
from virtqual.site.observed import Fact, Observed, observe, reconcile
from virtqual.site.options import lengthen_options, parse_options
from virtqual.site.partitions import SlurmPartition, read_partition
from virtqual.site.systems import System, SystemFileError
from virtqual.site.template import compose_template
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
    native: Annotated[
        str,
        typer.Option(help="Slurm's partition of bare-metal nodes; default: Slurm's own", metavar="PARTITION"),
    ] = "",
    virtual: Annotated[
        str, typer.Option(help="Slurm's partition of VMs; default: Slurm's own", metavar="PARTITION")
    ] = "",
    native_options: Annotated[
        str, typer.Option(help="further options of Slurm for native jobs: '-C bare --reservation=x'")
    ] = "",
    virtual_options: Annotated[str, typer.Option(help="further options of Slurm for jobs on VMs")] = "",
    account: Annotated[str, typer.Option(help="account for jobs on both partitions")] = "",
    qos: Annotated[str, typer.Option(help="QOS for jobs on both partitions")] = "",
    offline: Annotated[
        bool, typer.Option("--offline", help="ask neither Slurm nor nodes: write a template with comments")
    ] = False,
    wait: WaitHours = None,
) -> None:
    """Write the system file, by what Slurm and a node of each partition show.

    A short job runs on one node of each partition. Values that only people know are
    marked TODO. A file that exists is not overwritten: the difference is printed.
    """
    file = _find_new_file(name)
    if not offline:
        _check_that_slurm_is_here(name)
    common = [f"--{key}={value}" for key, value in (("account", account), ("qos", qos)) if value]
    options = {
        "native": _complete_options("native", native, native_options, common),
        "virtual": _complete_options("virtual", virtual, virtual_options, common),
    }
    _check_that_sides_differ(options)
    if offline:
        text = compose_template(name, options)
    else:
        text = _compose_by_slurm(name, options, wait or DEFAULT_WAIT_HOURS)
    _write_new_file(file, text)
    _console.print(f"{file} is written. These values are left to you:")
    error = systems.read(file).content
    for mistake in error.mistakes if isinstance(error, SystemFileError) else ():
        _console.print(f"  {mistake}")
    _console.print(f"Then: virtqual system check {name}{'' if offline else ' --on-nodes'}")


def _check_that_slurm_is_here(name: str) -> None:
    if shutil.which("scontrol") is None:
        raise InfrastructureError(
            "there is no Slurm on this machine (no scontrol on PATH): run this on a login node, or write a "
            f"template: virtqual system init {name} --offline --native PARTITION --virtual PARTITION. Two "
            "machines without Slurm are compared by `virtqual pair`"
        )


def _complete_options(side: str, partition: str, more: str, common: Sequence[str]) -> list[str]:
    """Return all options of Slurm for one side, in their long form."""
    try:
        options = lengthen_options(more)
    except ValueError as error:
        raise UsageError(f"--{side}-options: {error}") from error
    return [*([f"--partition={partition}"] if partition else []), *common, *options]


def _check_that_sides_differ(options: Mapping[str, Sequence[str]]) -> None:
    if sorted(options["native"]) != sorted(options["virtual"]):
        return
    partition = parse_options(options["native"]).get("--partition")
    named = f"both name {partition}" if partition else "name nothing"
    raise UsageError(
        f"--native and --virtual {named}: name two partitions, or tell the nodes of one apart by "
        "--native-options and --virtual-options, such as '--constraint=bare'"
    )


def _read_partition(name: str) -> SlurmPartition:
    """Return a partition; the error of a Slurm that does not answer says what works without it."""
    try:
        return read_partition(name)
    except slurm.SilentError as error:
        raise InfrastructureError(f"{error} (--offline writes a template without Slurm)") from error


def _compose_by_slurm(name: str, options: Mapping[str, Sequence[str]], wait_hours: float) -> str:
    """Return the text of a system file by what Slurm and a node of each side show."""
    stated = {side: parse_options(words) for side, words in options.items()}
    if len(clusters := {of_side.get("--clusters", "") for of_side in stated.values()}) > 1:
        raise UsageError(
            "--clusters differs between --native-options and --virtual-options: one Slurm runs both"
        )
    slurm.choose_cluster(clusters.pop())
    read = {side: _read_partition(of_side.get("--partition", "")) for side, of_side in stated.items()}
    if wrong := [
        f"--{side}: {problem}"
        for side, partition in read.items()
        for problem in (
            *find_obstacles(partition, stated[side]),
            *find_wrong_selection(partition, stated[side]),
        )
    ]:
        raise UsageError("; ".join(wrong))
    partitions = {side: _select_nodes(read[side], stated[side]) for side in SIDES}
    has_accounting, prefix = slurm.has_accounting(), paths.make(paths.state() / "reframe")
    with _place_marker(prefix) as commands:
        looks = [_look_at_node(partitions[side], options[side], commands, wait_hours) for side in SIDES]
    limited = [_limit_nodes(observed, stated[side]) for side, (observed, _) in zip(SIDES, looks, strict=True)]
    sides = reconcile(*limited)
    for note in dict.fromkeys(note for side in sides for note in side.notes):
        _console.print(note)
    limits: dict[str, tuple[float, str]] = {
        side: find_max_minutes(partitions[side], stated[side]) for side in SIDES
    }
    seen_prefix = prefix if all(sees_prefix for _, sees_prefix in looks) else None
    accelerator = sides[1].hypervisor.get("accelerator", Fact(None)).value
    classes = [
        each.name for each in project_references().classes.values() if accelerator in each.accelerators
    ]
    return Draft(name, *sides, options, limits, seen_prefix, has_accounting, classes).compose()


def _select_nodes(partition: SlurmPartition, options: Mapping[str, str]) -> SlurmPartition:
    """Return a partition with the nodes that options select, and say how these differ."""
    selected = partition.select(options)
    notes = (explain_constraint(options), selected.describe_kinds(), selected.describe_features())
    for note in filter(None, notes):
        _console.print(note)
    return selected


def _limit_nodes(observed: Observed, options: Mapping[str, str]) -> Observed:
    """Return it with as many nodes as a job may have."""
    nodes, cpus = observed.extras["nodes"].value, observed.processor["num_cpus"].value
    most, limit = find_max_nodes(observed.partition, options, cpus)
    if nodes <= most:
        return observed
    fact = Fact(int(most), f"{limit}; {observed.partition.name} has {nodes}")
    return replace(observed, extras={**observed.extras, "nodes": fact})


def _write_new_file(file: Path, text: str) -> None:
    """Write a file that does not exist; otherwise print the difference, and raise `UsageError`."""
    if file.exists():
        before = file.read_text(encoding="utf-8").splitlines()
        for line in difflib.unified_diff(before, text.splitlines(), str(file), "now", lineterm="", n=1):
            _console.print(line)
        raise UsageError(f"{file} exists and was not changed: the lines above are what would be written now")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(text, file)


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
    for note in audit.find_notes(system):
        _console.print(note)
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
            # The probe is a job of its own, on one of the nodes of a session.
            in_slurm = read_partition(partition.slurm_name).select(partition.job_options)
            node, sees_prefix = _look_at_node(in_slurm, partition.access, commands, wait_hours)
            observed.append(node)
            if not (sees_prefix or mistakes):
                mistakes.append(f"system.prefix: {node.node} does not see {prefix} of this machine")
    return [*mistakes, *audit.compare_with_nodes(system, *observed)]


def _look_at_node(
    partition: SlurmPartition, options: Sequence[str], commands: str, wait_hours: float
) -> tuple[Observed, bool]:
    """Return a node of a partition's common kind, and whether it printed that it sees the marker."""
    _console.print(f"a short job looks at a node of partition {partition.name}", style="dim")
    place, wait = partition.choose_probed(options), Wait(wait_hours, _console.print)
    files = probe.gather_from_node(partition.name, place, wait, commands=commands, more=gather.ALL_CACHES)
    identity = readers.read(files)
    # A site may start jobs on other nodes than they ask for.
    node = partition.find_node([shorten(name) for name in (identity.slurm_node, identity.node) if seen(name)])
    return observe(replace(partition, typical_node=node), identity), _SEEN in files.texts


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
