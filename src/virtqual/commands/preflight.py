"""`virtqual preflight`: may these two nodes, partitions, or sides of a session be compared?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from virtqual import paths
from virtqual.errors import RefusedError, UsageError
from virtqual.files import records
from virtqual.identity import Identity
from virtqual.preflight.canaries import Canary
from virtqual.preflight.compare import compare
from virtqual.preflight.finding import Finding
from virtqual.references import project_references
from virtqual.report import preflight as report
from virtqual.report.console import verbatim
from virtqual.session import judge, store
from virtqual.site import probe as partitions


def command(
    what: Annotated[
        list[str] | None,
        typer.Argument(help="two identity files, native and virtual; or a session (id, path or 'last')"),
    ] = None,
    system: Annotated[str, typer.Option(help="examine a node of each partition of this system, now")] = "",
    hypervisor_class: Annotated[
        str, typer.Option("--class", help="class that says what refuses (default: the system's or session's)")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """Say what makes native and virtual differ besides the hypervisor, and what to do about it.

    Exit code: 0 comparable, 4 refused, 2 usage, 5 no node of a partition can be
    examined.
    """
    chosen, findings, canaries = _findings(tuple(what or ()), system, hypervisor_class)
    refused = any(finding.action == "refuse" for finding in findings)
    if as_json:
        plain = {
            name: [item.model_dump(mode="json") for item in items]
            for name, items in (("findings", findings), ("canaries", canaries))
        }
        typer.echo(json.dumps({"class": chosen, "refused": refused, **plain}, indent=1))
    else:
        console = verbatim()
        report.show(findings, console)
        report.show_canaries(canaries, console)
        report.explain_claims(findings, canaries, console)
        console.print(Text(report.conclusion(findings, chosen), style="bold"))
    if refused:
        raise typer.Exit(RefusedError.exit_code)


def _findings(
    what: tuple[str, ...], system: str, chosen: str
) -> tuple[str, Sequence[Finding], Sequence[Canary]]:
    """Return the class, the findings, and for a session its canaries."""
    if bool(what) == bool(system) or len(what) > 2:
        raise UsageError("name two identity files, or one session, or --system")
    if system:
        from virtqual.site.configuration import load_system

        loaded = load_system(system)
        chosen = _class(chosen or loaded.virtual.hypervisor_class)
        native, virtual = (partitions.probe_node(loaded, side) for side in ("native", "virtual"))
        return chosen, compare(native, virtual, judge.policy(), chosen), ()
    if len(what) == 1:
        session = store.load(store.find(what[0], paths.sessions()))
        chosen = _class(chosen or session.hypervisor_class)
        if not any(run.identity for run in session.runs):
            if not session.preflight:
                raise UsageError(f"session {session.session} does not say what its nodes were")
            # Refused before anything was measured: what was found then is all there is.
            return chosen, session.preflight, ()
        admitted = judge.admitted_of(session, chosen)
        return chosen, admitted.findings, judge.canaries(admitted.runs)
    if not chosen:
        raise UsageError(f"name a class, which says what refuses: {', '.join(project_references().classes)}")
    native, virtual = (_load(Path(file)) for file in what)
    return _class(chosen), compare(native, virtual, judge.policy(), chosen), ()


def _class(name: str) -> str:
    try:
        return project_references().hypervisor_class(name).name
    except LookupError as error:
        raise UsageError(str(error)) from None


def _load(file: Path) -> Identity:
    try:
        return records.load(Identity, file, "identity", pipes=True)
    except UsageError as error:
        raise UsageError(f"{error}; write it by `virtqual identity --json`") from None
