"""Norms of WRF's fields: exact on known fields, and refused where no atmosphere could have them."""

import math

import netCDF4
import numpy as np
import pytest

from virtqual.programs import wrf_fields
from virtqual.programs.text import OutputError

GOOD = {"U": [3.0, -4.0], "V": [1.0, 0.0], "T": [-20.0, 250.0], "P": [-900.0, 100.0]}


def history(path, fields=GOOD, times=("2019-11-26_12:00:00", "2019-11-26_15:00:00"), format="NETCDF4"):
    with netCDF4.Dataset(path, "w", format=format) as file:
        for name, size in {"Time": None, "DateStrLen": 19, "x": 2}.items():
            file.createDimension(name, size)
        stamps = file.createVariable("Times", "S1", ("Time", "DateStrLen"))
        for index, time in enumerate(times):
            stamps[index] = netCDF4.stringtochar(np.array([time], "S19"))
        for name, values in fields.items():
            field = file.createVariable(name, "f4", ("Time", "x"))
            if values is not None and times:
                field[:] = [[0, 0]] * (len(times) - 1) + [values]
    return path


@pytest.mark.parametrize("format", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF4"])
def test_norms_are_those_of_the_last_time(tmp_path, format):
    time, fields = wrf_fields.read(history(tmp_path / "wrfout", format=format))
    assert time == "2019-11-26_15:00:00"
    assert fields["U"] == wrf_fields.Field(math.sqrt(12.5), -4, 3)
    assert fields["P"].rms == pytest.approx(math.sqrt((900**2 + 100**2) / 2))


@pytest.mark.parametrize(
    ("fields", "times", "says"),
    [
        ({**GOOD, "V": [math.nan, 0]}, 1, "1 of 2 values of V are no numbers"),
        ({**GOOD, "V": [math.inf, 0]}, 1, "1 of 2 values of V are no numbers"),
        ({**GOOD, "V": None}, 1, "2 of 2 values of V are no numbers"),
        ({**GOOD, "U": [0, 300]}, 1, r"U from 0 to 300: no atmosphere \(-200 to 200\)"),
        ({**GOOD, "T": [-150, 0]}, 1, "T from -150 to 0: no atmosphere"),
        ({**GOOD, "P": [7, 7]}, 1, "P is 7 everywhere"),
        ({name: GOOD[name] for name in "UVT"}, 1, "P not found"),
        (GOOD, 0, "holds no time"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path, fields, times, says):
    with pytest.raises(OutputError, match=says):
        wrf_fields.read(history(tmp_path / "wrfout", fields, ("2019-11-26_12:00:00",) * times))


def test_a_file_that_is_cut_or_no_netcdf_is_refused(tmp_path):
    path = history(tmp_path / "wrfout")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(OutputError, match="wrfout"):
        wrf_fields.read(path)
    with pytest.raises(OutputError, match="nothing"):
        wrf_fields.read(tmp_path / "nothing")
