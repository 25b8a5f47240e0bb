"""Inputs that were fetched: downloaded once, verified each time, never downloaded inside a run.

An input is unpacked into ``inputs/<name>/`` of virtqual's state, beside a list of its files with size, time
of change and checksum.  Before the first run of a round every file is read from end to end, which notices
changes that size and time do not show; before every further run only size and time are compared.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import tarfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from pydantic import BaseModel, ConfigDict, Field

from virtqual import paths
from virtqual.errors import InfrastructureError, RefusedError, UsageError
from virtqual.files import records
from virtqual.inputs.known import Input

_LIST = "kept.json"
_BLOCK = 2**20
# Seconds without a byte after which a server is given up.
_PATIENCE = 60
# Inputs that this process, which is a round of a session, has read from end to end.
_READ: set[str] = set()


class KeptFile(BaseModel):
    """One file of an input: checksum, size in bytes, time of change in ns."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str
    size: int
    changed: int


class Kept(BaseModel):
    """An input as it was fetched.

    Attributes
    ----------
    name, url
        Name and address of the input.
    sha256
        Checksum of the downloaded file.
    files
        The input's files by path below its directory.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_: Literal["virtqual-input/1"] = Field(alias="schema", default="virtqual-input/1")
    name: str
    url: str
    sha256: str
    files: dict[str, KeptFile]


@dataclass(frozen=True)
class Ready:
    """An input that is here and unchanged.

    Attributes
    ----------
    sha256
        Checksum of the downloaded file; kept with every run.
    files
        The input's files, by path below the directory that all of them share.
    """

    sha256: str
    files: dict[str, Path]

    def file(self, name: str) -> Path:
        """Return one of the files.

        Raises
        ------
        InfrastructureError
            The input has no such file.
        """
        if name not in self.files:
            raise InfrastructureError(f"the input has no file {name!r} (it has: {', '.join(self.files)})")
        return self.files[name]


def missing(wanted: Input) -> str:
    """Return why a run cannot have an input, empty if it is here (changed or not)."""
    if (paths.inputs() / wanted.name / _LIST).is_file():
        return ""
    return f"the input {wanted.name} is not here: virtqual inputs fetch {wanted.name}"


def for_run(wanted: Input) -> Ready:
    """Return an input's files for a run, read from end to end once in the life of this process.

    Parameters and errors are those of `ready`.
    """
    found = ready(wanted, thoroughly=wanted.name not in _READ)
    _READ.add(wanted.name)
    return found


def ready(wanted: Input, *, thoroughly: bool = False) -> Ready:
    """Return an input's files after verifying them.

    Parameters
    ----------
    wanted
        The input.
    thoroughly
        Read every file and compare its checksum, not only size and time of change.

    Raises
    ------
    InfrastructureError
        The input is not here, its list cannot be read, or a file of it has changed: each is named.
    """
    if why := missing(wanted):
        raise InfrastructureError(why)
    directory = paths.inputs() / wanted.name
    again = f"remove {directory} and run: virtqual inputs fetch {wanted.name}"
    try:
        kept = records.load(Kept, directory / _LIST, "list of an input's files")
    except UsageError as error:
        raise InfrastructureError(f"{error}; {again}") from error
    if kept.sha256 != (wanted.sha256 or kept.sha256):
        raise InfrastructureError(
            f"the input {wanted.name} was fetched with sha256 {kept.sha256}, "
            f"now it must have {wanted.sha256}; {again}"
        )
    if changed := list(_changed(kept, directory, thoroughly)):
        raise InfrastructureError(f"the input {wanted.name} has changed: {', '.join(changed)}; {again}")
    top = PurePosixPath(os.path.commonpath([PurePosixPath(name).parent for name in kept.files]))
    return Ready(
        kept.sha256, {str(PurePosixPath(name).relative_to(top)): directory / name for name in kept.files}
    )


def _changed(kept: Kept, directory: Path, thoroughly: bool) -> Iterator[str]:
    for name, known in kept.files.items():
        path = directory / name
        if not path.is_file():
            yield f"{name} is gone"
            continue
        status = path.stat()
        if status.st_size != known.size:
            yield f"{name} has {status.st_size} bytes, not {known.size}"
        elif thoroughly:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != known.sha256:
                    yield f"{name} has another checksum"
        elif status.st_mtime_ns != known.changed:
            yield f"{name} was written to"


def fetch(wanted: Input, *, source: str = "", trust: bool = False) -> Kept:
    """Download, verify and unpack an input; what is here already is replaced when all of it is good.

    Parameters
    ----------
    wanted
        The input.
    source
        Another address of the same file, such as one brought by hand.
    trust
        Whether a file is taken whose checksum nobody knows.

    Raises
    ------
    RefusedError
        The file has another checksum than it must have, or none is known and none was to be trusted.
    InfrastructureError
        The file cannot be reached, is no whole archive, or holds entries that no input may hold.
    """
    if wanted.sha256 is None and not trust:
        raise RefusedError(
            f"the input {wanted.name}: nobody has recorded the checksum of {wanted.url}; "
            f"if you trust the file that is there today: virtqual inputs fetch {wanted.name} --record"
        )
    room = paths.inputs()
    part = room / f".{wanted.name}.{os.getpid()}"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        archive = part / PurePosixPath(wanted.url).name
        sha256 = _download(source or wanted.url, archive, wanted)
        if sha256 != (wanted.sha256 or sha256):
            raise RefusedError(
                f"the input {wanted.name}: {source or wanted.url} has sha256 {sha256}, not {wanted.sha256} "
                f"({wanted.checksum_from}); nothing was kept"
            )
        content = part / "content"
        content.mkdir()
        if tarfile.is_tarfile(archive):
            _unpack(archive, content, wanted)
        else:
            archive.replace(content / archive.name)
        kept = Kept(name=wanted.name, url=wanted.url, sha256=sha256, files=dict(_list(content)))
        if not kept.files:
            raise InfrastructureError(f"the input {wanted.name}: there is no file in what {wanted.url} gave")
        records.write_whole(kept, content / _LIST, indent=1)
        shutil.rmtree(room / wanted.name, ignore_errors=True)
        content.replace(room / wanted.name)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return kept


def _download(url: str, target: Path, wanted: Input) -> str:
    digest = hashlib.sha256()
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE) as answer, target.open("wb") as file:
            expected = answer.headers.get("Content-Length")
            while block := answer.read(_BLOCK):
                digest.update(block)
                file.write(block)
            if expected and file.tell() != int(expected):
                raise OSError(f"{file.tell()} of {expected} bytes arrived")
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise InfrastructureError(
            f"the input {wanted.name}: {url}: {error}; a file that was brought by hand is taken with "
            f"virtqual inputs fetch {wanted.name} --from FILE"
        ) from error
    return digest.hexdigest()


def _unpack(archive: Path, content: Path, wanted: Input) -> None:
    """Unpack ordinary files; what else an archive may hold (links, devices) no input needs."""
    try:
        with tarfile.open(archive, encoding="utf-8") as members:
            for member in members:
                if member.isdir():
                    continue
                place = PurePosixPath(member.name)
                if not member.isfile() or place.is_absolute() or ".." in place.parts:
                    raise InfrastructureError(
                        f"the input {wanted.name}: {member.name} in {archive.name} "
                        "is no ordinary file below it"
                    )
                _write(members.extractfile(member), content / place)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InfrastructureError(
            f"the input {wanted.name}: {archive.name} cannot be unpacked: {error}"
        ) from error


def _write(source: IO[bytes] | None, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        if source:
            shutil.copyfileobj(source, file, _BLOCK)


def _list(content: Path) -> Iterator[tuple[str, KeptFile]]:
    for path in sorted(content.rglob("*")):
        if path.is_file():
            path.chmod(0o444)
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            status = path.stat()
            found = KeptFile(sha256=sha256, size=status.st_size, changed=status.st_mtime_ns)
            yield path.relative_to(content).as_posix(), found
