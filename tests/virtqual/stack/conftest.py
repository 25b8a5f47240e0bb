"""An environment, and a stand-in for the Spack that has installed it."""

import pytest
from fakespack import FakeSpack


@pytest.fixture
def fake(tmp_path, monkeypatch):
    spack = FakeSpack(tmp_path / "spack")
    monkeypatch.setenv("SPACK_ROOT", str(spack.root))
    return spack


@pytest.fixture
def environment(tmp_path):
    directory = tmp_path / "environment"
    directory.mkdir()
    for name in ("spack.yaml", "spack.lock"):
        (directory / name).write_text(name, encoding="utf-8")
    return directory
