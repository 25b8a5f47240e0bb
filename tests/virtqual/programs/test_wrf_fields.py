"""Norms of WRF's fields: exact on known fields, and refused if no atmosphere could have them."""

import math

import pytest
from scipy.io import netcdf_file

from virtqual.programs import wrf_fields
from virtqual.programs.text import OutputError

GOOD = {"U": [3.0, -4.0], "V": [1.0, 0.0], "T": [-20.0, 250.0], "P": [-900.0, 100.0]}
TIMES = ("2019-11-26_12:00:00", "2019-11-26_15:00:00")


def history(path, fields=GOOD, times=TIMES, version=2):
    with netcdf_file(path, "w", version=version) as file:
        for name, size in {"Time": None, "DateStrLen": 19, "x": 2}.items():
            file.createDimension(name, size)
        stamps = file.createVariable("Times", "c", ("Time", "DateStrLen"))
        for index, time in enumerate(times):
            stamps[index] = list(time)
        for name, values in fields.items():
            field = file.createVariable(name, "f4", ("Time", "x"))
            for index in range(len(times)):
                field[index] = values if index == len(times) - 1 else [0, 0]
    return path


@pytest.mark.parametrize("version", [1, 2])
def test_norms_are_those_of_the_last_time(tmp_path, version):
    times = (TIMES[0], "2019-11-26_13:30:00", TIMES[1])
    time, fields = wrf_fields.read(history(tmp_path / "wrfout", times=times, version=version))
    assert time == "2019-11-26_15:00:00"
    assert fields["U"] == math.sqrt(12.5)
    assert fields["P"] == pytest.approx(math.sqrt((900**2 + 100**2) / 2))


@pytest.mark.parametrize(
    ("fields", "times", "message"),
    [
        ({**GOOD, "V": [math.nan, 0]}, TIMES, "1 of 2 values of V are not numbers"),
        ({**GOOD, "V": [math.inf, 0]}, TIMES, "1 of 2 values of V are not numbers"),
        # netCDF's value of points that were never written.
        ({**GOOD, "V": [9.96921e36, 0]}, TIMES, r"V from 0 to 9.96921e\+36: no atmosphere"),
        ({**GOOD, "U": [0, 300]}, TIMES, r"U from 0 to 300: no atmosphere \(-200 to 200\)"),
        ({**GOOD, "T": [-150, 0]}, TIMES, "T from -150 to 0: no atmosphere"),
        ({**GOOD, "P": [7, 7]}, TIMES, "P is 7 everywhere"),
        ({name: GOOD[name] for name in "UVT"}, TIMES, "'P' not found"),
        (GOOD, (), "holds no time"),
    ],
)
def test_fields_of_no_atmosphere_are_refused(tmp_path, fields, times, message):
    with pytest.raises(OutputError, match=f"^WRF output: wrfout.*{message}"):
        wrf_fields.read(history(tmp_path / "wrfout", fields, times))


@pytest.mark.parametrize("kept_bytes", [0, 2, 40, 200, 300])
def test_a_file_that_is_cut_off_is_refused(tmp_path, kept_bytes):
    path = history(tmp_path / "wrfout")
    path.write_bytes(path.read_bytes()[:kept_bytes])
    with pytest.raises(OutputError, match=r"^WRF output: wrfout"):
        wrf_fields.read(path)


@pytest.mark.parametrize("head", [b"\x89HDF\r\n\x1a\n", b"CDF\x05", b"GRIB"])
def test_a_file_of_another_format_is_refused_with_the_entry_that_helps(tmp_path, head):
    path = tmp_path / "wrfout"
    path.write_bytes(head + bytes(500))
    with pytest.raises(OutputError, match="not classic netCDF: set io_form_history = 2"):
        wrf_fields.read(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(OutputError, match="nothing"):
        wrf_fields.read(tmp_path / "nothing")
