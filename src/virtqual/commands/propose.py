"""`virtqual propose`: references proposed from stored sessions, as a diff to review."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from virtqual import paths
from virtqual.errors import RefusedError, UsageError
from virtqual.files.records import write_file
from virtqual.files.wording import pluralize, printable
from virtqual.history.propose import Proposal, propose, propose_hosts
from virtqual.history.recorded import Recorded
from virtqual.preflight.admit import admit
from virtqual.qualify.checking import find_doubts
from virtqual.references import project_references
from virtqual.session import store
from virtqual.session.facts import facts
from virtqual.session.judge import policy
from virtqual.session.pairing import checks_of, series_of
from virtqual.site.configuration import load_system
from virtqual.site.hosts import shorten


def command(
    sessions: Annotated[list[str], typer.Argument(help="sessions to take (id, path or 'last')")],
    hosts: Annotated[
        bool, typer.Option("--hosts", help="propose how much hosts differ, from native runs on all of them")
    ] = False,
    write: Annotated[bool, typer.Option("--write", help="write the files after showing the diff")] = False,
) -> None:
    """Propose absolute native references and noise history for a system, as a diff to review.

    They are files below references/systems/ of the site directory.

    With `--hosts`, how much the hosts of native nodes and those of VMs differ:
    all must have been measured natively.

    Nothing is written without `--write`, and nothing is written that was not
    shown.
    """
    systems = paths.site_references() / "systems"
    directories = [store.find(name, paths.sessions()) for name in sessions]
    recorded = [_read_session(path, survey=hosts) for path in directories]
    if hosts:
        proposals = propose_hosts(recorded, systems, _find_vm_hosts(recorded[0].system))
    else:
        proposals = propose(recorded, systems)
    notes = [note for session in recorded for note in session.left_out]
    notes += [note for proposal in proposals for note in proposal.notes]
    for note in dict.fromkeys(notes):
        typer.echo(printable(f"# {note}"), err=True)
    _show_diffs([proposal for proposal in proposals if proposal.diff], write)


def _show_diffs(changed: Sequence[Proposal], write: bool) -> None:
    """Print the diffs of files that change, and write the files if that is asked for."""
    for proposal in changed:
        typer.echo(printable(proposal.diff), nl=False)
        if write:
            proposal.path.parent.mkdir(parents=True, exist_ok=True)
            write_file(proposal.after, proposal.path)
            typer.echo(f"# written: {proposal.path}", err=True)
    if not changed:
        typer.echo("# nothing to change", err=True)
    elif not write:
        typer.echo(f"# {pluralize(len(changed), 'file')} proposed; --write writes them", err=True)


def _read_session(path: Path, *, survey: bool) -> Recorded:
    """Read the runs of a stored session that count; a survey takes native runs alone."""
    session = store.load(path)
    if doubts := find_doubts(session, path):
        raise RefusedError(f"{path}: nothing is taken from it: {doubts[0]}")
    checks = checks_of(session.runs)
    native = [run for run in session.runs if run.side == "native"]
    if not native:
        raise UsageError(f"{path}: session {session.session} has no native run to make references of")
    failures = [failure for failure in session.failures if not survey or failure.side == "native"]
    failed = [(failure.check, failure.why) for failure in failures]
    admitted = admit(native if survey else session.runs, policy(), session.hypervisor_class, failed)
    series = series_of(admitted.counted_runs, project_references())
    left_out = tuple(
        f"session {session.session}: nothing of {check} is taken: {reasons[0]}"
        for check, reasons in admitted.refused.items()
    )
    if not series:
        nothing = f"{path}: session {session.session} measured nothing natively"
        raise UsageError("; ".join(left_out) or nothing)
    return Recorded(
        session=session.session,
        date=session.created[:10],
        system=session.system,
        build=session.build,
        cpu=next((str(node.cpu.model) for run in native for node in run.identity.values()), "unknown"),
        stack=native[0].stack_hash,
        series=tuple((checks[name], measured) for name, measured in series.items()),
        left_out=left_out,
        facts=facts(session),
    )


def _find_vm_hosts(system: str) -> frozenset[str]:
    """Return the names of the hosts that carry a system's VMs, by its system file."""
    if names := frozenset(map(shorten, load_system(system).virtual_extras.nodes_of_hosts)):
        return names
    raise UsageError(
        f"system {system}: which hosts carry VMs is not known: name them in extras.nodes_of_hosts of the "
        "virtual partition (docs/system-file.md, Hosts)"
    )
