"""Which format a file has, by its content; the end of its name does not count."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from virtqual.errors import UsageError
from virtqual.formats import columns, google_benchmark, hyperfine, outputs, reframe
from virtqual.formats.found import Found, Wanted
from virtqual.programs import readers
from virtqual.session.measured import COLUMNS, SampleRow, read_table_text

#: Columns without which a CSV file is not one of pairs.
REQUIRED = frozenset(name for name, column in SampleRow.model_fields.items() if column.is_required())
_HTML = re.compile(r"\A\s*(?:<!doctype html|<html|<\?xml|<table)", re.IGNORECASE)
#: From so many characters on, a file is not one of a few runs: it is read row by row.
_MAX_WHOLE = 50_000_000
_MAX_KEYS = 6


def read_path(path: Path, wanted: Wanted, reader: str = "") -> Found:
    """Return the runs of a file of any format but that of pairs, or of a directory of outputs.

    Raises
    ------
    UsageError
        It cannot be read or judged, with the format that was recognised and what to do.
    """
    if path.is_dir():
        return outputs.read_directory(path, reader)
    text = read_table_text(path)
    found = read_text_of(str(path), text, wanted, reader)
    if found is None:
        raise UsageError(
            f"{path}: is a file of pairs, which has both sides: give it alone, without --reference and "
            "--candidate"
        )
    return found


def read_text_of(file: str, text: str, wanted: Wanted, reader: str = "") -> Found | None:
    """Return the runs of a text of any format; None if it is a file of pairs (`session.measured`)."""
    if reader:
        return outputs.read_output(file, text, reader)
    header = {name.strip().strip('"').lower() for name in text.lstrip()[:10_000].splitlines()[0].split(",")}
    if header >= REQUIRED:
        return None
    if text.lstrip()[0] in "{[" and len(text) <= _MAX_WHOLE:
        return _read_json(file, text, wanted)
    if _HTML.match(text):
        raise UsageError(
            f"{file}: is a web page or XML, whatever its name says: save the table itself, as CSV"
        )
    if reframe.is_perflog(text):
        return reframe.read_perflog(file, text)
    if name := readers.recognise(text):
        return outputs.read_output(file, text, name)
    if {"side", "session"} & header and not {"side", "value"} <= header:
        return None
    return columns.read(file, text, wanted)


_TOOLS: tuple[tuple[Callable[[Any], bool], Callable[[str, Any, Wanted], Found]], ...] = (
    (hyperfine.is_hyperfine, lambda file, document, _: hyperfine.read(file, document)),
    (google_benchmark.is_google_benchmark, google_benchmark.read),
    (reframe.is_report, lambda file, document, _: reframe.read_report(file, document)),
)


def _read_json(file: str, text: str, wanted: Wanted) -> Found | None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        # Lines of JSON, or one that was cut off: the reader of rows says where.
        return _read_json_output(file, text)
    for is_known, read in _TOOLS:
        if is_known(document):
            try:
                return read(file, document, wanted)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                raise UsageError(
                    f"{file}: its JSON is not complete ({type(error).__name__}: {error})"
                ) from error
    if (found := _read_json_output(file, text)) is not None:
        return found
    if isinstance(document, dict) and not document.keys().isdisjoint(COLUMNS):
        return None
    names = list(document) if isinstance(document, dict) else []
    keys = ", ".join(names[:_MAX_KEYS]) + (", ..." if len(names) > _MAX_KEYS else "")
    raise UsageError(
        f"{file}: is JSON ({keys or 'without keys'}) of a program that virtqual does not know: it reads "
        "hyperfine "
        "--export-json, Google Benchmark, ReFrame's reports, fio and IOR, and lines with the keys of "
        "docs/judge-your-own.md"
    )


def _read_json_output(file: str, text: str) -> Found | None:
    name = readers.recognise(text)
    return outputs.read_output(file, text, name) if name in ("fio", "ior") else None
