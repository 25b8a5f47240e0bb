"""NAMD's configuration: a copy of a benchmark's own with some values changed."""

from __future__ import annotations

from collections.abc import Mapping

from virtqual.inputs.edit import replaced


def configuration(text: str, values: Mapping[str, int | str]) -> str:
    """Return a configuration with some values replaced.

    Parameters
    ----------
    text
        As the benchmark brings it.
    values
        New values by keyword.

    Raises
    ------
    virtqual.errors.InfrastructureError
        A keyword is not set in it, or twice.

    Examples
    --------
    >>> configuration("outputName  /usr/tmp/x\\nnumsteps  500\\n", {"outputName": "out"})
    'outputName  out\\nnumsteps  500\\n'
    """
    return replaced(text, values, file="the configuration", between=r"\s+", value=r"\S+")
