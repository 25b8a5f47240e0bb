"""WRF's history file (``wrfout``): norms of the fields that the dynamics computes, within what air can be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from virtqual.programs.text import OutputError

NAME = "WRF"
#: Prognostic fields of the Advanced Research WRF with the range of values that an atmosphere can have: wind
#: in m/s (the strongest jets blow with 130 m/s), potential temperature minus 300 K (air at the ground of the
#: coldest winter, the top of the stratosphere), pressure minus its base state in Pa (15 kPa in the deepest
#: cyclones).  The value of points that were never written, 1e37, is in none of them.
BOUNDS = {"U": (-200.0, 200.0), "V": (-200.0, 200.0), "T": (-120.0, 1200.0), "P": (-30e3, 30e3)}


@dataclass(frozen=True)
class Field:
    """Root mean square, smallest and largest value of a field over all points, in the field's unit."""

    rms: float
    lowest: float
    highest: float


def read(path: Path) -> tuple[str, dict[str, Field]]:
    """Read the fields at the last time of a history file.

    Parameters
    ----------
    path
        A classic netCDF file, also with 64-bit offsets (`wrf.namelist` has WRF write these).

    Returns
    -------
    str, dict
        The time as WRF writes it, such as ``2019-11-26_15:00:00``, and the fields of `BOUNDS` by name.

    Raises
    ------
    OutputError
        The file is missing, cut off or of another format, or a field is missing, not finite or no state of an
        atmosphere.
    """
    # Here, because every ReFrame process imports this module, and few of them read a file.
    from scipy.io import netcdf_file

    try:
        with path.open("rb") as file:
            if file.read(4) not in (b"CDF\x01", b"CDF\x02"):
                raise OutputError(
                    NAME,
                    f"{path.name} is not classic netCDF: "
                    "set io_form_history = 2 and use_netcdf_classic = .true. in namelist.input",
                )
        with netcdf_file(path) as history:
            # Copies: the file's own arrays are gone once it is closed.
            times = history.variables["Times"].data.copy()
            values = {name: history.variables[name].data[-1:].astype(np.float64) for name in BOUNDS}
    except KeyError as error:
        raise OutputError(NAME, f"{path.name}: {error} not found") from error
    except OutputError:
        raise
    except (OSError, IndexError, TypeError, ValueError) as error:
        raise OutputError(NAME, f"{path.name}: {error}") from error
    if not len(times):
        raise OutputError(NAME, f"{path.name} holds no time")
    return times[-1].tobytes().decode(), {name: _field(name, values[name], path) for name in BOUNDS}


def _field(name: str, values: np.ndarray, path: Path) -> Field:
    if not np.isfinite(values).all():
        bad = int(values.size - np.isfinite(values).sum())
        raise OutputError(NAME, f"{path.name}: {bad} of {values.size} values of {name} are not numbers")
    field = Field(math.sqrt(float(np.mean(values**2))), float(values.min()), float(values.max()))
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
