"""The directories that virtqual reads and writes, and the environment variables that name them.

``VIRTQUAL_ROOT``
    The project checkout, which holds ``checks/``, ``reframe/`` and ``references/``.  Default: the
    directory above ``src/`` of an editable installation, else the working directory.
``VIRTQUAL_SITE``
    Directory of what belongs to the centre: ``systems/``, ``references/``, ``checks/``, ``spack/``,
    ``stacks/``, ``inputs/`` and ``notify.yaml``.  No session changes it; several people may use one, which
    may be read-only.  Default: ``site`` in the root.
``VIRTQUAL_STATE``
    Directory of sessions and the results database.  Default: ``.virtqual`` in the root.  Every node of a
    cluster must see it, and stacks and inputs of the site, at the same path.
``VIRTQUAL_STATE_SHARED``
    ``1``: other users may own the state directory and write to it.  They can then run commands as this user.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from virtqual.errors import InfrastructureError, UsageError


def root() -> Path:
    """Return the project checkout."""
    if root_name := os.environ.get("VIRTQUAL_ROOT"):
        return Path(root_name).resolve()
    checkout = Path(__file__).resolve().parents[2]
    return checkout if (checkout / "checks").is_dir() else Path.cwd()


def find_site() -> Path:
    """Return the directory of what belongs to the centre, whether it can be used or not; see `site`."""
    return Path(os.environ.get("VIRTQUAL_SITE") or root() / "site").resolve()


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
    return Path(os.environ.get("VIRTQUAL_STATE") or root() / ".virtqual").resolve()


def check_state() -> None:
    """Raise `UsageError` if the state directory is a file."""
    directory = state()
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"VIRTQUAL_STATE: {directory} is no directory; name one, which may not exist yet")


def references() -> Path:
    """Return the project's directory of reviewed data."""
    return root() / "references"


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


def is_trusted(status: os.stat_result) -> bool:
    """Return whether a file belongs to this user or to root, or the state directory is shared."""
    return status.st_uid in (0, os.geteuid()) or is_state_shared()


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
    for path in dict.fromkeys((state(), directory)):
        _check_owner(path)
    return directory


def _check_owner(directory: Path) -> None:
    """Refuse a directory in which other users can replace files."""
    if is_state_shared() or not directory.exists():
        return
    status = directory.stat()
    if not is_trusted(status):
        reason = f"it belongs to user {status.st_uid}"
        remedy = "let VIRTQUAL_STATE name a directory of your own"
    elif status.st_mode & 0o022:
        reason, remedy = "other users can write to it", f"run: chmod go-w {directory}"
    else:
        return
    raise InfrastructureError(
        f"{directory}: {reason}, and its files name commands to run and jobs to cancel; {remedy}. "
        "VIRTQUAL_STATE_SHARED=1 allows it (SECURITY.md)"
    )
