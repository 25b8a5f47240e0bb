"""`ci/venv` with stand-ins for Pythons: which one it takes, and what it says where none will do."""

import os
import shutil
import subprocess

import pytest

from virtqual import paths

STAND_IN = """#!/bin/sh
case "$*" in
    "-c import sys"*) exit {too_old} ;;
    "-m venv .venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python; echo "{name}" > taken ;;
esac
"""


@pytest.fixture
def venv(tmp_path):
    """Return how to run it where there are some Pythons, by whether each is too old."""
    shutil.copytree(paths.root() / "ci", tmp_path / "ci")
    for file in ("pyproject.toml", "requirements.lock"):
        shutil.copy(paths.root() / file, tmp_path)
    (tmp_path / "bin").mkdir()
    for name in ("bash", "sh", "cat", "cp", "dirname", "id", "mkdir", "sha256sum", "grep", "tail"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))

    def run(pythons, **env):
        for name, too_old in pythons.items():
            file = tmp_path / "bin" / name
            file.write_text(STAND_IN.format(name=name, too_old=int(too_old)), encoding="utf-8")
            file.chmod(0o755)
        env = {**os.environ, "PATH": str(tmp_path / "bin"), **env}
        done = subprocess.run(["bash", "ci/venv"], cwd=tmp_path, env=env, capture_output=True, text=True)
        taken = tmp_path / "taken"
        return done, taken.read_text(encoding="utf-8").strip() if taken.exists() else ""

    return run


@pytest.mark.parametrize(
    ("pythons", "env", "taken"),
    [
        ({"python3": False, "python3.13": False}, {}, "python3"),
        ({"python3": True, "python3.11": False, "python3.12": False}, {}, "python3.12"),
        ({"python3": False, "mine": False}, {"VIRTQUAL_PYTHON": "mine"}, "mine"),
    ],
    ids=["python3 is new enough", "RHEL 9", "it is named"],
)
def test_the_first_that_is_new_enough(venv, pythons, env, taken):
    done, found = venv(pythons, **env)
    assert (done.returncode, found) == (0, taken), done.stderr


@pytest.mark.parametrize("env", [{}, {"VIRTQUAL_PYTHON": "mine"}], ids=["all too old", "the named one is"])
def test_none_that_is_new_enough(venv, env):
    done, found = venv({"python3": True, "mine": True, **({"python3.12": False} if env else {})}, **env)
    assert (done.returncode, found) == (5, "")
    assert f"found no such one as {env.get('VIRTQUAL_PYTHON', 'python3 python3.14')}" in done.stderr
    for way in ("dnf install python3.11", "apt-get install python3 python3-venv", "VIRTQUAL_PYTHON="):
        assert way in done.stderr
