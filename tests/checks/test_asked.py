"""The comparison of what was asked for with what ran."""

import importlib.util
from pathlib import Path

import pytest

from virtqual.programs.text import OutputError

SPEC = importlib.util.spec_from_file_location("asked", Path(__file__).parents[2] / "checks/asked.py")
asked = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(asked)


def test_what_ran_as_asked_passes():
    asked.as_asked("HPL", order=(480, 480), ranks=(4, 4), hours=(3.0, 3))


def test_everything_that_differs_is_named_and_nothing_else():
    with pytest.raises(OutputError) as error:
        asked.as_asked("HPL", grid_points=(480, 960), kernel=("is", "cg"), ranks=(4, 4), hours=(2.0, 3.0))
    said = "grid points 480, asked for 960; kernel 'is', asked for 'cg'; hours 2, asked for 3"
    assert str(error.value).endswith(f"not what was asked for: {said}")
    assert "HPL" in str(error.value)
