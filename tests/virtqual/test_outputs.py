"""Every recorded output is read exactly, and no damaged one is read at all."""

from pathlib import Path

import pytest

from virtqual.outputs import hpcc, lammps, likwid, netpipe
from virtqual.outputs.text import OutputError

OUTPUTS = Path(__file__).parents[1] / "outputs"


def read(name: str) -> str:
    return (OUTPUTS / name).read_text()


def test_lammps_lj():
    run = lammps.parse(read("lammps.lj.out"))
    assert (run.loop_time, run.tasks, run.threads, run.steps, run.atoms) == (0.67836, 2, 1, 100, 32000)
    assert run.energy == {0: -4.6134356, 100: -4.6223613}
    assert (run.cpu_use, run.comm, run.version) == (95.6, 4.58, "22 Jul 2025 - Update 4")
    assert run.drift == pytest.approx(0.00193472, rel=1e-5)


def test_lammps_multi_line_thermo():
    run = lammps.parse(read("lammps.rhodo.out"))
    assert run.energy == {0: -25356.2057, 10: -25355.5794}
    assert (run.loop_time, run.atoms) == (1.09769, 32000)


def test_netpipe():
    rows = netpipe.parse(read("netpipe.pingpong.out"), largest=4096)
    assert [row.size for row in rows[:5]] == [1, 2, 3, 4, 6]
    assert len(rows) == 24
    assert rows[0].time == pytest.approx(0.8754730)
    assert rows[-1].bandwidth == pytest.approx(18247.528888 * 2**20 / 8e6)


def test_likwid_bench():
    run = likwid.parse(read("likwid.triad.out"))
    assert run == likwid.LikwidBench("stream_avx", 2, (0, 1), 60_000_000, 2.544552e-02, 47159.59)


def test_hpcc():
    run = hpcc.parse(read("hpcc.out"))
    assert (run.version, run.processes, run.n) == ("1.5.0", 2, 3000)
    assert (run.residual, run.threshold) == (0.0035214, 16.0)
    assert run.fft == 6.31835
    assert run.fft_error == 1.48122e-15


PARSERS = {
    "lammps.lj.out": lammps.parse,
    "lammps.chain.out": lammps.parse,
    "lammps.rhodo.out": lammps.parse,
    "netpipe.pingpong.out": lambda text: netpipe.parse(text, 4096),
    "likwid.triad.out": likwid.parse,
    "hpcc.out": hpcc.parse,
}


@pytest.mark.parametrize("name", PARSERS)
def test_a_truncated_output_is_refused_or_read_the_same(name):
    """Cut at every line: never another number."""
    whole = PARSERS[name](read(name))
    lines = read(name).splitlines(keepends=True)
    refused = 0
    for keep in range(len(lines)):
        try:
            assert PARSERS[name]("".join(lines[:keep])) == whole
        except OutputError:
            refused += 1
    assert refused > len(lines) / 2


@pytest.mark.parametrize("name", PARSERS)
def test_two_runs_in_one_file_are_refused(name):
    with pytest.raises(OutputError):
        PARSERS[name](read(name) * 2)


@pytest.mark.parametrize(
    ("name", "good", "bad", "says"),
    [
        ("lammps.lj.out", "Loop time of 0.67836", "Loop time of nan", "loop time"),
        ("lammps.lj.out", "on 2 procs", "on 1 procs", "1 procs in the loop line"),
        ("lammps.lj.out", "       100   0.7574531", "\n", "thermo table"),
        ("netpipe.pingpong.out", "18247.528888", "28247.528888", "disagree"),
        ("likwid.triad.out", "47159.59", "97159.59", "is not"),
        ("hpcc.out", "Success=1", "Success=0", "hpcc itself failed"),
        ("hpcc.out", "0.0035214 ...... PASSED", "35.214 ...... FAILED", "residual"),
    ],
)
def test_a_damaged_output_says_what_is_wrong(name, good, bad, says):
    text = read(name)
    assert good in text
    with pytest.raises(OutputError, match=says):
        PARSERS[name](text.replace(good, bad))
