import tomllib
from pathlib import Path

import virtqual


def test_the_version_is_stated_once():
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    assert virtqual.__version__ == project["version"]
