"""WRF's history file (``wrfout``): norms of the fields that the dynamics computes, within what air can be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import netCDF4
import numpy as np

from virtqual.programs.text import OutputError

NAME = "WRF"
#: Prognostic fields of the Advanced Research WRF with the range of values that an atmosphere can have: wind
#: in m/s (the strongest jets blow with 130 m/s), potential temperature minus 300 K (air at the ground of the
#: coldest winter, the top of the stratosphere), pressure minus its base state in Pa (15 kPa in the deepest
#: cyclones).
BOUNDS = {"U": (-200.0, 200.0), "V": (-200.0, 200.0), "T": (-120.0, 1200.0), "P": (-30e3, 30e3)}


@dataclass(frozen=True)
class Field:
    """A field at one time.

    Attributes
    ----------
    rms
        Root of the mean square over all points, in the field's unit.
    lowest, highest
        Smallest and largest value of all points.
    """

    rms: float
    lowest: float
    highest: float


def read(path: Path) -> tuple[str, dict[str, Field]]:
    """Read the fields at the last time of a history file.

    Parameters
    ----------
    path
        NetCDF, classic or HDF5-based.

    Returns
    -------
    str, dict
        The time as WRF writes it, such as ``2019-11-26_15:00:00``, and the fields of `BOUNDS` by name.

    Raises
    ------
    OutputError
        The file or a field is missing or empty, or holds what is no number or no state of an atmosphere.
    """
    try:
        with netCDF4.Dataset(path) as file:
            times = netCDF4.chartostring(file["Times"][:])
            if not times.size:
                raise OutputError(NAME, f"{path.name} holds no time")
            return str(times[-1]), {name: _field(name, file[name][-1], path) for name in BOUNDS}
    except (OSError, IndexError) as error:
        raise OutputError(NAME, f"{path.name}: {error}") from error


def _field(name: str, values: np.ndarray, path: Path) -> Field:
    # Points that were never written are masked.
    found = np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan)
    if not found.size or not np.isfinite(found).all():
        bad = int(found.size - np.isfinite(found).sum())
        raise OutputError(NAME, f"{path.name}: {bad} of {found.size} values of {name} are no numbers")
    field = Field(math.sqrt(float(np.mean(found**2))), float(found.min()), float(found.max()))
    low, high = BOUNDS[name]
    if field.lowest < low or field.highest > high:
        raise OutputError(
            NAME,
            f"{path.name}: {name} from {field.lowest:g} to {field.highest:g}: no atmosphere "
            f"({low:g} to {high:g})",
        )
    if field.lowest == field.highest:
        raise OutputError(NAME, f"{path.name}: {name} is {field.lowest:g} everywhere: nothing was computed")
    return field
