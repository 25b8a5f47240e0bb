"""An isolated site can make virtqual's own Python environment from a mirror."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from virtqual.errors import InfrastructureError
from virtqual.stack import manifest, wheels

CI = Path(__file__).parents[3] / "ci"
OFFLINE = ("PIP_NO_INDEX", "PIP_FIND_LINKS")
# Stands for the environment's Python: pip that fails or not, and says what it was told.
PYTHON = """#!/bin/sh
echo "$PIP_NO_INDEX $PIP_FIND_LINKS $*" > asked
echo "WARNING: Retrying" >&2
echo "      ERROR: No matching distribution found for setuptools>=77" >&2
echo "note: This error originates from a subprocess, and is likely not a problem with pip." >&2
exit $FAKE_PIP
"""


def write_wheel(directory, name):
    """Write an empty wheel, and return its line in a lock."""
    directory.mkdir(exist_ok=True)
    info = f"{name}-1.dist-info"
    path = directory / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return f"{name}==1 --hash=sha256:{manifest.sha256(path)}\n"


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Return the directory that is pip's only index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


def test_wheels_of_the_lock_are_gathered(tmp_path, index):
    lock = [write_wheel(index, "builder"), "needed==1 --hash=sha256:" + "0" * 64 + "\n"]
    (tmp_path / "requirements.lock").write_text("".join(lock), encoding="utf-8")
    with pytest.raises(InfrastructureError, match=r"all of requirements.lock .*: ERROR: .*needed==1"):
        wheels.gather(tmp_path, tmp_path / "mirror")
    lock[1] = write_wheel(index, "needed")
    (tmp_path / "requirements.lock").write_text("".join(lock), encoding="utf-8")
    wheels.gather(tmp_path, tmp_path / "mirror")
    gathered = {path.name.partition("-")[0] for path in (tmp_path / "mirror/wheels").iterdir()}
    assert gathered == {"builder", "needed"}


def test_wheels_with_another_hash_are_not_gathered(tmp_path, index):
    (tmp_path / "requirements.lock").write_text(write_wheel(index, "needed"), encoding="utf-8")
    with (index / "needed-1-py3-none-any.whl").open("ab") as file:
        file.write(b"changed")
    with pytest.raises(InfrastructureError, match="DO NOT MATCH THE HASHES"):
        wheels.gather(tmp_path, tmp_path / "mirror")
    assert not list(tmp_path.glob("mirror/wheels/*"))


@pytest.fixture
def script(tmp_path):
    """Run a script of ``ci/`` in a checkout with a stand-in for the environment's Python."""
    root = tmp_path / "checkout"
    shutil.copytree(CI, root / "ci")
    for name in ("pyproject.toml", "requirements.lock"):
        (root / name).touch()
    (root / ".venv/bin").mkdir(parents=True)
    (root / ".venv/bin/python").write_text(PYTHON)
    (root / ".venv/bin/python").chmod(0o755)

    def run(name, *arguments, pip):
        env = {key: value for key, value in os.environ.items() if key not in OFFLINE or name == "venv"}
        env |= {"FAKE_PIP": str(pip)}
        return subprocess.run(
            ["bash", root / "ci" / name, *arguments], env=env, capture_output=True, text=True, check=False
        )

    return run


@pytest.mark.parametrize("offline", [["--offline"], []], ids=["offline", "with a network"])
@pytest.mark.parametrize("written", ["two words", "one word", "no mirror"])
def test_wheels_of_a_mirror_are_used(script, tmp_path, written, offline):
    (tmp_path / "mirror/wheels").mkdir(parents=True)
    mirror = str(tmp_path / "mirror")
    options = {"two words": ["--mirror", mirror], "one word": [f"--mirror={mirror}"], "no mirror": []}
    script("build-stack", *offline, *options[written], pip=5)
    links = "" if written == "no mirror" else f"{mirror}/wheels"
    no_index = "1" if links or offline else ""
    assert (tmp_path / "checkout/asked").read_text().startswith(f"{no_index} {links} -m pip install")


def test_ci_venv_refuses_wheels_with_another_hash(script, tmp_path, index):
    lock = write_wheel(index, "needed")
    checkout = tmp_path / "checkout"
    (checkout / "requirements.lock").write_text(lock.replace(lock[-65:-1], "0" * 64), encoding="utf-8")
    # The real pip; it never gets as far as to install.
    (checkout / ".venv/bin/python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    done = script("venv", pip=0)
    assert done.returncode == 5
    assert "could not be installed: another hash than in the lock: needed==1" in done.stderr


def test_ci_venv_runs_again_when_the_lock_changes(script, tmp_path):
    checkout = tmp_path / "checkout"
    (checkout / ".venv/bin/virtqual").write_text("")
    (checkout / ".venv/bin/virtqual").chmod(0o755)
    for lock, installs in (("a", True), ("a", False), ("b", True)):
        (checkout / "requirements.lock").write_text(lock)
        (checkout / "asked").unlink(missing_ok=True)
        assert script("venv", pip=0).returncode == 0
        assert (checkout / "asked").exists() is installs


def test_no_index_and_no_wheels_is_one_message(script, tmp_path):
    done = script("venv", pip=1)
    assert done.returncode == 5
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("ci/venv: "))
    assert line.endswith("could not be installed: ERROR: No matching distribution found for setuptools>=77")
    assert "Retrying" not in done.stderr
    assert "virtqual stack mirror DIR" in done.stderr
    assert not list((tmp_path / "checkout/.venv").glob("*.sum"))
    assert script("venv", pip=0).returncode == 0
