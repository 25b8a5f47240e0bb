"""`virtqual replay`: the published studies, judged by the code that judges ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtqual import paths
from virtqual.commands.speaking import speaking
from virtqual.references.load import load_references
from virtqual.references.published import Published, load_published
from virtqual.report.console import verbatim
from virtqual.verdict.replay import Row, replay

NOT_AS_PUBLISHED = 1


def command(
    references: Annotated[
        Path | None, typer.Option(help="Directory with budgets and published/ (default: the project's).")
    ] = None,
    hypervisor_class: Annotated[
        str, typer.Option("--class", help="Class whose budgets are used.")
    ] = "production",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Judge every claim of the published studies, and say where and why conclusions differ.

    Ends with 1 if a conclusion differs and no reason is known.
    """
    directory = references or paths.references()
    with speaking():
        published = load_published(directory / "published")
        rows = replay(published, load_references(directory), hypervisor_class)
    if as_json:
        typer.echo(json.dumps([record(row) for row in rows], indent=1))
    else:
        _print(rows, published)
    if any(not row.agrees and not row.why for row in rows):
        raise typer.Exit(NOT_AS_PUBLISHED)


def record(row: Row) -> dict[str, object]:
    """Return one row as JSON-able data."""
    return {
        "id": row.claim.id,
        "study": row.study,
        "claim": row.claim.claim,
        "listed_as": row.claim.listed_as,
        "concluded": row.claim.concluded,
        "virtqual": None if row.outcome is None else row.outcome.value,
        "agrees": row.agrees,
        "why": row.why,
        "verdicts": [verdict.model_dump(mode="json") for verdict in row.verdicts],
    }


def _print(rows: Sequence[Row], published: Published) -> None:
    console = verbatim()
    for study in published.studies:
        entry, stated = study.study, study.prior
        title = Text("\n").append(entry.title, "bold")
        console.print(title.append(f" ({entry.publisher}, {entry.date}; build: {entry.build})"))
        console.print(f"a printed value stands for {stated.pairs} pairs that vary by {stated.sigma:.1%}")
        table = Table(box=None, pad_edge=False, padding=(0, 1), show_edge=False)
        table.add_column("id", no_wrap=True)
        table.add_column("claim", ratio=1)
        table.add_column("study", no_wrap=True)
        table.add_column("virtqual", no_wrap=True)
        table.add_column("virtual/native", max_width=18)
        for row in rows:
            if row.study == entry.id:
                outcome = "-" if row.outcome is None else row.outcome.value
                concluded = row.claim.concluded or "-"
                shown = row.shown or row.claim.listed_as or ""
                mark = "" if row.agrees else " *"
                table.add_row(row.claim.id, row.claim.claim, concluded, outcome + mark, shown)
        console.print(table)
    _print_reasons(console, rows)


def _print_reasons(console: Console, rows: Sequence[Row]) -> None:
    judged = [row for row in rows if row.outcome is not None]
    differing = [row for row in judged if not row.agrees]
    console.print(
        f"\n{len(rows)} claims: {len(judged)} judged, {len(rows) - len(judged)} listed as what they are; "
        f"{len(judged) - len(differing)} as the study concludes, {len(differing)} otherwise (*)."
    )
    for row in differing:
        console.print(f"  {row.claim.id}: {row.why or 'no reason is known'}")
    console.print("Also to be known:")
    for row in rows:
        if row.agrees and row.why:
            console.print(f"  {row.claim.id}: {row.why}")


app = typer.Typer(add_completion=False)
app.command()(command)

if __name__ == "__main__":
    app()
