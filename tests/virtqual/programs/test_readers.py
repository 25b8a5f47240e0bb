"""Readers by name take from an output what a person would, without knowing what was asked for."""

import pytest
from samples import OUTPUTS, read

from virtqual.programs.readers import READERS, Reading, read_output, read_runs, recognise
from virtqual.programs.text import OutputError

#: By file: reader, metric, setting, unit, number of sizes, and one size with its value.
READ = {
    "corpus/fio/3.1-gvisor.json": ("fio", "fio_iops", "test", "IO/s", 1, None, 438367.892977),
    "corpus/hpcc/1.5.0-cray.out": ("hpcc", "hpl", "N 1000, 384 processes", "GFLOP/s", 1, None, 39.7573),
    "corpus/hpl/2.3-netlib.out": (
        *("hpl", "hpl", "N 115584, NB 192, 4 x 8 processes"),
        *("GFLOP/s", 1, None, 832.95),
    ),
    "corpus/hpl/2.1-netlib-many.out": (
        *("hpl", "hpl", "N 29, NB 1, 2 x 2 processes, WR00L2L4"),
        *("GFLOP/s", 1, None, 0.007169),
    ),
    "corpus/ior/3.3.0-source.json": ("ior", "ior_write", "2 tasks", "MB/s", 1, None, 615.67664128),
    "mdtest.out": ("mdtest", "mdtest_create", "4000 files, 2 tasks", "files/s", 1, None, 33434.203),
    "corpus/lammps/12Jun2025-g++-eam.out": (
        *("lammps", "lammps_loop_time", "32000 atoms, 100 steps, 4 tasks"),
        *("s", 1, None, 0.632615),
    ),
    "corpus/likwid/5.x-readme.out": (
        *("likwid", "likwid_bandwidth", "triad_avx, 1999999488 B, 3 threads"),
        *("MB/s", 1, None, 11163.34),
    ),
    "corpus/milc/7.7.13-double.out": (
        *("milc", "milc_elapsed", "6 x 6 x 6 x 6, 1 trajectories, 1 processes"),
        *("s", 1, None, 21.23842),
    ),
    "corpus/namd/3.0.2-multicore.out": (
        *("namd", "namd_elapsed", "1679987 atoms, 100 steps, 8 processors"),
        *("s", 1, None, 209.141754),
    ),
    "netpipe.pingpong.out": ("netpipe", "mpi_latency", "NetPIPE", "us", 24, 1, 0.8754730174269677),
    "corpus/npb/2.3-open-mpi-mg.out": ("npb", "npb_other", "MG class B, 4 tasks", "Mop/s", 1, None, 412.43),
    "corpus/openfoam/7-foundation-simplefoam.out": (
        *("openfoam", "openfoam_elapsed", "simpleFoam, 2 steps, 32 processes"),
        *("s", 1, None, 4),
    ),
    "corpus/osu/5.6.3-openmpi-size-0.out": ("osu", "osu_latency", "", "us", 4, 0, 0.98),
    "corpus/osu/7.1-craympi-mbw_mr.out": ("osu", "osu_multi_bandwidth", "1024 pairs", "MB/s", 2, 1, 2238.68),
    "corpus/osu/7.2-cuda.out": ("osu", "osu_bandwidth", "", "MB/s", 3, 1, 1.01),
    "osu.latency.out": ("osu", "osu_latency", "", "us", 23, 4194304, 405.89),
    "corpus/perftest/4.4-mlx4-read_lat.out": (
        *("perftest", "rdma_read_latency", "RC on IB"),
        *("us", 1, 2, 1.79),
    ),
    "perftest.write_bw.out": (
        *("perftest", "rdma_write_bandwidth", "RC on Ethernet"),
        *("MB/s", 23, 2, 0.5767168),
    ),
    "corpus/pgbench/14.5-debian.out": (
        *("pgbench", "db_throughput", "<builtin: TPC-B (sort of)>, scale 1, 8 clients"),
        *("tx/s", 1, None, 438.571637),
    ),
    "corpus/stream/5.10-grace.out": ("stream", "memory_copy", "", "MB/s", 1, None, 662394.7),
    "corpus/stream/5.9-core-i7.out": ("stream", "memory_copy", "", "MB/s", 1, None, 9663.6238),
    "stress-ng.fork.out": (
        *("stress-ng", "stress_ng_fork", "version 0.15.06"),
        *("operations/s", 1, None, 169.82080508647275),
    ),
    "corpus/wrf/4.1.4-docker.out": (
        *("wrf", "wrf_elapsed", "480 steps to 2020-03-19_00:00:00, 2 x 4 tasks"),
        *("s", 1, None, 180.4133),
    ),
    "fixed_work.out": ("fixed-work", "work_tail", "40000 steps, 2 CPUs", "us", 11, 1, 55.773),
    "pointer_chase.out": ("pointer-chase", "memory_latency", "pages 4K", "ns", 7, 16384, 0.939),
}
#: By file: the reader that recognises it, and words of its error.
REFUSED = {
    "corpus/fio/3.28-gtod_reduce.json": ("fio", "no percentiles"),
    "corpus/hpl/2.3-netlib-failed.out": ("hpl", "residual 1.45e+08 FAILED"),
    "corpus/hpl/2.3-netlib-rate-not-of-time.out": ("hpl", "8.2776e+02 GFLOP/s are not"),
    "corpus/namd/3.0.2-multicore-cut.out": ("namd", "no line 'WallClock'"),
    "corpus/openfoam/7-foundation-2d.out": ("openfoam", "less than a second"),
    "corpus/osu/5.8-kernel-line.out": ("osu", "line 5 interrupts the table"),
    "corpus/osu/5.8-caliper.out": ("osu", "the table has no rows (line 3)"),
    "corpus/perftest/4.5-negative.out": ("perftest", "-9.81 is not above zero"),
    "corpus/pgbench/16.2-source-failed.out": ("pgbench", "number of failed transactions: 12"),
    "pgbench.out": ("pgbench", "with a rate limit"),
    "corpus/stream/5.9-failed-validation.out": ("stream", "Failed Validation"),
}
LATENCY = """\
# OSU MPI Latency Test v3.6
# Size            Latency (us)
0                         1.25
1                         1.30
2                         1.32
"""
BARRIER = "# OSU MPI Barrier Latency Test v7.5\n# Avg Latency(us)\n             4.31\n"
SERIAL = """\
-------------------------------------------------------------
STREAM version $Revision: 5.10 $
-------------------------------------------------------------
Function    Best Rate MB/s  Avg time     Min time     Max time
Copy:           10000.0     0.016100     0.016000     0.016300
Scale:          10001.0     0.016100     0.015998     0.016300
Add:            10002.0     0.024100     0.023995     0.024300
Triad:          10003.0     0.024100     0.023993     0.024300
-------------------------------------------------------------
Solution Validates: avg error less than 1.000000e-13 on all three arrays
-------------------------------------------------------------
"""
IOR_TEXT = """\
IOR-3.3.0: MPI Coordinated Test of Parallel I/O
tasks               : 4
Max Write: 1000.00 MiB/sec (1048.58 MB/sec)
Max Read:  2000.00 MiB/sec (2097.15 MB/sec)
"""


@pytest.mark.parametrize("file", READ)
def test_an_output_is_recognised_and_read(file):
    reader, metric, setting, unit, count, size, value = READ[file]
    assert recognise(read(file)) == reader
    found = [
        reading
        for reading in read_output(read(file), reader)
        if (reading.metric, reading.setting, reading.unit) == (metric, setting, unit)
    ]
    assert [len(reading.values) for reading in found] == [count]
    assert found[0].values[size] == pytest.approx(value)
    assert found[0].better == ("lower" if unit in ("us", "s", "ns") else "higher")


@pytest.mark.parametrize("file", REFUSED)
def test_an_output_that_is_wrong_is_refused(file):
    reader, words = REFUSED[file]
    assert recognise(read(file)) == reader
    with pytest.raises(OutputError, match="output: ") as error:
        read_output(read(file), reader)
    assert words in str(error.value)


def test_each_reader_has_an_output_here():
    assert {entry[0] for entry in READ.values()} == set(READERS)


def test_what_no_reader_knows_is_not_recognised():
    for text in ("", "42\n", read("web_load.out"), (OUTPUTS / "inputs.txt").read_text()):
        assert recognise(text) is None


def test_a_known_program_is_not_looked_for_in_another_output():
    with pytest.raises(OutputError, match="this is not the output of STREAM 5"):
        read_output(LATENCY, "stream")


def test_old_titles_size_0_and_benchmarks_without_sizes_are_read():
    assert read_output(LATENCY, "osu") == [
        Reading("osu_latency", "", "us", "lower", {0: 1.25, 1: 1.30, 2: 1.32}, "B")
    ]
    assert read_output(BARRIER, "osu") == [Reading("osu_barrier_latency", "", "us", "lower", {None: 4.31})]


def test_lines_around_a_table_of_other_programs_are_left_out():
    text = f"Loading gcc/12\n\n{LATENCY}\nreal 0m3.1s\n"
    assert read_output(text, "osu") == read_output(LATENCY, "osu")
    assert read_output(LATENCY.replace("\n", "\r\n"), "osu") == read_output(LATENCY, "osu")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("1.32\n", "1.3", "line 5 is cut off"),
        ("2        ", "1        ", "line 5: the sizes do not rise"),
        ("1.30\n", "1.30\nMessage from a node\n", "line 5 interrupts the table"),
        ("1.30", "-1.30", "is not above zero"),
        ("Latency (us)", "Overlap(%)", "no header of a table"),
    ],
)
def test_a_damaged_table_is_refused(old, new, words):
    with pytest.raises(OutputError) as error:
        read_output(LATENCY.replace(old, new), "osu")
    assert words in str(error.value)


def test_several_runs_in_a_file_are_told_apart():
    faster = SERIAL.replace("10003.0", "11003.0")
    runs = read_runs(SERIAL + faster, "stream")
    triads = [[reading.values[None] for reading in run if reading.metric == "memory_triad"] for run in runs]
    assert triads == [[10003.0], [11003.0]]
    with pytest.raises(OutputError, match="has 2 runs of the same kind: expected one"):
        read_output(SERIAL + faster, "stream")


def test_different_benchmarks_of_a_program_are_one_run():
    assert [reading.metric for reading in read_output(LATENCY + BARRIER, "osu")] == [
        "osu_latency",
        "osu_barrier_latency",
    ]


def test_a_stream_without_threads_is_read_and_one_that_did_not_validate_is_not():
    assert read_output(SERIAL, "stream")[0].values == {None: 10000.0}
    with pytest.raises(OutputError, match="no validated solution"):
        read_output(SERIAL.replace("Solution Validates", "Results unknown"), "stream")


def test_ior_is_read_from_its_text():
    assert [(reading.metric, reading.values[None]) for reading in read_output(IOR_TEXT, "ior")] == [
        ("ior_write", 1048.58),
        ("ior_read", 2097.15),
    ]
    with pytest.raises(OutputError, match=r"is not 1048\.58"):
        read_output(IOR_TEXT.replace("1000.00", "1100.00"), "ior")
