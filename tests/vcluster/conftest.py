"""A cluster of its own for the tests that need one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_under_test import VCLUSTER, Cluster

from vcluster import requirements


@pytest.fixture(scope="session")
def guest_kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    missing = requirements.list_missing()
    if missing:
        pytest.skip(f"missing: {', '.join(requirement.name for requirement in missing)}")
    if os.environ.get("VCLUSTER_KERNEL"):
        return Path(os.environ["VCLUSTER_KERNEL"])
    folder = tmp_path_factory.getbasetemp().parent / "vcluster-kernel"
    command = [*VCLUSTER, "kernel", "--to", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    if result.returncode != 0:
        pytest.skip(f"no guest kernel: {result.stderr.strip()}")
    return folder


@pytest.fixture(scope="session")
def fresh(guest_kernel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster's state directory; tests that need the cluster up take ``cluster``."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster") / "state", guest_kernel)
    yield cluster
    cluster.vcluster("down")


@pytest.fixture
def cluster(fresh: Cluster) -> Cluster:
    """The cluster, up and whole: a damaged one is started anew."""
    fresh.up()
    return fresh
