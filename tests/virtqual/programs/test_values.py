"""Every recorded output is read exactly, and no damaged one is read at all."""

import re
from pathlib import Path

import pytest
from samples import PARSERS, parse, read

from virtqual.programs import hpcc, lammps, likwid, mpip, netpipe, osu, text
from virtqual.programs.hpl import Solved
from virtqual.programs.npb import NpbRun
from virtqual.programs.stress_ng import StressNgRun
from virtqual.programs.text import OutputError, number

ROOT = Path(__file__).parents[3]


def test_neighbours_of_large_boxes_are_printed_otherwise():
    text = re.sub(r"(Total # of neighbors =) \d+", r"\1 1.0828068e+08", read("lammps.rhodo.out"))
    assert lammps.parse(text) == lammps.parse(read("lammps.rhodo.out"))


@pytest.mark.parametrize(("ranks", "transformed"), [(96, 64), (96, 96), (64, 64)])
def test_a_transform_runs_on_a_power_of_two(ranks, transformed):
    text = read("hpcc.out").replace("CommWorldProcs=2", f"CommWorldProcs={ranks}")
    text = text.replace("MPIFFT_Procs=2", f"MPIFFT_Procs={transformed}")
    assert hpcc.parse(text).processes == ranks
    with pytest.raises(OutputError, match="number of processes is broken"):
        hpcc.parse(text.replace(f"MPIFFT_Procs={transformed}", "MPIFFT_Procs=32"))


def test_lammps_lj():
    run = lammps.parse(read("lammps.lj.out"))
    assert (run.loop_time, run.tasks, run.threads, run.steps, run.atoms) == (0.67836, 2, 1, 100, 32000)
    assert run.energy == {0: -4.6134356, 100: -4.6223613}
    assert (run.cpu_use, run.comm, run.version) == (95.6, 4.58, "22 Jul 2025 - Update 4")
    assert run.drift == pytest.approx(0.00193472, rel=1e-5)


def test_lammps_without_openmp_as_spack_builds_it():
    run = lammps.parse(read("lammps.chain-no-openmp.out"))
    assert (run.loop_time, run.tasks, run.threads, run.steps, run.atoms) == (0.420119, 2, 1, 100, 32000)
    assert run.energy == {0: 22.394765, 100: 22.409751}
    assert (run.cpu_use, run.comm, run.version) == (87.0, 8.44, "4 Feb 2025")


def test_lammps_multi_line_thermo():
    run = lammps.parse(read("lammps.rhodo.out"))
    assert run.energy == {0: -25356.2057, 10: -25355.5794}
    assert (run.loop_time, run.atoms) == (1.09769, 32000)


def test_netpipe():
    rows = netpipe.parse(read("netpipe.pingpong.out"), smallest=1, largest=4096)
    assert [row.size for row in rows[:5]] == [1, 2, 3, 4, 6]
    assert len(rows) == 24
    assert rows[0].time == pytest.approx(0.8754730)
    assert rows[-1].bandwidth == pytest.approx(18247.528888 * 2**20 / 8e6)


def test_likwid_bench():
    run = likwid.parse(read("likwid.triad.out"))
    assert run == likwid.LikwidRun("stream_avx", 2, (0, 1), 60_000_000, 2.544552e-02, 47159.59)


def test_hpcc():
    run = hpcc.parse(read("hpcc.out"))
    assert (run.version, run.processes, run.n) == ("1.5.0", 2, 3000)
    assert (run.residual, run.threshold) == (0.0035214, 16.0)
    assert run.fft == 6.31835
    assert run.fft_error == 1.48122e-15


def test_stress_ng():
    assert parse("stress-ng.vm.out") == StressNgRun("0.15.06", 4096, "vm", 64, 0.604506, 9956 * 1024)
    assert parse("stress-ng.fork.out") == StressNgRun("0.15.06", 4096, "fork", 100, 0.588856, 2584 * 1024)
    assert parse("stress-ng.0-19.out") == StressNgRun("0.19.04", 4096, "vm", 64, 0.063303, 9956 * 1024)


def test_stream():
    run = parse("stream.out")
    assert (run.version, run.elements, run.element_bytes, run.threads) == ("5.10", 80_000_000, 8, 2)
    assert (run.copy, run.scale, run.add, run.triad) == (42430.3, 23604.9, 26495.9, 25798.5)
    assert run.mean["triad"] == pytest.approx(3 * 640 / 0.076273)
    assert parse("stream.out").bytes_each == 640_000_000
    old = parse("stream.5-9.out")
    assert (old.version, old.threads, old.copy, old.triad) == ("5.9", 4, 13266.9983, 15180.2657)


def test_osu_latency():
    run = parse("osu.latency.out")
    assert (run.benchmark, run.version, run.validated) == ("Latency Test", "7.4", False)
    assert list(run.columns) == ["latency"]
    assert list(run.columns["latency"]) == [2**power for power in range(23)]
    assert [run.columns["latency"][size] for size in (1, 64, 4194304)] == [0.52, 0.74, 405.89]


def test_osu_percentiles_and_validation():
    run = parse("osu.latency-tails.out")
    assert list(run.columns) == ["latency", "p50", "p90", "p99"]
    assert run.validated
    assert [run.columns[name][16] for name in run.columns] == [10.3158, 0.2055, 0.2205, 0.2605]


def test_osu_collectives():
    run = parse("osu.alltoall-full.out")
    assert run.benchmark == "All-to-All Personalized Exchange Latency Test"
    assert [run.columns[name][4] for name in run.columns] == [
        0.482,
        0.4327,
        0.5312,
        200,
        0.481,
        0.5005,
        0.5155,
    ]
    old = parse("osu.5-6.out")
    assert (old.version, list(old.columns)) == ("5.6.2", ["latency", "least", "most", "iterations"])
    assert parse("osu.allreduce.out").columns["latency"][2**20] == 447.39


def test_osu_message_rate():
    run = parse("osu.mbw_mr.out")
    assert (run.pairs, run.window) == (1, 64)
    assert [run.columns[name][8] for name in run.columns] == [77.465, 9683119.8954, 76.9925]


def test_a_really_split_osu_table_is_refused():
    """Recorded: notes of one rank came between a size and its value."""
    with pytest.raises(OutputError, match="line 41 is no row"):
        osu.parse(read("osu.split.out"), 1, 4096)


def test_hpl():
    first, second = parse("hpl.out")
    assert first == Solved("WR11C2R4", 29184, 192, 2, 4, 123.45, 134.24, 2.2453153e-3)
    assert (second.n, second.time, second.rate) == (58368, 912.31, 145.31)
    assert parse("hpl.detailed.out") == [Solved("WR11C2R4", 1000, 80, 1, 2, 0.07, 10.112, 4.42460145e-3)]


def test_npb():
    assert parse("npb.is.out") == NpbRun("IS", "S", "3.4", 10, 0.06, 2, 11.54)
    # From 3.4.2 on a label fills its column.
    assert parse("npb.is-3-4-2.out") == NpbRun("IS", "A", "3.4.2", 10, 0.2, 2, 428.89)
    assert parse("npb.cg.out") == NpbRun("CG", "S", "3.4", 15, 0.04, 2, 1665.07)


def test_namd():
    run = parse("namd.water.out")
    assert (run.version, run.processes, run.atoms, run.timestep) == ("2.12", 2, 10125, 1.0)
    assert (run.first, run.last, run.step_time, run.wall_clock) == (100, 500, 0.0122175, 6.643943)
    assert (len(run.energy), run.start) == (9, -2791.7506)
    assert (run.energy[100], run.energy[500]) == (-31170.8515, -31164.6330)
    assert run.drift == pytest.approx(1.995e-4, rel=1e-3)


def test_wrf():
    run = parse("wrf.em_b_wave.out")
    assert (run.version, run.tasks, run.interval, len(run.seconds)) == ("4.6.1", (1, 2), 600.0, 12)
    assert (run.seconds[0], run.seconds[-1]) == (0.19193, 0.06417)


def test_mpip():
    """What ten further steps took is neither what the run took nor what its start took."""
    long, short = parse("mpip.wrf-12-steps.out"), parse("mpip.wrf-2-steps.out")
    assert (long.version, long.seconds, long.mpi) == ("3.5.0", (2.150, 2.141), (0.856, 1.114))
    assert (long.share, short.share) == (pytest.approx(0.4591, abs=2e-4), pytest.approx(0.5143, abs=2e-4))
    # As if WRF itself had said 1.2 s, and then 1 s.
    steps = long.beyond(short, 1.2)
    assert (steps.mean, steps.share) == (pytest.approx(1.256), pytest.approx(1.055 / 2.512))
    with pytest.raises(OutputError, match=r"took -2.512 s more, -1.055 s more of them in MPI"):
        short.beyond(long, 1.2)
    with pytest.raises(OutputError, match="2 and 1 tasks"):
        long.beyond(mpip.Profile("3.5.0", (1.0,), (0.5,)), 1.2)
    with pytest.raises(OutputError, match=r"took 1.26 s more, its steps 1 s"):
        long.beyond(short, 1.0)


def test_mpip_with_three_digits():
    """The columns that it prints without the option -e."""
    text = read("mpip.wrf-12-steps.out")
    for long, short in {"2.150": "2.15", "0.856": "0.856", "2.141": "2.14", "1.970": "1.97"}.items():
        text = text.replace(f" {long:>10}", f" {short:>10}")
    text = text.replace("     4.291", "      4.29").replace("     1.114", "      1.11")
    assert mpip.parse(text).mpi == (0.856, 1.11)


def test_milc():
    run = parse("milc.su3_rmd.out")
    assert (run.version, run.processes, run.lattice) == ("7.8.1", 8, (8, 8, 8, 16))
    assert (run.warmups, run.trajectories, run.time) == (1, 4, 34.17266)
    assert run.plaquette == pytest.approx(
        ((1.6838348820799058 + 1.6964714102246652) / 2, 1.6898657970836), abs=1e-9
    )


def test_milc_with_rational_functions():
    run = parse("milc.su3_rhmd_hisq.out")
    assert (run.version, run.processes, run.lattice) == ("7.8.1", 2, (4, 4, 4, 8))
    assert (run.warmups, run.trajectories, run.time) == (0, 1, 7.635632)
    assert run.violations == (-1.033972e-02,)
    assert run.plaquette == pytest.approx((2.9060255810913773, 2.9044433781253503), abs=1e-15)


def test_milc_of_the_stack_is_told_its_version():
    # Of itself MILC asks git, and prints none where it was unpacked from a mirror's archive.
    recipe = (ROOT / "config/repo/spack_repo/virtqual/packages/milc/package.py").read_text()
    assert 'f"GIT_VERSION={self.version}"' in recipe
    (version,) = re.findall(r'^    version\("(.*?)"', recipe, flags=re.MULTILINE)
    line = "MIMD version 7.8.1\n"
    built = read("milc.su3_rhmd_hisq.out").replace(line, f"MIMD version {version}\n")
    assert PARSERS["milc.su3_rhmd_hisq.out"](built).version == "7.8.1"


def test_perftest():
    run = parse("perftest.send_lat.out")
    assert (run.operation, run.kind, run.connection, run.transport) == ("send", "latency", "RC", "IB")
    assert (run.link, run.mtu, run.iterations) == ("Ethernet", 1024, 10000)
    assert len(run.columns["typical"]) == 23
    assert [run.columns[name][2] for name in run.columns] == [8.46, 35.57, 9.1, 9.46, 0.73, 11.83, 17.29]
    rate = parse("perftest.write_bw.out")
    assert (rate.operation, rate.kind) == ("write", "bandwidth")
    # It prints binary megabytes.
    assert rate.columns["average"][2**23] == pytest.approx(1099.48 * 1.048576)


def test_perftest_a_run_for_each_size():
    run = parse("perftest.read_lat-each.out")
    assert (run.operation, run.kind, run.mtu, run.iterations) == ("read", "latency", 1024, 200)
    assert run.columns["typical"] == {
        2: 324.04, 64: 354.84, 1024: 381.55, 4096: 564.43, 16384: 1017.65, 65536: 3144.66
    }  # fmt: skip
    # A deviation that it could not count, as it is printed after stalls.
    text = read("perftest.read_lat-each.out").replace("465.61 ", "-nan   ")
    stalled = PARSERS["perftest.read_lat-each.out"](text)
    assert (run.columns["deviation"][2], stalled.columns["deviation"][2]) == (465.61, 0.0)
    assert stalled.columns["typical"] == run.columns["typical"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "Mtu             : 1024[B]",
            "Mtu             : 2048[B]",
            "for 64 bytes is not like that for 2 bytes",
        ),
        ("324.04 ", "34.04 ", "do not rise"),
        ("431.57 ", "43.57 ", "not like that"),
        ("size 64\n", "", "or several|asked for"),
        ("324.04", "-nan  ", "0.00 is not above zero"),
    ],
)
def test_perftest_runs_that_differ_in_more_than_the_size(old, new, says):
    text = read("perftest.read_lat-each.out").replace(old, new, 1)
    with pytest.raises(OutputError, match=says):
        PARSERS["perftest.read_lat-each.out"](text)


@pytest.mark.parametrize("text", ["1,5", "1_000", "\u0661\u0662", "nan", "inf", "1e999", " 1", "0x10", ""])
def test_what_is_no_number(text):
    with pytest.raises(OutputError):
        number("any", text, "value")


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
        ("stream.out", "Solution Validates", "Failed Validation on array a[], AvgRelAbsErr", "validated"),
        ("stream.out", "counted = 2", "counted = 1", "1 threads ran, 2 were requested"),
        ("stream.out", "42430.3", "52430.3", "line 27: 52430.3 MB/s is not 1280000000 bytes"),
        ("stream.out", "25798.5", "25798,5", "triad at line 30: '25798,5' is not a number"),
        (
            "osu.latency-tails.out",
            "Pass            0.1855",
            "Fail            0.1855",
            "line 10: the data did not",
        ),
        ("osu.latency.out", "8192                    2.05\n", "", "asked for"),
        ("osu.latency.out", "(us)", "(ms)", "unknown"),
        ("osu.mbw_mr.out", "9683119.8954", "9983119.8954", "are not 77.465 MB/s"),
        ("stress-ng.vm.out", "0.15.06", "0.14.03", "version between 0.15 and 0.19"),
        ("stress-ng.vm.out", "ops: 64", "ops: 63", "are not 63 in 0.604506 s"),
        ("stress-ng.vm.out", "pagesize: 4096", "pagesize: 496", "no processor has pages of 496 bytes"),
        ("stress-ng.fork.out", "real-time: 169.8", "real-time: 269.8", "are not 100 in 0.588856 s"),
        ("stress-ng.fork.out", "\n...\n", "\n", "end of the file"),
        ("hpl.out", "     0 tests completed and failed", "     1 tests completed and failed", "1 failed"),
        ("hpl.out", "1.3424e+02", "2.3424e+02", "is not N = 29184"),
        ("hpl.out", "2.24531530e-03 ...... PASSED", "2.24531530e+03 ...... FAILED", "FAILED"),
        ("npb.cg.out", "               SUCCESSFUL", "             UNSUCCESSFUL", "verification"),
        (
            "npb.is.out",
            "Active procs    =                        2",
            "Active procs    =                        1",
            "1 of 2",
        ),
        (
            "npb.is-3-4-2.out",
            "Active processes=                        2",
            "Active processes=                        1",
            "1 of 2",
        ),
        (
            "npb.is.out",
            "   0.06\n",
            "   3.06\n",
            "operations of IS of class S take 0.0568 s at 11.54 Mop/s, not 3.06 s",
        ),
        (
            "npb.is-3-4-2.out",
            "   0.20\n",
            "   0.30\n",
            "operations of IS of class A take 0.196 s at 428.89 Mop/s, not 0.30 s",
        ),
        (
            "npb.cg.out",
            "   0.04\n",
            "   0.14\n",
            "operations of CG of class S take 0.04 s at 1665.07 Mop/s, not 0.14 s",
        ),
        ("npb.cg.out", "   1400\n Iter", "   1900\n Iter", "operations of CG of class S take 0.0543 s"),
        ("namd.water.out", "-31164.6330", "-31166.6330", "terms add up to"),
        ("namd.water.out", "End of program", "", "end of program"),
        ("namd.water.out", "\nENERGY:       0 ", "\nENERGY:       7 ", "first energies are of step 7"),
        ("wrf.em_b_wave.out", "SUCCESS COMPLETE", "FATAL CALLED FROM", "FATAL"),
        ("wrf.em_b_wave.out", "_01:00:00 on", "_01:05:00 on", "steps are missing"),
        ("mpip.wrf-12-steps.out", "39.82", "38.82", "0.856 s of 2.15 s are not 38.82 %"),
        ("mpip.wrf-12-steps.out", "   1      2.141", "   1      2.341", "are not 52.03 %"),
        (
            "mpip.wrf-12-steps.out",
            "   *      4.291      1.970    45.91",
            "   *      4.391      2.016    45.91",
            "are not the sum",
        ),
        ("mpip.wrf-12-steps.out", "Assignment      : 1 vm", "Assignment      : ", "each of 1 tasks"),
        ("mpip.wrf-12-steps.out", "End of Report", "Callsites", "end of the report"),
        ("mpip.wrf-12-steps.out", ": 3.5.0", ": 2.8.2", "version 3.4 or 3.5"),
        ("milc.su3_rhmd_hisq.out", "version 7.8.1", "version ", "version line"),
        ("milc.su3_rmd.out", "PLAQ:\t1", "PLAQ:\t9", "the range of SU"),
        ("milc.su3_rmd.out", "3.417266e+01", "3.417266e+07", "but the program ran from Jan  8 10:00:00 2024"),
        ("milc.su3_rmd.out", "3.417266e+01", "6.417266e+01", "to Jan  8 10:00:35 2024"),
        ("milc.su3_rmd.out", "start: Mon Jan  8", "start: Mon Jan 38", "is no date"),
        ("milc.su3_rhmd_hisq.out", "7.635632e+00", "7.635632e-03", "ACTIONTIME alone took 0.0555"),
        ("milc.su3_rhmd_hisq.out", "delta S = -1", "delta S = -", "changes of the action"),
        ("perftest.send_lat.out", "Mtu             : 1024", "Mtu             : 1000", "MTU"),
        ("hpcc.out", "Success=1", "Success=0", "hpcc itself failed"),
        ("hpcc.out", "0.0035214 ...... PASSED", "35.214 ...... FAILED", "residual"),
    ],
)
def test_a_damaged_output_says_what_is_wrong(name, good, bad, says):
    text = read(name)
    assert good in text
    with pytest.raises(OutputError, match=says):
        PARSERS[name](text.replace(good, bad))


def test_parsers_of_sites_that_import_the_readers_former_names_still_run():
    assert text.one("p", r"^cells = (\d+)$", "cells = 12\n", "cells")[1] == "12"
    assert (text.step("8.553e+01"), text.whole("p", "12", "cells")) == (0.01, 12)
