"""`virtqual preflight`: may these two nodes, partitions, or sides of a session be compared?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from virtqual import paths
from virtqual.commands.options import WaitHours
from virtqual.errors import RefusedError, UsageError
from virtqual.files import records
from virtqual.history.channels import read_site_notify
from virtqual.identity import Identity
from virtqual.preflight.canaries import Canary
from virtqual.preflight.compare import compare
from virtqual.preflight.finding import Finding, refusals
from virtqual.qualify.asking import ask_hosts
from virtqual.qualify.opening import find_stated_class
from virtqual.references import project_references
from virtqual.report import preflight as report
from virtqual.report.console import verbatim
from virtqual.session import judge, store
from virtqual.session.lock import measuring
from virtqual.site.configuration import load_system
from virtqual.site.probe import probe_node
from virtqual.stack import manifest
from virtqual.stack.manifest import ProcessorTarget
from virtqual.verdict.pairs import SIDES


def command(
    compared: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE FILE | SESSION]",
            help="two identity files, native and virtual; or a session (id, path or 'last')",
        ),
    ] = None,
    system: Annotated[str, typer.Option(help="examine a node of each partition of this system, now")] = "",
    hypervisor_class: Annotated[
        str, typer.Option("--class", help="class that says what refuses (default: the system's or session's)")
    ] = "",
    wait: WaitHours = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """Say what makes native and virtual differ besides the hypervisor, and what to do about it.

    Exit code: 0 comparable, 4 refused, 2 usage, 5 no node of a partition can be
    examined.
    """
    names = compared or []
    if bool(names) == bool(system) or len(names) > 2:
        raise UsageError("name two identity files, or one session, or --system")
    canaries: Sequence[Canary] = ()
    if len(names) == 1:
        hypervisor_class, findings, canaries = _examine_session(names[0], hypervisor_class)
    else:
        hypervisor_class, findings = _examine_nodes(names, system, hypervisor_class, wait)
    if as_json:
        document = {
            "class": hypervisor_class,
            "refused": bool(refusals(findings)),
            "findings": [finding.model_dump(mode="json") for finding in findings],
            "canaries": [canary.model_dump(mode="json") for canary in canaries],
        }
        typer.echo(json.dumps(document, indent=1))
    else:
        console = verbatim()
        report.show(findings, console)
        report.show_canaries(canaries, console)
        report.explain_claims(findings, canaries, console)
        console.print(Text(report.conclusion(findings, hypervisor_class), style="bold"))
    if refusals(findings):
        raise typer.Exit(RefusedError.exit_code)


def _examine_session(name: str, hypervisor_class: str) -> tuple[str, Sequence[Finding], Sequence[Canary]]:
    """Return the class, the findings, and the canaries of a session's measurements."""
    session = store.load(store.find(name, paths.sessions()))
    hypervisor_class = _check_class(hypervisor_class or session.hypervisor_class)
    if any(run.identity for run in session.runs):
        admitted = judge.admitted_of(session, hypervisor_class)
        return hypervisor_class, admitted.findings, judge.canaries(admitted.runs)
    if not session.preflight:
        raise UsageError(f"session {session.session} does not say what its nodes were")
    # It was refused before anything was measured.
    return hypervisor_class, session.preflight, ()


def _examine_nodes(
    files: Sequence[str], system: str, hypervisor_class: str, wait: float | None
) -> tuple[str, Sequence[Finding]]:
    """Return the class, and the findings between two identity files, or a node of each partition."""
    targets: Sequence[ProcessorTarget] = ()
    if system:
        read_site_notify(sends=False)
        site, say = load_system(system), partial(typer.echo, err=True)
        with measuring(paths.make(paths.state()), site.name, "virtqual preflight", say):
            site = ask_hosts(site)
            hypervisor_class = _check_class(hypervisor_class or find_stated_class(site).name)
            native, virtual = (probe_node(site, side, say, wait_hours=wait) for side in SIDES)
        # A session takes the default stack if none is named.
        targets = next((stack.targets for stack in manifest.load_all(paths.stacks())), ())
    else:
        hypervisor_class = _check_class(hypervisor_class)
        native, virtual = map(_load_identity, files)
    return hypervisor_class, compare(native, virtual, judge.policy(), hypervisor_class, targets)


def _check_class(name: str) -> str:
    references = project_references()
    if not name:
        raise UsageError(f"name a class, which says what refuses: {', '.join(references.classes)}")
    return references.hypervisor_class(name).name


def _load_identity(file: str) -> Identity:
    try:
        return records.load(Identity, Path(file), "identity", pipes=True)
    except UsageError as error:
        raise UsageError(f"{error}; write it by `virtqual identity --json`") from None
