"""`virtqual schema`: JSON Schemas of the files that programs read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter

from virtqual.errors import UsageError
from virtqual.files.wording import suggest
from virtqual.report.lines import SessionLine, VerdictLine
from virtqual.session.measured import SampleRow
from virtqual.session.session import SessionDocument

DRAFT = "https://json-schema.org/draft/2020-12/schema"
#: Type and use of each document.
DOCUMENTS: Mapping[str, tuple[Any, str]] = {
    "session": (SessionDocument, "session.json of a session"),
    "verdict": (VerdictLine | SessionLine, "a line of virtqual judge --json"),
    "sample": (SampleRow, "a row that virtqual judge reads"),
}


def make_schema(name: str) -> dict[str, Any]:
    """Return the schema of a document as it is written."""
    kind, _ = DOCUMENTS[name]
    return {"$schema": DRAFT, **TypeAdapter(kind).json_schema(mode="serialization", by_alias=True)}


def command(
    name: Annotated[str | None, typer.Argument(help="document; without one, all are listed")] = None,
) -> None:
    """Print the JSON Schema of a document, or list the documents."""
    if name is None:
        for document, (_, use) in DOCUMENTS.items():
            typer.echo(f"{document:8} {use}")
    elif name in DOCUMENTS:
        typer.echo(json.dumps(make_schema(name), indent=1))
    else:
        raise UsageError(f"no document {name!r}: {suggest(name, DOCUMENTS)}")
