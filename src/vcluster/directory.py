"""The state directory: the only place outside its own namespaces that a cluster writes to."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vcluster.errors import OptionError

# Mounted anew in every node: what lies below would vanish from the cluster's sight.
HIDDEN = ("/run", "/var/run", "/dev", "/proc", "/sys")


@dataclass(frozen=True)
class StateDirectory:
    """Names of everything in a state directory.

    Attributes
    ----------
    root : Path
        The directory itself, absolute.
    """

    root: Path

    @classmethod
    def default(cls, environ: Mapping[str, str] = os.environ) -> StateDirectory:
        """Choose ``$VCLUSTER_DIR``, else ``vcluster`` below ``$XDG_STATE_HOME`` or ``~/.local/state``.

        Raises
        ------
        OptionError
            If the directory lies where every node mounts something of its own, such as ``/run``.
        """
        chosen = environ.get("VCLUSTER_DIR")
        if not chosen:
            base = environ.get("XDG_STATE_HOME")
            chosen = str((Path(base) if base else Path.home() / ".local/state") / "vcluster")
        return cls(visible(Path(chosen), "the state directory"))

    def make(self) -> StateDirectory:
        """Make the directory, or close it to other users if it is there; return it.

        Raises
        ------
        OptionError
            If others can read it and it holds something else, such as a home directory or ``/``.
        """
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = self.root.stat()
        if status.st_uid == os.geteuid() and status.st_mode & 0o077:
            own = (self.lock_file, self.state_file, self.cache, self.kernel, self.emulator, self.shared)
            if any(self.root.iterdir()) and not any(path.exists() for path in own):
                raise OptionError(
                    f"the state directory {self.root} holds files that are not vcluster's: "
                    "choose an empty or a new one."
                )
            self.root.chmod(0o700)
        return self

    @property
    def secret_files(self) -> Iterator[Path]:
        """The files that hold the munge key; removed by ``down``."""
        yield self.etc / "munge/key"
        yield from self.cache.glob("*.initramfs")

    @property
    def state_file(self) -> Path:
        """The versioned description of the cluster that others read."""
        return self.root / "state.json"

    @property
    def entry_file(self) -> Path:
        """Process id and start time of the namespaces' first process; exists while the cluster runs."""
        return self.root / "entry"

    @property
    def lock_file(self) -> Path:
        """Held by ``up`` and ``down``."""
        return self.root / "lock"

    @property
    def plan_file(self) -> Path:
        """The plan that ``up`` gives to the supervisor."""
        return self.root / "plan.json"

    @property
    def shared(self) -> Path:
        """Default of the read-write directory that all nodes see at the same path."""
        return self.root / "shared"

    @property
    def logs(self) -> Path:
        """Consoles of the VMs and logs of the daemons."""
        return self.root / "log"

    @property
    def bin(self) -> Path:
        """Forwarding Slurm commands."""
        return self.root / "bin"

    @property
    def etc(self) -> Path:
        """Rendered configuration."""
        return self.root / "etc"

    @property
    def spool(self) -> Path:
        """The saved state of slurmctld; emptied by every ``up``."""
        return self.root / "spool"

    @property
    def cache(self) -> Path:
        """Extracted kernels, initramfs, results of probes: may be deleted at any time."""
        return self.root / "cache"

    @property
    def kernel(self) -> Path:
        """Where ``vcluster kernel`` puts the guest kernel unless told otherwise."""
        return self.root / "kernel"

    @property
    def emulator(self) -> Path:
        """Where ``vcluster emulator`` puts the QEMU that emulates hosts unless told otherwise."""
        return self.root / "emulator"


def visible(path: Path, name: str) -> Path:
    """Return the path absolute and without links, if all nodes can see it.

    Raises
    ------
    OptionError
        If it lies below a directory that every node mounts anew.
    """
    real = path.expanduser().resolve()
    for hidden in HIDDEN:
        if real.is_relative_to(hidden):
            message = f"{name} {real} lies below {hidden}, which every node mounts anew: choose another."
            raise OptionError(message)
    return real
