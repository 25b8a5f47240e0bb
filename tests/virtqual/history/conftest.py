"""A copy of the project's references, into which tests write proposals."""

import shutil

import pytest
from made_series import REFERENCES


@pytest.fixture
def references_copy(tmp_path):
    return shutil.copytree(REFERENCES, tmp_path / "references")
