"""Records of programs: written whole or not at all, and read with clear errors."""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from virtqual import paths
from virtqual.errors import UsageError
from virtqual.files import reading
from virtqual.files.wording import describe_first_mistake

RecordT = TypeVar("RecordT", bound=BaseModel)


def read_record_text(file: Path, what: str, *, pipes: bool = False) -> str:
    """Return the text of a record's file, or of a pipe if `pipes` is set.

    Raises
    ------
    UsageError
        The file cannot be read, or is no text in UTF-8: it is "no `what`".
    """
    try:
        return reading.read_bytes(file, pipes=pipes).decode("utf-8")
    except OSError as error:
        raise UsageError(f"{file}: no {what} ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: no {what} (not UTF-8: {error.reason} at byte {error.start})") from error


def load(model: type[RecordT], file: Path, what: str, *, pipes: bool = False) -> RecordT:
    """Read a record from a JSON file; `what` names its kind in messages.

    Raises
    ------
    UsageError
        The file cannot be read, or a key is wrong.
    """
    text = read_record_text(file, what, pipes=pipes)
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        is_json = error.errors()[0]["type"] != "json_invalid"
        mistake = describe_first_mistake(error, model, json.loads(text) if is_json else None)
        raise UsageError(f"{file}: {mistake}") from None


def write_record(record: BaseModel, path: Path, *, indent: int | None = None) -> Path:
    """Write a record as JSON; see `write_file`."""
    return write_file(record.model_dump_json(by_alias=True, indent=indent) + "\n", path)


def write_file(content: str | bytes, path: Path) -> Path:
    """Write a file whole or not at all, and wait until it is on the disk.

    A link at the path is replaced, not followed.

    Raises
    ------
    OSError
        The file cannot be written, or the path is that of a device; a file at the path is unchanged.
    """
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
    data = content.encode("utf-8") if isinstance(content, str) else content
    part = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(part, flags, paths.file_mode()), "wb") as file:
                if path.is_file() and not path.is_symlink():
                    os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    return path


def open_no_link(path: str, flags: int) -> int:
    """Open a file that is no symbolic link; for ``open(..., opener=open_no_link)``."""
    return os.open(path, flags | os.O_NOFOLLOW, paths.file_mode())


def sync_directory(directory: Path) -> None:
    """Wait until the names of a directory's files are on the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems do not support this.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
