"""A checkout, and a stand-in for Spack that builds it."""

import shutil
from pathlib import Path

import pytest
from fakespack import FakeSpack

from virtqual.stack import bring, jobs, wheels
from virtqual.stack.jobs import BuildRequest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def fake(tmp_path, monkeypatch):
    spack = FakeSpack(tmp_path / "spack")
    monkeypatch.setenv("SPACK_ROOT", str(spack.path))
    return spack


@pytest.fixture(autouse=True)
def _no_wheels(request, monkeypatch):
    """No package index is asked; the tests of the wheels have one of their own."""
    if "wheels" not in request.node.name:
        monkeypatch.setattr(wheels, "gather", lambda root, target: None)


@pytest.fixture
def checkout(tmp_path):
    """The project's own files, without its lock, so that nothing depends on this machine."""
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "config", root / "config", ignore=shutil.ignore_patterns("site"))
    shutil.copy(ROOT / "spack.yaml", root)
    return root


@pytest.fixture
def start(checkout, tmp_path, monkeypatch):
    """Work out a build of the set `micro` without what the stand-in does not know."""
    monkeypatch.setattr(bring, "packages", lambda *_, **__: tmp_path / "recipes")

    def job(**options):
        if options.setdefault("set", "micro") == "micro":
            options.setdefault("without", ("hpl", "perftest"))
        return jobs.make(BuildRequest(**options), checkout, tmp_path / "stacks")

    return job
