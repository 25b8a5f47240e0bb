"""WRF's history file (``wrfout``): norms of the fields that the dynamics computes, within what air can be."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from virtqual.programs.text import OutputError

NAME = "WRF"
#: Prognostic fields of the Advanced Research WRF with the range of values that an atmosphere can have.  Wind
#: is in m/s (the strongest jets blow with 130 m/s).  Potential temperature is less 300 K (air at the ground
#: of the coldest winter, the top of the stratosphere).  Pressure is less its base state, in Pa (15 kPa in the
#: deepest cyclones).  The value of points that were never written, 1e37, is in none of the ranges.
BOUNDS = {"U": (-200.0, 200.0), "V": (-200.0, 200.0), "T": (-120.0, 1200.0), "P": (-30e3, 30e3)}


def read(path: Path) -> tuple[str, dict[str, float]]:
    """Return the last time of a history file as WRF writes it, and the root mean squares of its fields then.

    The file is classic netCDF, also with 64-bit offsets: `wrf.namelist` has WRF write these.
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
    return times[-1].tobytes().decode(), {
        name: _root_mean_square(name, values[name], path) for name in BOUNDS
    }


def _root_mean_square(name: str, values: np.ndarray, path: Path) -> float:
    """Return a field's root mean square; raise OutputError if it is no state of an atmosphere."""
    if not np.isfinite(values).all():
        bad = int(values.size - np.isfinite(values).sum())
        raise OutputError(NAME, f"{path.name}: {bad} of {values.size} values of {name} are not numbers")
    lowest, highest = float(values.min()), float(values.max())
    low, high = BOUNDS[name]
    if lowest < low or highest > high:
        raise OutputError(
            NAME, f"{path.name}: {name} from {lowest:g} to {highest:g}: no atmosphere ({low:g} to {high:g})"
        )
    if lowest == highest:
        raise OutputError(NAME, f"{path.name}: {name} is {lowest:g} everywhere: nothing was computed")
    return math.sqrt(float(np.mean(values**2)))
