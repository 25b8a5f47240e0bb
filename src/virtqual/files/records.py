"""How records are written, and what is wrong with one that cannot be read."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ValidationError

from virtqual.errors import UsageError


def text_of(file: Path, what: str) -> str:
    """Return the text of a record's file.

    Raises
    ------
    UsageError
        It cannot be read, or is no text in UTF-8; says that it is not `what` it should be.
    """
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: no {what} ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: no {what} (not UTF-8: {error.reason} at byte {error.start})") from error


def write_whole(record: BaseModel, path: Path, *, indent: int) -> Path:
    """Write a record as JSON, whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(record.model_dump_json(by_alias=True, indent=indent) + "\n", encoding="utf-8")
    part.replace(path)
    return path


def first_problem(error: ValidationError) -> str:
    """Return such as ``key runs.0.pair: Input should be a valid integer``."""
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"key {where or 'schema'}: {problem['msg']}"
