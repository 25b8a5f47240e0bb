"""How the tests of this room run commands and keep their state apart from the user's."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*command: str, timeout: float, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a person would after sourcing ci/activate."""
    line = f". {ROOT}/ci/activate && PATH=$VCLUSTER_DIR/bin:$PATH exec " + " ".join(
        f"'{word}'" for word in command
    )
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "80", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    print(done.stdout, done.stderr)
    return done


def own_state(path: Path) -> dict[str, str]:
    """State directories of a test's own; the guest kernel is that which ci/setup made."""
    state = path / "state"
    state.mkdir()
    kernel = os.environ.get("VCLUSTER_KERNEL", str(ROOT / ".vcluster/kernel"))
    return {"VIRTQUAL_STATE": str(state), "VCLUSTER_DIR": str(path / "cluster"), "VCLUSTER_KERNEL": kernel}
