"""Records of programs: written whole or not at all, and read with clear errors."""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


def write_file(content: str | bytes, path: Path, directory: int | None = None) -> Path:
    """Write a file whole or not at all, and wait until it is on the disk.

    A link at the path is replaced, not followed. The file keeps the mode of one at the path that belongs to
    this user. `directory` is a descriptor of its directory if the path may lead elsewhere by now.

    Raises
    ------
    OSError
        The file cannot be written, or the path is that of a device; a file at the path is unchanged.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        if directory is None:
            with open_directory(path.parent) as opened:
                _replace(path.name, data, opened)
        else:
            _replace(path.name, data, directory)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    return path


@contextmanager
def open_directory(path: Path) -> Iterator[int]:
    """Yield a descriptor of a directory, which stays the same if its name is given to another one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _replace(name: str, data: bytes, directory: int) -> None:
    """Write a file of a directory beside its name, and then give it the name."""
    mode = None
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=directory)
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise OSError(errno.EINVAL, "it is no regular file")
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            mode = status.st_mode & 0o777
    part = f".{name[:100]}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(part, flags, paths.file_mode(), dir_fd=directory), "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(part, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(part, dir_fd=directory)
        raise
    _sync(directory)


def open_no_link(path: str, flags: int) -> int:
    """Open a file that is no symbolic link; for ``open(..., opener=open_no_link)``."""
    return os.open(path, flags | os.O_NOFOLLOW, paths.file_mode())


def sync_directory(directory: Path) -> None:
    """Wait until the names of a directory's files are on the disk."""
    with open_directory(directory) as descriptor:
        _sync(descriptor)


def _sync(directory: int) -> None:
    try:
        os.fsync(directory)
    except OSError as error:
        # Some file systems do not support this.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
