"""How records are written, and what is wrong with one that cannot be read."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ValidationError


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
