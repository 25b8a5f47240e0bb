"""Download inputs before a session, and verify them before each run.

An input lies in ``inputs/<name>/`` of the site, beside a list of its files with size, time and checksum.
"""

from __future__ import annotations

import http.client
import os
import shutil
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import BaseModel, Field

from virtqual import paths
from virtqual.errors import InfrastructureError, RefusedError, UsageError
from virtqual.files import records
from virtqual.files.reading import compute_sha256
from virtqual.inputs.declarations import Input

_LIST_FILE = "kept.json"
_BLOCK_BYTES = 2**20
# Longest time without a byte from a server.
_DOWNLOAD_TIMEOUT_S = 60
# Names of the inputs whose files this process has read.
_names_read: set[str] = set()


class FileEntry(BaseModel, extra="forbid", frozen=True):
    """A file of an input: checksum, size in bytes, time of change in ns."""

    sha256: str
    size: int
    changed: int


class FileList(BaseModel, extra="forbid", frozen=True):
    """A fetched input: checksum of the downloaded file, and the unpacked files by path."""

    schema_: Literal["virtqual-input/1"] = Field(alias="schema", default="virtqual-input/1")
    name: str
    url: str
    sha256: str
    files: dict[str, FileEntry]


@dataclass(frozen=True)
class VerifiedInput:
    """A fetched input that has not changed: checksum of the download, and files by relative path."""

    sha256: str
    files: dict[str, Path]

    def file(self, name: str) -> Path:
        """Return a file; InfrastructureError if the input does not have it."""
        if name not in self.files:
            raise InfrastructureError(f"the input has no file {name!r} (it has: {', '.join(self.files)})")
        return self.files[name]


def explain_missing(declared: Input) -> str | None:
    """Return the reason if an input has not been fetched."""
    if (paths.inputs() / declared.name / _LIST_FILE).is_file():
        return None
    return f"the input {declared.name} is not here: virtqual inputs fetch {declared.name}"


def verify_for_run(declared: Input) -> VerifiedInput:
    """Verify an input; a process reads its files once, because size and time do not show every change."""
    verified = verify(declared, read_files=declared.name not in _names_read)
    _names_read.add(declared.name)
    return verified


def verify(declared: Input, *, read_files: bool = False) -> VerifiedInput:
    """Return the files of an input after comparing size and time, or checksums if `read_files` is set.

    Raises
    ------
    InfrastructureError
        The input has not been fetched, its list cannot be read, or files have changed, which are named.
    """
    if why := explain_missing(declared):
        raise InfrastructureError(why)
    directory = paths.inputs() / declared.name
    remedy = f"remove {directory} and run: virtqual inputs fetch {declared.name}"
    try:
        listed = records.load(FileList, directory / _LIST_FILE, "list of an input's files")
    except UsageError as error:
        raise InfrastructureError(f"{error}; {remedy}") from error
    if declared.sha256 not in (None, listed.sha256):
        raise InfrastructureError(
            f"the input {declared.name} was fetched with sha256 {listed.sha256}, "
            f"now it must have {declared.sha256}; {remedy}"
        )
    if changes := list(_find_changes(listed, directory, read_files)):
        raise InfrastructureError(f"the input {declared.name} has changed: {', '.join(changes)}; {remedy}")
    top = PurePosixPath(os.path.commonpath([PurePosixPath(name).parent for name in listed.files]))
    files = {str(PurePosixPath(name).relative_to(top)): directory / name for name in listed.files}
    return VerifiedInput(listed.sha256, files)


def _find_changes(listed: FileList, directory: Path, read_files: bool) -> Iterator[str]:
    for name, entry in listed.files.items():
        path = directory / name
        if not path.is_file():
            yield f"{name} is gone"
            continue
        status = path.stat()
        if status.st_size != entry.size:
            yield f"{name} has {status.st_size} bytes, not {entry.size}"
        elif read_files:
            if compute_sha256(path) != entry.sha256:
                yield f"{name} has another checksum"
        elif status.st_mtime_ns != entry.changed:
            yield f"{name} was written to"


def fetch(declared: Input, *, source: str | None = None) -> FileList:
    """Download, verify and unpack an input; an earlier one is replaced if that succeeds.

    `source` is another URL of the same file.

    Raises
    ------
    RefusedError
        The file has another checksum than the declared one, or none is declared.
    InfrastructureError
        The file cannot be downloaded or unpacked.
    """
    name = declared.name
    paths.inputs().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=paths.inputs(), prefix=f".{name}.") as directory:
        archive = Path(directory) / PurePosixPath(declared.url).name
        sha256 = _download_verified(declared, source or declared.url, archive)
        content = Path(directory) / "content"
        content.mkdir()
        try:
            if tarfile.is_tarfile(archive):
                _unpack(archive, content)
            else:
                archive.replace(content / archive.name)
        except (tarfile.TarError, EOFError, OSError) as error:
            raise InfrastructureError(
                f"the input {name}: {source or declared.url} cannot be unpacked: {error}"
            ) from error
        listed = FileList(name=name, url=declared.url, sha256=sha256, files=dict(_list_files(content)))
        if not listed.files:
            raise InfrastructureError(f"the input {name}: {source or declared.url} has no file")
        records.write_record(listed, content / _LIST_FILE, indent=1)
        shutil.rmtree(paths.inputs() / name, ignore_errors=True)
        content.replace(paths.inputs() / name)
    return listed


def _download_verified(declared: Input, url: str, target: Path) -> str:
    """Download the file of an input, and return its SHA-256."""
    try:
        sha256 = _download(url, target, int(declared.max_gib * 2**30))
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise InfrastructureError(
            f"the input {declared.name}: {url}: {error}. Bring the file, and run: "
            f"virtqual inputs fetch {declared.name} --from FILE"
        ) from error
    if declared.sha256 is None:
        file, line = declared.place
        raise RefusedError(
            f"the input {declared.name}: {file}, line {line}, states no checksum; nothing was kept. "
            f"If you trust the file at {url}, add there: sha256: {sha256}"
        )
    if declared.sha256 != sha256:
        raise RefusedError(
            f"the input {declared.name}: {url} has sha256 {sha256}, not {declared.sha256} "
            f"({declared.checksum_from}); nothing was kept"
        )
    return sha256


def _download(url: str, target: Path, max_bytes: int) -> str:
    """Download a file and return its SHA-256; it must not fill the disk before that is compared."""
    with urllib.request.urlopen(url, timeout=_DOWNLOAD_TIMEOUT_S) as response, target.open("wb") as file:
        expected = response.headers.get("Content-Length")
        while file.tell() <= max_bytes and (block := response.read(_BLOCK_BYTES)):
            file.write(block)
        if file.tell() > max_bytes:
            limit = f"{max_bytes / 2**30:g} GiB"
            raise OSError(f"it is larger than {limit} (state a larger `max_gib` if it should be)")
        if expected and file.tell() != int(expected):
            raise OSError(f"{file.tell()} of {expected} bytes arrived")
    return compute_sha256(target)


def _unpack(archive: Path, content: Path) -> None:
    """Unpack an archive, and refuse links, devices and paths outside (Python 3.11 has no filter)."""
    with tarfile.open(archive, encoding="utf-8") as members:
        for member in members:
            if member.isdir():
                continue
            path = PurePosixPath(member.name)
            source = members.extractfile(member) if member.isfile() else None
            if source is None or path.is_absolute() or ".." in path.parts:
                raise tarfile.TarError(f"{member.name} is no ordinary file below it")
            (content / path).parent.mkdir(parents=True, exist_ok=True)
            with source, (content / path).open("wb") as file:
                shutil.copyfileobj(source, file, _BLOCK_BYTES)


def _list_files(content: Path) -> Iterator[tuple[str, FileEntry]]:
    """Make the files read-only, and yield them with their entries."""
    for path in sorted(content.rglob("*")):
        if path.is_file():
            path.chmod(0o444)
            status = path.stat()
            entry = FileEntry(sha256=compute_sha256(path), size=status.st_size, changed=status.st_mtime_ns)
            yield path.relative_to(content).as_posix(), entry
