"""Sessions of format 2, whose logs are not sealed, are converted to the present one."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from virtqual.errors import UsageError
from virtqual.files import reading
from virtqual.files.records import sync_directory
from virtqual.files.wording import describe_first_mistake, printable
from virtqual.session.log import DOCUMENT, EVENTS, LOG, Concluded, Event, Log, Probed
from virtqual.session.session import MAX_LABEL_CHARS, SCHEMA, Conclusion

OLD_SCHEMA = "virtqual-session/2"
#: The log of format 2 is kept under this name.
OLD_LOG = "log-2.jsonl"


def convert(directory: Path) -> Log:
    """Convert the log of a session in place; the old one is kept beside it.

    Raises
    ------
    UsageError
        The log is not of format 2, or a line of it cannot be read: nothing is changed.
    """
    source, log = directory / LOG, Log(directory)
    try:
        lines = reading.read_bytes(source, links=False).split(b"\n")
    except OSError as error:
        raise UsageError(f"{source}: no session ({error.strerror})") from error
    # A last line without a line feed was not written whole.
    events = [_converted(line, f"{source}:{number}") for number, line in enumerate(lines[:-1], 1) if line]
    if not events:
        raise UsageError(f"{source}: no session (its first line is missing)")
    with tempfile.TemporaryDirectory(dir=directory, prefix=f".{LOG}.") as name:
        converted = Log(Path(name))
        for event in (event for group in events for event in group):
            converted.append(event)
        with suppress(FileExistsError):
            (directory / OLD_LOG).hardlink_to(source)
        # The name is that of a whole log at any time.
        converted.path.replace(source)
    sync_directory(directory)
    if (directory / DOCUMENT).exists():
        log.write()
    return log


def _converted(line: bytes, place: str) -> list[Event]:
    """Return the events of a line of format 2."""
    try:
        content = json.loads(line)
        kind = content["event"]
        if kind == "begun":
            return _convert_head(content)
        if kind == "concluded":
            # Everything else of it stands in other lines.
            fields = {
                name: value for name, value in content["session"].items() if name in Conclusion.model_fields
            }
            return [Concluded(conclusion=Conclusion.model_validate(fields))]
        return [EVENTS[kind].model_validate(content)]
    except ValidationError as error:
        raise UsageError(f"{place}: {describe_first_mistake(error, EVENTS[kind], content)}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"{place}: no line of a log of {OLD_SCHEMA} ({type(error).__name__}: {error})"
        ) from None


def _convert_head(content: dict[str, Any]) -> list[Event]:
    """Return the head, and what was known of a node of each partition."""
    head = content["head"]
    if head["schema"] != OLD_SCHEMA:
        raise ValueError(f"it is of {head['schema']}")
    created = datetime.fromisoformat(head["created"])
    head = {
        **head,
        "label": printable(head["label"], MAX_LABEL_CHARS),
        "schema": SCHEMA,
        "created": (created if created.tzinfo else created.replace(tzinfo=UTC)).isoformat(),
    }
    nodes = {side: facts.pop("node") for side, facts in head["identity"].items() if "node" in facts}
    begun = EVENTS["begun"].model_validate({"event": "begun", "head": head})
    return [begun, *([Probed.model_validate({"nodes": nodes})] if nodes else [])]
