"""Sessions as one compressed file each, such as the examples that the package ships.

A packed session is its log, compressed by gzip: ``NAME.jsonl.gz``.  Everything else of a session follows from
its log.
"""

from __future__ import annotations

import atexit
import gzip
import json
import shutil
import tempfile
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path

from virtqual import paths
from virtqual.errors import UsageError
from virtqual.files import reading
from virtqual.files.wording import suggest
from virtqual.session.log import LOG

#: How a command names a session that the package ships: ``example:within``.
EXAMPLE = "example:"
SUFFIX = ".jsonl.gz"


def list_examples() -> list[str]:
    """Return the names of the examples, such as ``example:within``."""
    return sorted(EXAMPLE + file.name.removesuffix(SUFFIX) for file in paths.examples().glob(f"*{SUFFIX}"))


def find_packed(name: str) -> Path | None:
    """Return the file of a packed session by the name of an example, or by its path; None for other names.

    Raises
    ------
    UsageError
        There is no such example.
    """
    if name.startswith(EXAMPLE):
        if name not in list_examples():
            raise UsageError(f"there is no {name!r}: {suggest(name, list_examples())}")
        return paths.examples() / f"{name.removeprefix(EXAMPLE)}{SUFFIX}"
    return Path(name) if name.endswith(SUFFIX) and Path(name).is_file() else None


@cache
def unpack(file: Path) -> Path:
    """Return a directory with the log of a packed session, which is removed when the process ends.

    Next to it is the session that it was compared with, if that is packed next to the file.

    Raises
    ------
    UsageError
        The file is not a packed session.
    """
    place = Path(tempfile.mkdtemp(prefix="virtqual-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    log = _read(file)
    _write(log, place / file.name.removesuffix(SUFFIX))
    against = None
    with suppress(ValueError, AttributeError):
        against = json.loads(log.split(b"\n", 1)[0])["head"].get("against")
    earlier = file.with_name(f"{against}{SUFFIX}")
    if against and Path(against).name == against and earlier.is_file():
        _write(_read(earlier), place / against)
    return place / file.name.removesuffix(SUFFIX)


def _write(log: bytes, directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    (directory / LOG).write_bytes(log)


def _read(file: Path) -> bytes:
    """Return the log in a packed session, of at most `reading.MAX_RECORD_BYTES`."""
    try:
        with gzip.open(file, "rb") as stream:
            log = stream.read(reading.MAX_RECORD_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{file}: cannot be unpacked: {error}") from None
    if len(log) > reading.MAX_RECORD_BYTES:
        raise UsageError(f"{file}: is larger than {reading.MAX_RECORD_BYTES // 2**20} MiB when unpacked")
    return log
