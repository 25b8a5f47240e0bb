"""An isolated site can make virtqual's own Python environment from a mirror."""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from virtqual.errors import InfrastructureError
from virtqual.stack import wheels

CI = Path(__file__).parents[3] / "ci"
# Stands for the environment's Python: pip that fails or not, and says what it was told.
PYTHON = """#!/bin/sh
echo "$PIP_NO_INDEX $PIP_FIND_LINKS $*" > asked
echo "WARNING: Retrying" >&2
echo "      ERROR: No matching distribution found for setuptools>=77" >&2
echo "note: This error originates from a subprocess, and is likely not a problem with pip." >&2
exit $FAKE_PIP
"""


def wheel(place, name):
    place.mkdir(exist_ok=True)
    about = f"{name}-1.dist-info"
    with zipfile.ZipFile(place / f"{name}-1-py3-none-any.whl", "w") as file:
        file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")


def test_wheels_of_the_project_and_of_its_build_are_gathered(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["builder>=1"]\n[project]\ndependencies = ["needed==1"]\n'
    )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    wheel(tmp_path / "index", "builder")
    with pytest.raises(InfrastructureError, match=r"all of .* needed==1 .*: ERROR: .*needed==1"):
        wheels.gather(tmp_path, tmp_path / "mirror")
    wheel(tmp_path / "index", "needed")
    wheels.gather(tmp_path, tmp_path / "mirror")
    have = {path.name.partition("-")[0] for path in (tmp_path / "mirror/wheels").iterdir()}
    assert have == {"builder", "needed"}


@pytest.fixture
def script(tmp_path):
    """Run a script of ``ci/`` in a checkout with a stand-in for the environment's Python."""
    root = tmp_path / "checkout"
    shutil.copytree(CI, root / "ci")
    (root / "pyproject.toml").write_text("")
    (root / ".venv/bin").mkdir(parents=True)
    (root / ".venv/bin/python").write_text(PYTHON)
    (root / ".venv/bin/python").chmod(0o755)

    def run(name, *arguments, pip):
        env = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
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


def test_no_index_and_no_wheels_is_one_message(script, tmp_path):
    done = script("venv", pip=1)
    assert done.returncode == 5
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("ci/venv: "))
    assert line.endswith("could not be installed: ERROR: No matching distribution found for setuptools>=77")
    assert "Retrying" not in done.stderr
    assert "virtqual stack mirror DIR" in done.stderr
    assert not list((tmp_path / "checkout/.venv").glob("*.sum"))
    assert script("venv", pip=0).returncode == 0
