"""The directories that virtqual reads and writes, and the environment variables that name them.

``VIRTQUAL_ROOT``
    The project checkout, which holds ``checks/``, ``reframe/`` and ``references/``.  Default: the
    directory above ``src/`` of an editable installation.  A wheel has no checkout: it brings a copy of
    ``references/`` and the example sessions, with which it judges, shows and reports.  To measure sessions
    on a cluster it needs the variable.
``VIRTQUAL_SITE``
    Directory of what belongs to the centre: ``systems/``, ``references/``, ``checks/``, ``spack/``,
    ``stacks/``, ``inputs/`` and ``notify.yaml``.  No session changes it; several people may use one, which
    may be read-only.  Default: ``site`` in the root; without a checkout ``$XDG_CONFIG_HOME/virtqual``
    (``~/.config/virtqual``).
``VIRTQUAL_STATE``
    Directory of sessions and the results database.  Default: ``.virtqual`` in the root; without a checkout
    ``$XDG_STATE_HOME/virtqual`` (``~/.local/state/virtqual``).  Every node of a cluster must see it, and
    stacks and inputs of the site, at the same path.
``VIRTQUAL_STATE_SHARED``
    ``1``: other users may own the state directory and write to it.  They can then run commands as this user.
``VIRTQUAL_SITE_SHARED``
    ``1``: the same of the site directory, such as of a group of operators.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from virtqual import trust
from virtqual.errors import InfrastructureError, UsageError
from virtqual.trust import Fault

_PACKAGE = Path(__file__).resolve().parent
#: Directories of a site whose files are run, or decide what passes.
_SITE_DIRECTORIES = ("systems", "checks", "references", "spack")
#: Large directories of a site, and the file of each of their parts that has the checksums of the others.
_LISTS = {"stacks": "manifest.json", "inputs": "kept.json"}


def find_root() -> Path | None:
    """Return the project checkout; None if virtqual is installed without one and no variable names one."""
    if root_name := os.environ.get("VIRTQUAL_ROOT"):
        return Path(root_name).resolve()
    # Never the working directory: its files would be run.
    checkout = _PACKAGE.parents[1]
    return checkout if (checkout / "checks").is_dir() else None


def root() -> Path:
    """Return the project checkout.

    Raises
    ------
    UsageError
        virtqual is not installed from a checkout, and no variable names one.
    """
    checkout = find_root()
    if checkout is None:
        raise UsageError(
            "this needs a clone of virtqual, which has the checks and ReFrame's configuration, and virtqual "
            "is installed without one: run `. ci/activate` in a clone, or set VIRTQUAL_ROOT to its directory "
            "(judge, pair, show, report and check need none)"
        )
    return checkout


def _find_home(variable: str, default: str) -> Path:
    """Return virtqual's directory below one that the XDG Base Directory Specification names."""
    named = os.environ.get(variable, "")
    # The specification: a relative path is ignored.
    return (Path(named) if Path(named).is_absolute() else Path(f"~/{default}").expanduser()) / "virtqual"


def find_site() -> Path:
    """Return the directory of what belongs to the centre, whether it can be used or not; see `site`."""
    if named := os.environ.get("VIRTQUAL_SITE"):
        return Path(named).resolve()
    checkout = find_root()
    return (checkout / "site" if checkout else _find_home("XDG_CONFIG_HOME", ".config")).resolve()


def site() -> Path:
    """Return the directory of what belongs to the centre; the default directory may not exist.

    Raises
    ------
    UsageError
        It is no directory.
    """
    directory = find_site()
    if not directory.is_dir() and (os.environ.get("VIRTQUAL_SITE") or directory.exists()):
        reason = "is no directory" if directory.exists() else "does not exist"
        raise UsageError(f"VIRTQUAL_SITE: {directory} {reason}; `virtqual site init DIRECTORY` makes one")
    return directory


def state() -> Path:
    """Return the directory that virtqual writes to (it may not exist yet)."""
    if named := os.environ.get("VIRTQUAL_STATE"):
        return Path(named).resolve()
    checkout = find_root()
    return (checkout / ".virtqual" if checkout else _find_home("XDG_STATE_HOME", ".local/state")).resolve()


def check_directories() -> None:
    """Raise `UsageError` if the state directory is a file; see `check_owners`."""
    directory = state()
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"VIRTQUAL_STATE: {directory} is no directory; name one, which may not exist yet")
    check_owners()


def check_owners() -> None:
    """Refuse a state or site directory that others can change.

    Raises
    ------
    InfrastructureError
        Others own or can write what virtqual runs or believes.
    """
    _refuse(find_state_faults(), "its files name commands to run and jobs to cancel", "VIRTQUAL_STATE_SHARED")
    _refuse(find_site_faults(), "virtqual runs its files and judges by them", "VIRTQUAL_SITE_SHARED")


def check_command(command: Iterable[str]) -> None:
    """Refuse a command of a system file with a file that others can change.

    Raises
    ------
    InfrastructureError
        It names the file.
    """
    files = [path for path in map(Path, command) if path.is_absolute() and path.is_file()]
    _refuse(_find_faults(files, is_site_shared()), "virtqual runs it", "VIRTQUAL_SITE_SHARED")


def _refuse(faults: Iterable[Fault], why: str, variable: str) -> None:
    """Raise `InfrastructureError` about files that others can change, if there are any."""
    found = list(faults)
    if not found:
        return
    first, *others = found
    more = f" (`virtqual check` lists {len(others)} more)" if others else ""
    raise InfrastructureError(
        f"{first.path}: {first.reason}, and {why}{more}; {first.remedy}. {variable}=1 allows it (SECURITY.md)"
    )


def find_state_faults(*patterns: str) -> Iterator[Fault]:
    """Yield what others can change of the state directory, and of files in it that match patterns."""
    directory = state()
    always = ("sessions", "sessions/.summaries", "verified", "outbox", "measuring-*.lock")
    if is_state_shared() or not directory.exists():
        return
    files = (path for pattern in (*always, *patterns) for path in directory.glob(pattern))
    yield from _find_faults([directory, *files])


def find_site_faults() -> Iterator[Fault]:
    """Yield what others can change of the site directory: files that are run, or decide what passes."""
    directory = find_site()
    if is_site_shared() or not directory.is_dir():
        return
    files = [path for path in _list(directory) if not path.is_dir()]
    for name in _SITE_DIRECTORIES:
        files += _walk(directory / name, set())
    for name, listed in _LISTS.items():
        for path in (directory / name, *_list(directory / name)):
            files += [part for part in (path, path / listed) if part.exists()]
    yield from _find_faults([directory, *files])


def _list(directory: Path) -> list[Path]:
    """Return what a directory has, in order; nothing if it cannot be read."""
    with suppress(OSError):
        return sorted(directory.iterdir())
    return []


def _walk(path: Path, seen: set[tuple[int, int]]) -> Iterator[Path]:
    """Yield a file, or a directory and all below it, through links, too: ReFrame follows them."""
    with suppress(OSError):
        status = path.stat()
        if (identity := (status.st_dev, status.st_ino)) in seen:
            return
        seen.add(identity)
        yield path
        if path.is_dir():
            for part in _list(path):
                yield from _walk(part, seen)


def _find_faults(files: Iterable[Path], is_shared: bool = False) -> Iterator[Fault]:
    """Yield what others can change of some files, and open directories above the first."""
    if is_shared:
        return
    owners = trusted_owners()
    for number, path in enumerate(files):
        with suppress(OSError):
            # A file that is gone, or that this user cannot read, is not read later either.
            fault = trust.find_fault(path, owners)
            fault = fault or (trust.find_open_parent(path, find_root() or _PACKAGE) if number == 0 else None)
            if fault:
                yield fault


def references() -> Path:
    """Return the project's directory of reviewed data: that of the checkout, else the copy in the package."""
    checkout = find_root()
    return checkout / "references" if checkout else _PACKAGE / "data/references"


def examples() -> Path:
    """Return the directory with a directory for each example session, which the package ships."""
    return _PACKAGE / "data/examples"


def site_references() -> Path:
    """Return the site's directory of reviewed data, which adds to the project's (it may not exist)."""
    return site() / "references"


def checks() -> list[Path]:
    """Return the directories of checks: the project's, and the site's if it has one."""
    directories = [root() / "checks", site() / "checks"]
    return directories[: 2 if directories[1].is_dir() else 1]


def stacks() -> Path:
    """Return the directory with a directory for each software stack."""
    return site() / "stacks"


def inputs() -> Path:
    """Return the directory with a directory for each fetched input."""
    return site() / "inputs"


def sessions() -> Path:
    """Return the directory with a directory for each session."""
    return state() / "sessions"


def database() -> Path:
    """Return ReFrame's results database (SQLite)."""
    return state() / "results.db"


def is_of_state(session: Path) -> bool:
    """Return whether the directory of a session is in the state directory."""
    return session.resolve().parent == sessions().resolve()


def is_state_shared() -> bool:
    """Return whether the state directory may be written by other users."""
    return os.environ.get("VIRTQUAL_STATE_SHARED") == "1"


def file_mode() -> int:
    """Return the permissions of a file that virtqual makes, before the umask."""
    return 0o666 if is_state_shared() else 0o644


def directory_mode() -> int:
    """Return the permissions of a directory that virtqual makes, before the umask."""
    return 0o777 if is_state_shared() else 0o755


def is_site_shared() -> bool:
    """Return whether the site directory may be written by other users."""
    return os.environ.get("VIRTQUAL_SITE_SHARED") == "1"


def trusted_owners() -> frozenset[int]:
    """Return who may own files: this user, root, and the owner of checkout or package, whose code runs."""
    # In a user namespace root may be a user without a number: the owner of the root directory.
    owners = {0, os.geteuid(), Path("/").stat().st_uid}
    with suppress(OSError):
        owners.add((find_root() or _PACKAGE).stat().st_uid)
    return frozenset(owners)


def is_trusted(status: os.stat_result) -> bool:
    """Return whether a file belongs to one of the trusted users, or the state directory is shared."""
    return is_state_shared() or status.st_uid in trusted_owners()


def make(directory: Path) -> Path:
    """Make a directory that virtqual writes to, unless it exists.

    Raises
    ------
    InfrastructureError
        The directory cannot be made or written, or other users can write to it.
    """
    try:
        for path in (*reversed(directory.parents), directory):
            if not path.exists():
                path.mkdir(mode=directory_mode(), exist_ok=True)
        if not os.access(directory, os.W_OK):
            raise PermissionError(errno.EACCES, "it may not be written")
    except OSError as error:
        raise InfrastructureError(
            f"{directory}: {error.strerror}; virtqual writes to {state()}, and VIRTQUAL_STATE names another "
            "directory"
        ) from None
    if not is_state_shared():
        why = "its files name commands to run and jobs to cancel"
        existing = [path for path in dict.fromkeys((state(), directory)) if path.exists()]
        _refuse(_find_faults(existing), why, "VIRTQUAL_STATE_SHARED")
    return directory
