"""The rehearsed centre, up for all tests of this directory."""

import os
import shutil

import first_day
import pytest
from at_centre import HERE, Site

import centre as rehearsed


@pytest.fixture(scope="session")
def shape():
    return rehearsed.Shape.read(HERE / "small.yaml")


@pytest.fixture(scope="session")
def centre(shape, tmp_path_factory):
    lacking = [p for name, p in rehearsed.PROGRAMS.items() if not shutil.which(name, path=rehearsed.SBIN)]
    if os.geteuid() != 0:
        pytest.skip("the rehearsed centre needs root")
    if lacking:
        pytest.skip(f"the rehearsed centre needs Debian's packages {', '.join(lacking)}")
    with rehearsed.Centre(shape, tmp_path_factory.mktemp("centre")) as up:
        first_day.write_system_file(up, shape)
        yield up
        left = up.run("squeue", "--noheader").stdout
        assert left == "", "no job may be left behind"


@pytest.fixture
def site(centre, shape, tmp_path):
    return Site(centre, shape, tmp_path / "state")
