"""What operators reported of other readers of these programs: tests/outputs/bug-reports.md has each report.

Lines of tests/outputs/bug-reports are put where the reports have them, or are the whole output.
"""

from functools import partial

import pytest
from samples import OUTPUTS, parse, read

from virtqual.programs import fio, hpl, lammps, osu, wrf
from virtqual.programs.text import OutputError


def reported(name: str) -> str:
    return (OUTPUTS / "bug-reports" / name).read_text(encoding="utf-8")


def insert(sample: str, line: str, lines: str) -> str:
    """Return a sample with lines after the one that begins so."""
    text = read(sample)
    end = text.index("\n", text.index(f"\n{line}") + 1) + 1
    return text[:end] + lines + text[end:]


@pytest.mark.parametrize(
    ("text", "sample"),
    [
        (reported("fio.cpu-mask.txt") + read("fio.out"), "fio.out"),
        (reported("osu.ucx-info.txt") + read("osu.bw.out"), "osu.bw.out"),
        (insert("lammps.lj.out", "   Step ", reported("lammps.too-many-warnings.txt")), "lammps.lj.out"),
    ],
)
def test_lines_that_say_nothing_of_the_result_change_no_value(text, sample):
    parsers = {"fio.out": fio.parse, "lammps.lj.out": lammps.parse}
    parsers["osu.bw.out"] = partial(osu.parse, first=1, last=2**22)
    assert parsers[sample](text) == parse(sample)


@pytest.mark.parametrize(
    ("parser", "text", "says"),
    [
        (
            fio.parse,
            reported("fio.io-error.txt") + read("fio.out").replace('"error" : 0', '"error" : 5', 1),
            "job random_read failed: Input/output error",
        ),
        (partial(osu.parse, first=1, last=16), reported("osu.validation-failed.out"), "VALIDATION ERROR"),
        (partial(osu.parse, first=1, last=16384), reported("osu.assertion.out"), "Assertion failed in file"),
        (partial(osu.parse, first=1, last=16384), reported("osu.two-processes.out"), "title"),
        (
            wrf.parse,
            insert("wrf.em_b_wave.out", "Timing for main: time 0001-01-01_01:00:00", reported("wrf.cfl.txt")),
            "10  points exceeded cfl=2",
        ),
        (
            wrf.parse,
            insert(
                "wrf.em_b_wave.out",
                "Timing for main: time 0001-01-01_01:00:00",
                reported("wrf.cfl-million.txt"),
            ),
            "9364474.0",
        ),
        (hpl.parse, "".join(f"    {line:<120}\n" for line in read("hpl.out").splitlines()), "header"),
        (hpl.parse, reported("hpl-ai.out"), "header"),
    ],
)
def test_a_run_that_failed_is_refused_with_its_line(parser, text, says):
    with pytest.raises(OutputError) as error:
        parser(text)
    assert says in str(error.value)
