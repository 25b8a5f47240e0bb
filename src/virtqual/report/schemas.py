"""The form of what programs read, as JSON Schema: ``docs/schemas/``, which this module writes.

python -m virtqual.report.schemas docs/schemas
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from virtqual.report.lines import SessionLine, VerdictLine
from virtqual.session.measured import SampleRow
from virtqual.session.session import SessionDocument

DRAFT = "https://json-schema.org/draft/2020-12/schema"


KINDS: tuple[tuple[str, Any], ...] = (
    ("session", SessionDocument),
    ("verdict", VerdictLine | SessionLine),
    ("sample", SampleRow),
)


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each file and what it has."""
    for name, kind in KINDS:
        made = TypeAdapter(kind).json_schema(mode="serialization", by_alias=True)
        yield f"{name}.json", {"$schema": DRAFT, **made}


def write(directory: Path) -> None:
    """Write all files into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in documents():
        (directory / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
