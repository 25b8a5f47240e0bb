"""The state directory: the only place outside its own namespaces that a cluster writes to."""

from __future__ import annotations

import os
from pathlib import Path

from vcluster.errors import OptionError

# Every node mounts a file system of its own here, so that it cannot see files of this machine below.
HIDDEN_DIRECTORIES = ("/run", "/var/run", "/dev", "/proc", "/sys")


class StateDirectory:
    """The names of all files in a state directory, whose own path is absolute."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state_file = root / "state.json"
        # Process id and start time of the namespaces' first process; exists while the cluster runs.
        self.entry_file = root / "entry"
        # Held by `up` and `down`.
        self.lock_file = root / "lock"
        # The plan that `up` gives to the supervisor.
        self.plan_file = root / "plan.json"
        # Default of the read-write directory that all nodes see at the same path.
        self.shared = root / "shared"
        # Consoles of the VMs and logs of the daemons.
        self.logs = root / "log"
        # Slurm commands that reach the cluster from outside.
        self.bin = root / "bin"
        # The files that every node gets.
        self.etc = root / "etc"
        # The saved state of slurmctld; emptied by every `up`.
        self.spool = root / "spool"
        # Unpacked kernels, initramfs, results of probes: may be deleted while the cluster is down.
        self.cache = root / "cache"
        # Defaults of the folders that `vcluster kernel` and `vcluster emulator` unpack into.
        self.kernel = root / "kernel"
        self.emulator = root / "emulator"

    @classmethod
    def default(cls) -> StateDirectory:
        """Choose ``$VCLUSTER_DIR``, else ``vcluster`` below ``$XDG_STATE_HOME`` or ``~/.local/state``."""
        path = os.environ.get("VCLUSTER_DIR")
        if not path:
            base = os.environ.get("XDG_STATE_HOME")
            path = str((Path(base) if base else Path.home() / ".local/state") / "vcluster")
        return cls(resolve_visible(Path(path), "the state directory"))

    def make(self) -> StateDirectory:
        """Make the directory, or close it to other users if it exists; return it.

        A directory that others can read and that holds other files, such as ``/``, is refused.
        """
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = self.root.stat()
        if status.st_uid == os.geteuid() and status.st_mode & 0o077:
            own_paths = (self.lock_file, self.state_file, self.cache, self.kernel, self.emulator, self.shared)
            if any(self.root.iterdir()) and not any(path.exists() for path in own_paths):
                raise OptionError(
                    f"the state directory {self.root} holds files that are not vcluster's: "
                    "choose an empty or a new one."
                )
            self.root.chmod(0o700)
        return self

    def remove_secrets(self) -> None:
        """Remove the files that hold the munge key."""
        for path in (self.etc / "munge/key", *self.cache.glob("*.initramfs")):
            path.unlink(missing_ok=True)


def resolve_visible(path: Path, name: str) -> Path:
    """Return the path absolute and without links; raise `OptionError` if nodes cannot see it."""
    real = path.expanduser().resolve()
    for hidden in HIDDEN_DIRECTORIES:
        if real.is_relative_to(hidden):
            raise OptionError(
                f"{name} {real} lies below {hidden}, which every node mounts anew: choose another."
            )
    return real


def read_log(file: Path) -> str:
    """Return the text of a log or a console, empty if it does not exist."""
    return file.read_text(errors="replace", encoding="utf-8") if file.exists() else ""


def replace_file(file: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file in one step, so that a reader never sees half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.{os.getpid()}")
    new.write_bytes(content)
    new.chmod(mode)
    new.replace(file)
