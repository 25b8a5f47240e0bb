"""Every recorded output is read exactly, and a damaged one is refused with its reason."""

import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest
from samples import ALL_PARSERS, PARSERS, parse, read, reseal

from virtqual.programs import (
    fio,
    ior,
    lammps,
    mpip,
    namd,
    netpipe,
    openfoam,
    osu,
    pgbench,
    pointer_chase,
    stream,
    text,
    web_load,
    wrf,
)
from virtqual.programs.hpcc import HpccRun
from virtqual.programs.hpl import HplRun
from virtqual.programs.likwid import LikwidRun
from virtqual.programs.npb import NpbRun
from virtqual.programs.offered import OfferedLoad, find_critical_rate
from virtqual.programs.pointer_chase import WorkingSet
from virtqual.programs.stress_ng import StressNgRun
from virtqual.programs.text import OutputError, ProgramName, check_product, number

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("hpl.out", HplRun(29184, 192, 2, 4, 134.24)),
        ("hpl.detailed.out", HplRun(1000, 80, 1, 2, 10.112)),
        ("likwid.triad.out", LikwidRun("stream_avx", 2, (0, 1), 60_000_000, 47159.59)),
        ("npb.is.out", NpbRun("IS", "S", "3.4", 2, 11.54)),
        # From 3.4.2 on a label fills its column.
        ("npb.is-3-4-2.out", NpbRun("IS", "A", "3.4.2", 2, 428.89)),
        ("npb.cg.out", NpbRun("CG", "S", "3.4", 2, 1665.07)),
        ("stress-ng.vm.out", StressNgRun("0.15.06", 4096, "vm", 64, 0.604506, 9956 * 1024)),
        ("stress-ng.fork.out", StressNgRun("0.15.06", 4096, "fork", 100, 0.588856, 2584 * 1024)),
        ("stress-ng.0-19.out", StressNgRun("0.19.04", 4096, "vm", 64, 0.063303, 9956 * 1024)),
    ],
)
def test_a_small_report_is_read_exactly(name, run):
    assert parse(name) == run


def test_pointer_chase_is_read_exactly():
    run = parse("pointer_chase.out")
    assert (run.pages, len(run.sets)) == ("4K", 7)
    assert run.sets[-1] == WorkingSet(size=2**26, loads=2**17, time=458.269, page=4096, huge=0)
    huge = reseal(read("pointer_chase.out").replace("458.269 4 0", "458.269 4 2048"))
    assert pointer_chase.parse(huge).sets[-1].huge == 2**21


def test_fio_is_read_exactly():
    run = parse("fio.out")
    assert run.options["direct"] == "1"
    assert run.jobs["sync"].options["sync"] == "dsync"
    assert run.jobs["random_read"].operations == 76791.604198
    assert run.jobs["write"].bandwidth == 7094.787838
    assert (run.jobs["sync"].latency, run.jobs["sync"].latency_p99) == (75.264, 216.064)
    assert (run.jobs["read"].latency, run.jobs["read"].runtime) == (2932.736, 2.002)


def test_ior_and_mdtest_are_read_exactly():
    run = parse("ior.out")
    assert (run.version, run.tasks, run.parameters["checkRead"]) == ("4.0.0", 2, "1")
    assert (run.write, run.read) == (2201.5899 * 2**20 / 1e6, 9024.2539 * 2**20 / 1e6)
    assert run.capacity == 252 * 2**30
    run = parse("mdtest.out")
    assert (run.version, run.tasks, run.files, run.options[:2]) == ("4.0.0", 2, 4000, ("-F", "-P"))
    assert (run.shift, run.capacity) == (1, 252 * 2**30)
    assert run.rates == {"create": 33434.203, "stat": 355901.909, "remove": 62555.802}
    # A slow rate has few digits, and its time many.
    slow = read("mdtest.out").replace("33434.203", "23.583").replace("0.120", "169.611")
    assert ior.parse_mdtest(slow).rates["create"] == 23.583


def test_pgbench_is_read_exactly():
    peak, run = parse("pgbench.peak.out"), parse("pgbench.out")
    assert peak == pgbench.PgbenchRun(
        version="15.18",
        script="<builtin: TPC-B (sort of)>",
        scale=1,
        mode="prepared",
        clients=4,
        threads=2,
        seconds=1,
        transactions=4716,
        rate=4714.934425,
        offered=None,
    )
    assert (run.seconds, run.transactions) == (6, 169)
    assert run.offered.p50 == pytest.approx(0.564)
    assert run.offered.p99 == pytest.approx(4.02, abs=0.001)
    assert (run.offered.on_time, run.offered.client_lag) == (100, pytest.approx(2.782, abs=0.001))
    assert run.offered.client_cores == pytest.approx((0.013 + 0.018) / 6 / 2)


def test_web_load_is_read_exactly():
    run = parse("web_load.out")
    assert (run.seed, run.processes, run.processors) == ("1", 1, 1)
    assert run.java == "17.0.15+6-Debian-1deb12u1"
    assert run.windows[:3] == [16, 18, 48]
    assert len(run.windows) == 16
    peak, load = run.loads["peak"], run.loads["load25"]
    assert (peak.rate, load.rate) == (0, 20)
    assert (peak.throughput, load.throughput) == (pytest.approx(169 / 5.385258), pytest.approx(98 / 5.087883))
    assert (load.offered.p50, load.offered.p99) == (53.791, 198.783)
    assert (load.offered.on_time, load.offered.client_cores) == (100, 0.0114)
    assert load.offered.client_lag == 35.519
    output = read("web_load.out").replace("seed 1", "seed 7").replace("98 waited 0", "98 waited 49")
    run = web_load.parse(reseal(output))
    assert (run.seed, run.loads["load25"].offered.on_time) == ("7", 50)


def make_steps(p99, client_lag=0.01, client_cores=0.1):
    """Return loads at 10, 20, 30 % with these p99 in ms."""
    loads = [OfferedLoad(1, value, 100, client_lag, client_cores) for value in p99]
    return dict(zip((10, 20, 30), loads, strict=True))


@pytest.mark.parametrize(
    ("p99", "limits", "expected"),
    [
        # The logarithm of p99 rises with the rate: 20 of 10 to 30 ms.
        ([5, 10, 30], [20], 20 + 10 * math.log(2) / math.log(3)),
        # Below the first step, p99 itself.
        ([40, 50, 60], [10], 2.5),
        # Two slow steps are the server's limit.
        ([5, 45, 50], [25], 10 + 10 * math.log(5) / math.log(9)),
        ([5, 10, 300], [10, 20], math.sqrt(20 * (20 + 10 * math.log(2) / math.log(30)))),
    ],
)
def test_the_critical_rate_is_the_mean_over_limits_of_p99(p99, limits, expected):
    assert find_critical_rate(make_steps(p99), limits) == (pytest.approx(expected), ())


def test_a_stall_in_one_step_does_not_decide_the_critical_rate():
    stalled = dict(zip((10, 20, 30, 40), make_steps([5, 400, 6]).values(), strict=False))
    stalled[40] = OfferedLoad(1, 600, 100, 0.01, 0.1)
    assert find_critical_rate(stalled, [100])[0] > 30


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        (make_steps([1, 2, 100]), "p99 is 100 ms at the highest offered rate"),
        (make_steps([5, 50, 500], client_cores=0.9), "each of its threads used 0.90 of a core"),
        (
            make_steps([5, 120, 500], client_lag=100),
            "the client is the limit: without its own lag, p99 would be within limits up to 32% higher rates",
        ),
    ],
)
def test_a_critical_rate_that_is_not_the_servers_says_why(steps, why):
    (reason,) = find_critical_rate(steps, [50, 100])[1]
    assert why in reason


@pytest.mark.parametrize(
    ("name", "good", "bad", "message"),
    [
        ("fixed_work.out", "cpus 2", "cpus 3", "2 CPUs of 3, 11 times"),
        ("fixed_work.out", "one in", "once in", "2 CPUs of 2, 0 times"),
        ("web_load.out", "answers 98", "answers 99", "at rate 20: 98 times of 99 answers"),
        ("web_load.out", "answers 98", "answers 0", "at rate 20: 98 times of 0 answers"),
        ("web_load.out", "\npeak", "\nwrong no title\npeak", "wrong answers: no title"),
        ("web_load.out", "\npeak", "\ncold 8 windows\npeak", "the server did not become warm: 8 windows"),
    ],
)
def test_lines_that_contradict_each_other_are_refused_whatever_their_checksum(name, good, bad, message):
    output = reseal(read(name).replace(good, bad))
    with pytest.raises(OutputError, match=message):
        PARSERS[name](output)


def write_pgbench(requests):
    """Return what pgbench prints of requests of one thread: intended time and latency, lag, client; in us."""
    numbers, rows, base = {}, [], 1_800_000_000_000_000
    for intended, latency, lag, client in requests:
        numbers[client] = numbers.get(client, 0) + 1
        end = base + intended + latency
        rows.append((client, numbers[client], latency, 0, end // 10**6, end % 10**6, lag))
    latencies, lags = (np.array([row[column] for row in rows]) / 1000 for column in (2, 6))
    seconds = round(rows[-1][4] - base // 10**6)
    lines = [
        "pgbench (15.18 (Debian 15.18-0+deb12u1))",
        "transaction type: <builtin: TPC-B (sort of)>",
        "scaling factor: 1",
        "query mode: prepared",
        f"number of clients: {len(numbers)}",
        "number of threads: 1",
        f"duration: {seconds} s",
        f"number of transactions actually processed: {len(rows)}",
        "number of failed transactions: 0 (0.000%)",
        f"latency average = {latencies.mean():.3f} ms",
        f"latency stddev = {latencies.std():.3f} ms",
        f"rate limit schedule lag: avg {lags.mean():.3f} (max {lags.max():.3f}) ms",
        f"tps = {len(rows) / seconds:.6f} (without initial connection time)",
        "client 1.000 1.000",
        "thread",
        *(" ".join(map(str, row)) for row in rows),
    ]
    return "\n".join(lines) + "\n"


def serve(stops=(), starved=()):
    """Return requests of 100 s at 100 a second, 2 ms each, to a server or of a client that stops."""
    rng = np.random.default_rng(7)
    free = dict.fromkeys(range(8), 0)
    for intended in np.cumsum(rng.exponential(10_000, 10_000)).astype(int).tolist():
        client = min(free, key=free.get)
        begin = max([intended, free[client], *(end for start, end in starved if start <= intended < end)])
        end = begin + 2000
        for start, stop in stops:
            if start < end and begin < stop:
                end = stop + 2000
        free[client] = end
        yield intended, end - intended, max(begin - intended, 1), client


def test_a_server_that_stops_for_two_seconds_in_a_hundred_shows_in_the_p99_of_its_client():
    load = pgbench.parse(write_pgbench(serve(stops=[(50_000_000, 52_000_000)]))).offered
    assert load.p50 == pytest.approx(2.001, abs=0.1)
    assert 900 < load.p99 < 1200
    # All connections waited for the server: the client was in time.
    assert load.on_time < 99
    assert (load.client_lag, list(load.find_client_limits())) == (pytest.approx(0.001), [])


def test_a_client_that_begins_late_although_a_connection_is_free_is_the_limit():
    load = pgbench.parse(write_pgbench(serve(starved=[(50_000_000, 52_000_000)]))).offered
    assert load.client_lag > 500
    (limit,) = load.find_client_limits()
    assert "more than a tenth of their latency" in limit
    busy = dataclasses.replace(load, client_lag=0.1, client_cores=0.62)
    assert list(busy.find_client_limits()) == [
        "the client is the limit: each of its threads used 0.62 of a core, more than 0.5"
    ]


def test_a_request_counts_from_two_seconds_on_and_is_on_time_if_a_connection_is_free():
    """Times are in us; the second client waits while both connections are busy, once."""
    text = write_pgbench(
        [
            (0, 1_000, 1, 0),
            (1_000_000, 900_000, 1, 1),
            # From here on requests count.
            (2_000_000, 2_000_000, 100, 1),
            (2_500_000, 1_000_000, 500_000, 0),
            # The request before has just begun: both connections are busy.
            (3_000_000, 1_200_000, 500_000, 0),
            # The connection is free at this time.
            (4_000_000, 1_000, 0, 1),
        ]
    )
    load = pgbench.parse(text).offered
    assert (load.p50, load.p99) == (pytest.approx(1100), pytest.approx(1976))
    assert (load.on_time, load.client_lag) == (75, pytest.approx(490.002))
    assert load.client_cores == 0.5
    assert len(list(load.find_client_limits())) == 1
    assert list(load.find_client_limits(shares_core=True)) == []
    busy = pgbench.parse(write_pgbench([(0, 2_500_000, 1, 0), (2_200_000, 500_000, 300_000, 0)])).offered
    assert (busy.on_time, busy.client_lag) == (0, 0)
    with pytest.raises(OutputError, match="pgbench output: no transaction after the first 2 s"):
        pgbench.parse(write_pgbench([(0, 1_000, 1, 0), (1_900_000, 900_000, 1, 0)]))


def test_openfoam_is_read_exactly():
    run, probe = parse("openfoam.out"), parse("openfoam.probe.out")
    assert (run.version, run.processes) == ("1912", 2)
    # Two ranks and other work shared two CPUs.
    assert run.clock_time == 268
    assert openfoam.read_cells("  nPoints: 2146689\n  nCells: 2097152\n") == 128**3
    with pytest.raises(OutputError, match="OpenFOAM output: no number of cells as versions"):
        openfoam.read_cells("  nPoints: 2146689\n")
    assert len(probe) == 10
    assert probe[0.03125] == (-0.202053555, -0.008481107297, -8.816367626e-05)
    assert math.hypot(*probe[0.03125]) == pytest.approx(0.202232, rel=1e-5)


def test_the_case_of_openfoam_has_a_step_for_each_cell_that_the_lid_passes():
    case = openfoam.write_case(128, 40, 12)
    assert "\ndeltaT 0.00078125;\n" in case["system/controlDict"]
    assert "\nendTime 0.03125;\n" in case["system/controlDict"]
    assert " (128 128 128) " in case["system/blockMeshDict"]
    assert "\nn (3 2 2);\n" in case["system/decomposeParDict"]


def test_fixed_work_is_read_exactly():
    run = parse("fixed_work.out")
    assert (run.steps, run.pieces) == (40_000, 1_000)
    assert run.means == {0: 472.589, 1: 351.521}
    assert list(run.exceeded) == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000]
    assert (run.exceeded[1], run.exceeded[2000]) == (55.773, 48099.306)


@pytest.mark.parametrize(
    ("name", "loop_time", "energy", "cpu_use", "comm"),
    [
        ("lj", 0.67836, {0: -4.6134356, 100: -4.6223613}, 95.6, 4.58),
        # As Spack builds it: without OpenMP.
        ("chain-no-openmp", 0.420119, {0: 22.394765, 100: 22.409751}, 87.0, 8.44),
        # The thermo style multi.
        ("rhodo", 1.09769, {0: -25356.2057, 10: -25355.5794}, 97.3, 0.42),
    ],
)
def test_lammps(name, loop_time, energy, cpu_use, comm):
    run = parse(f"lammps.{name}.out")
    assert run == lammps.LammpsRun(loop_time, 2, max(energy), 32000, energy, cpu_use, comm)
    first, last = energy.values()
    assert run.drift == pytest.approx(abs(last - first) / abs(first))


def test_lammps_may_warn_between_rows():
    text = read("lammps.lj.out")
    row = "       100   0.757"
    warned = text.replace(row, f"WARNING: Dangerous builds = 1 (src/thermo.cpp:472)\n{row}")
    assert (warned != text, lammps.parse(warned)) == (True, parse("lammps.lj.out"))


def test_threads_of_lammps_share_the_processes():
    threaded = read("lammps.lj.out").replace("2 MPI tasks x 1 OpenMP", "1 MPI tasks x 2 OpenMP")
    assert lammps.parse(threaded) == dataclasses.replace(parse("lammps.lj.out"), tasks=1)


def test_a_thread_of_likwid_is_where_it_says():
    moved = read("likwid.triad.out").replace("running on hwthread 1", "running on hwthread 3")
    assert PARSERS["likwid.triad.out"](moved).hwthreads == (0, 3)


def test_neighbours_of_large_boxes_are_printed_otherwise():
    text = re.sub(r"(Total # of neighbors =) \d+", r"\1 1.0828068e+08", read("lammps.rhodo.out"))
    assert lammps.parse(text) == parse("lammps.rhodo.out")


def test_netpipe():
    rows = parse("netpipe.pingpong.out")
    assert [row.size for row in rows[:5]] == [1, 2, 3, 4, 6]
    assert len(rows) == 24
    assert rows[0].time == pytest.approx(0.8754730)
    assert rows[-1].bandwidth == pytest.approx(18247.528888 * 2**20 / 8e6)


def test_netpipe_prints_few_digits_of_the_bandwidth_if_messages_take_long():
    (row,) = netpipe.parse(" 1 0.000211 0.03619459\n", 1, 1)
    assert (row.time, row.bandwidth) == pytest.approx((36194.59, 1 / 36194.59))


def test_hpcc():
    text = read("hpcc.out")

    def value(key):
        return float(re.search(rf"^{key}=(\S+)$", text, re.M)[1])

    assert parse("hpcc.out") == HpccRun(
        version="1.5.0",
        processes=2,
        n=3000,
        hpl=pytest.approx(value("HPL_Tflops") * 1000),
        dgemm=value("StarDGEMM_Gflops"),
        fft=6.31835,
        random_access=value("MPIRandomAccess_GUPs"),
        ptrans=value("PTRANS_GBs"),
        fft_error=1.48122e-15,
        random_access_errors=value("MPIRandomAccess_Errors") / value("MPIRandomAccess_N"),
    )


def test_errors_of_random_access_are_a_share_of_the_table():
    text = read("hpcc.out").replace("MPIRandomAccess_Errors=0", "MPIRandomAccess_Errors=4096")
    assert PARSERS["hpcc.out"](text).random_access_errors == 4096 / 8388608


def test_stream():
    run = parse("stream.out")
    assert (run.version, run.bytes_each, run.threads) == ("5.10", 640_000_000, 2)
    assert run.best == {"copy": 42430.3, "scale": 23604.9, "add": 26495.9, "triad": 25798.5}
    assert run.mean["triad"] == pytest.approx(3 * 640 / 0.076273)
    assert run.ticks("triad") == pytest.approx(74423, abs=1)
    old = parse("stream.5-9.out")
    assert (old.version, old.threads, old.best["copy"], old.best["triad"]) == (
        "5.9",
        4,
        13266.9983,
        15180.2657,
    )


@pytest.mark.parametrize(
    ("name", "benchmark", "version", "size", "values"),
    [
        ("latency", "Latency Test", "7.4", 64, {"latency": 0.74}),
        ("latency", "Latency Test", "7.4", 4194304, {"latency": 405.89}),
        (
            "latency-tails",
            "Latency Test",
            "7.4",
            16,
            {"latency": 10.3158, "p50": 0.2055, "p90": 0.2205, "p99": 0.2605},
        ),
        ("allreduce", "Allreduce Latency Test", "7.4", 2**20, {"latency": 447.39}),
        (
            "mbw_mr",
            "Multiple Bandwidth / Message Rate Test",
            "7.4",
            8,
            {"bandwidth": 77.465, "messages": 9683119.8954, "p50": 76.9925},
        ),
    ],
)  # fmt: skip
def test_osu(name, benchmark, version, size, values):
    run = parse(f"osu.{name}.out")
    assert (run.benchmark, run.version) == (benchmark, version)
    assert {column: sizes[size] for column, sizes in run.columns.items()} == values
    assert run.pairs == (1 if name == "mbw_mr" else 0)


def test_a_product_is_held_against_what_was_printed_within_the_last_decimal_of_each():
    # 1.45 messages of 4 MiB a second, each rounded: 6.0817 MB/s are 6.08.
    check_product("any", "MB/s", "6.08", "1.45", "4194304e-6")
    check_product("any", "time", "2", "4.000e+01", "0.05")
    with pytest.raises(OutputError, match=r"MB/s: 1\.45 x 4194304e-6 is not 6.38"):
        check_product("any", "MB/s", "6.38", "1.45", "4194304e-6")


def test_osu_of_an_older_version():
    run = parse("osu.5-6.out")
    assert (run.version, list(run.columns)) == ("5.6.2", ["latency"])
    assert list(parse("osu.latency.out").columns["latency"]) == [2**power for power in range(23)]


def test_a_really_broken_osu_table_is_refused():
    """Recorded: notes of one rank came between a size and its value."""
    with pytest.raises(OutputError, match="line 41 is not a row"):
        osu.parse(read("osu.split.out"), 1, 4096)


def test_namd():
    run = parse("namd.water.out")
    assert (run.version, run.processes, run.atoms) == ("2.12", 2, 10125)
    assert (run.first, run.last, run.wall_clock) == (100, 500, 6.643943)
    assert (len(run.energy), run.start) == (9, -2791.7506)
    assert (run.energy[100], run.energy[500]) == (-31170.8515, -31164.6330)
    assert run.drift == pytest.approx(1.995e-4, rel=1e-3)


def test_namd_runs_the_steps_of_a_configuration_without_scripts():
    scripted = re.compile(r"TCL: [MR]|ENERGY: +(?! |0 |500 )")
    lines = [line for line in read("namd.water.out").split("\n") if not scripted.match(line)]
    text = re.sub(r"(NUMBER OF|OUTPUT) STEPS +\d+", r"\1 STEPS 500", "\n".join(lines))
    run = PARSERS["namd.water.out"](text)
    assert (run.first, run.last, run.energy) == (0, 500, {0: -2791.7506, 500: -31164.6330})


def test_wrf():
    run = parse("wrf.em_b_wave.out")
    assert (run.tasks, run.interval, len(run.seconds)) == ((1, 2), 600.0, 12)
    assert (run.seconds[0], run.seconds[-1]) == (0.19193, 0.06417)
    assert (run.total, run.end) == (pytest.approx(sum(run.seconds)), "0001-01-01_02:00:00")


def test_mpip():
    """The time of ten further steps is neither that of the run nor that of its start."""
    long, short = parse("mpip.wrf-12-steps.out"), parse("mpip.wrf-2-steps.out")
    assert (long.seconds, long.mpi) == ((2.150, 2.141), (0.856, 1.114))
    assert (long.share, short.share) == (pytest.approx(0.4591, abs=2e-4), pytest.approx(0.5143, abs=2e-4))
    # As if WRF itself had printed 1.2 s, and then 1 s.
    steps = long.beyond(short, 1.2)
    assert (steps.mean, steps.share) == (pytest.approx(1.256), pytest.approx(1.055 / 2.512))
    with pytest.raises(OutputError, match=r"mpiP output: the longer run took -2.512 s more, -1.055 s"):
        short.beyond(long, 1.2)
    with pytest.raises(OutputError, match="mpiP output: 2 and 1 tasks"):
        long.beyond(mpip.Profile((1.0,), (0.5,)), 1.2)
    with pytest.raises(OutputError, match=r"mpiP output: the longer run took 1.26 s more, its steps 1 s"):
        long.beyond(short, 1.0)


@pytest.mark.parametrize(("mpi", "whole"), [(-0.1, False), (0, True), (0.5, True), (0.6, False)])
def test_steps_are_in_mpi_for_some_of_their_time_at_most(mpi, whole):
    short = mpip.Profile((1.0,), (0.25,))
    long = mpip.Profile((1.5,), (0.25 + mpi,))
    if whole:
        assert long.beyond(short, 0.5) == mpip.Profile((0.5,), (mpi,))
    else:
        with pytest.raises(OutputError, match=r"0\.500 s more"):
            long.beyond(short, 0.5)


def test_milc():
    run = parse("milc.su3_rhmd_hisq.out")
    assert (run.version, run.processes, run.lattice) == ("7.8.1", 2, (4, 4, 4, 8))
    assert (run.trajectories, run.time, run.violations) == (1, 7.635632, (-1.033972e-02,))
    assert run.plaquette == pytest.approx((2.9060255810913773, 2.9044433781253503), abs=1e-9)


def test_the_plaquette_of_milc_is_the_mean_of_all_measurements():
    text = read("milc.su3_rhmd_hisq.out").replace("trajecs 1\n", "trajecs 2\n")
    (measured,) = re.findall(r"^CHECK: delta S.*\n(?:.*\n)*?P_LOOP:.*\n", text, re.MULTILINE)
    again = measured.replace("2.906", "3.106").replace("2.904", "2.704")
    run = PARSERS["milc.su3_rhmd_hisq.out"](text.replace(measured, measured + again))
    assert run.trajectories == 2
    assert run.plaquette == pytest.approx((3.0060255810913773, 2.8044433781253503), abs=1e-9)


def test_milc_of_the_stack_prints_its_version():
    # MILC asks git for its version, and prints none if it was unpacked from a mirror's archive.
    recipe = (ROOT / "config/repo/spack_repo/virtqual/packages/milc/package.py").read_text()
    assert 'f"GIT_VERSION={self.version}"' in recipe
    (version,) = re.findall(r'^    version\("(.*?)"', recipe, flags=re.MULTILINE)
    line = "MIMD version 7.8.1\n"
    built = read("milc.su3_rhmd_hisq.out").replace(line, f"MIMD version {version}\n")
    assert PARSERS["milc.su3_rhmd_hisq.out"](built).version == "7.8.1"


def test_perftest():
    run = parse("perftest.send_lat.out")
    assert (run.operation, run.kind, run.connection) == ("send", "latency", "RC")
    assert (run.link, run.mtu, run.queue_pairs, run.iterations) == ("Ethernet", 1024, 1, 10000)
    assert len(run.columns["typical"]) == 23
    assert (run.columns["typical"][2], run.columns["average"][2]) == (9.1, 9.46)
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
    # Version 4.5 prints this deviation after stalls of a tenth of a second.
    text = read("perftest.read_lat-each.out").replace("465.61 ", "-nan   ")
    assert PARSERS["perftest.read_lat-each.out"](text) == run


@pytest.mark.parametrize("text", ["1,5", "1_000", "\u0661\u0662", "nan", "inf", "1e999", " 1", "0x10", ""])
def test_a_text_that_is_not_a_number_is_refused(text):
    with pytest.raises(OutputError):
        number("any", text, "value")


@pytest.mark.parametrize(
    ("helper", "arguments", "message"),
    [
        (text.number, ("nan", "time"), "time: 'nan' is not a finite number"),
        (text.positive, ("0.0", "time"), "time: 0.0 is not above zero"),
        (text.positive, ("x", "time"), "time: 'x' is not a finite number"),
        (text.whole_number, ("1.5", "count"), "count: '1.5' is not a whole number"),
        (text.date, ("x", "%d", "end"), "end: 'x' is not a date"),
        (text.single, ("^a", "a\nb\na\n", "a"), "a: appears 2 times (lines 1, 3), expected once"),
        (text.single, ("^a", "a\n" * 6, "a"), "a: appears 6 times (lines 1, 2, 3, 4, 5), expected once"),
        (
            text.single,
            ("^z", "a", "row"),
            "no row as versions 2 and 3 print it; no line is similar: the output is incomplete, or of "
            "another version or build",
        ),
        *(
            (
                text.single,
                (r"^Elapsed time: (\d+\.\d\d) s$", f"start\n{line}\nend\n", "time"),
                f"no time as versions 2 and 3 print it; the closest line is 2: {shown!r}",
            )
            for line, shown in (
                ("Elapsed time: 2.5 s", "Elapsed time: 2.5 s"),
                ("Elapsed time  : 2.50 s", "Elapsed time  : 2.50 s"),
                ("0: Elapsed time: 2.50 s", "0: Elapsed time: 2.50 s"),
                ("Elapsed time: 2.500 s" + 99 * "!", "Elapsed time: 2.500 s" + 79 * "!" + "..."),
            )
        ),
        (
            text.single,
            (r"^d01 \S+ program: SUCCESS$", "a\nprogram: SUCCESS\n", "end"),
            "no end as versions 2 and 3 print it; the closest line is 2: 'program: SUCCESS'",
        ),
        (
            text.refuse_not_finite,
            ("Info: nanotube of infinity.x\nerror = -NaN ... PASSED\n",),
            "line 2 has a value that is not a finite number: 'error = -NaN ... PASSED'",
        ),
        (text.refuse_lines, ("ERROR", "well\n ERROR: lost\n"), "line 2: ERROR: lost"),
        (text.check_product, ("rate", "3", "1", "2"), "rate: 1 x 2 is not 3"),
        (text.check_product, ("rate", "0", "1"), "rate: 0 is not above zero"),
        (text.check_sizes, (["1", "4"], [1, 2]), "message sizes in bytes: 4 where 2 was expected"),
        (text.check_sizes, ([1, 2, 4], [1, 2]), "message sizes in bytes: 4 where none was expected"),
        (
            text.check_lines,
            ("a\n",),
            "no last line as versions 2 and 3 print it; no line is similar: the output is incomplete, or of "
            "another version or build",
        ),
        (text.check_lines, ("\udcff\nend 00000000\n",), "its lines are not those of its checksum"),
    ],
)
def test_what_is_wrong_is_said_with_the_program(helper, arguments, message):
    with pytest.raises(OutputError) as error:
        helper(ProgramName("any", "versions 2 and 3"), *arguments)
    assert str(error.value) == f"any output: {message}"


def test_a_parser_of_a_site_may_name_its_program_alone():
    with pytest.raises(OutputError, match=r"^solver output: no rating; the closest line is 1: 'rating: x'$"):
        text.single("solver", r"^rating: (\d+)$", "rating: x\n", "rating")
    with (
        pytest.raises(OutputError, match=r"^solver output: no key 'rating'$"),
        text.read_json("solver", "{}") as document,
    ):
        document["rating"]


@pytest.mark.parametrize("name", ALL_PARSERS)
def test_a_truncated_output_is_refused_or_read_the_same(name):
    """Cut at every line: never another number."""
    intact = parse(name)
    lines = read(name).splitlines(keepends=True)
    refused = 0
    for kept in range(len(lines)):
        try:
            assert ALL_PARSERS[name]("".join(lines[:kept])) == intact
        except OutputError:
            refused += 1
    assert refused > len(lines) / 2


@pytest.mark.parametrize("name", ALL_PARSERS)
def test_two_runs_in_one_file_are_refused(name):
    with pytest.raises(OutputError):
        ALL_PARSERS[name](read(name) * 2)


@pytest.mark.parametrize(
    ("name", "good", "bad", "message"),
    [
        ("hpcc.out", "HPL_Tflops=0.0855291", "HPL_Tflops=0.0955291", "HPL_Tflops=0.0955291 in the summary"),
        ("hpcc.out", "HPL_time=0.210613", "HPL_time=0.310613", " 0.0579.* by HPL_N and HPL_time"),
        ("hpcc.out", "HPL_N=3000", "HPL_N=3001", "HPL_N=3001 in the summary, 3000 in the section of HPL"),
        ("hpcc.out", "0.21              8.553e+01", "0.21              8.553e+02", "are not 18.0135 Gflop"),
        ("hpcc.out", "0.0035214 ...... PASSED", "17.214 ...... PASSED", "residual 17.214 PASSED"),
        ("hpcc.out", "0.0035214 ...... PASSED", "nan ...... PASSED", "residual: 'nan' is not a finite"),
        ("hpcc.out", "s_GUPs=0.0294218", "s_GUPs=0.294218", "in the summary, .* by its updates"),
        ("hpcc.out", "M_Gflops=61.535", "M_Gflops=62.535", "61.535 by the section StarDGEMM"),
        ("hpcc.out", "Gflop/s:     6.318", "Gflop/s:     7.318", "7.318 by the section MPIFFT"),
        ("hpcc.out", "Scaled residual: 0.00764184", "Scaled residual: nan", "a value that is not a finite"),
        ("hpcc.out", "PASSED    3.024  0.00", "PASSED    3.024   inf", "a value that is not a finite"),
        ("hpcc.out", "PTRANS_GBs=3.02418", "PTRANS_GBs=3.12418", "3.024 by the section PTRANS"),
        ("hpcc.out", "Average Gflop/s 61", "Mean Gflop/s 61", "the section StarDGEMM has no rate"),
        ("hpl.out", "PASSED", "PASSED?", "no residual as netlib"),
        ("perftest.write_bw.out", "124.82", "134.82", "at 512 bytes: 0.255637 x 488.28125 is not"),
        ("perftest.write_bw.out", " 0.57   ", " 0.47   ", "bandwidth at 2 bytes: its peak 0.47 is below"),
        ("perftest.write_bw.out", " 0.57   ", "-0.57   ", "bandwidth at 2 bytes: its peak -0.57 is below"),
        ("perftest.send_lat.out", " 8.46 ", "-8.46 ", "99.9 %, max do not rise"),
        ("perftest.send_lat.out", "9.10     \t       9.46", "35.58    \t       9.46", "99.9 %, max do not"),
        ("perftest.send_lat.out", "9.10     \t       9.46", "9.10     \t       8.45", "average, max do not"),
        ("osu.latency-tails.out", "P50 Tail", "P99 Tail", "the column 'P99 Tail Lat.us.' appears twice"),
        ("osu.latency-tails.out", "0.1805            0.2155", "0.2155            0.1805", "the percentiles"),
        ("wrf.em_b_wave.out", "time 0001-01-01_00:20", "time 0001-01-01 00:20", "a broken or merged line"),
        ("lammps.lj.out", "Loop time of 0.67836", "Loop time of nan", "loop time"),
        ("lammps.lj.out", "tasks x 1", "tasks x 2", "2 procs in the loop line, 2 x 2 in the CPU line"),
        ("likwid.triad.out", "Group: 0 Thread 1", "Group: 0 Thread 0", "2 threads were used, 1 say where"),
        ("lammps.lj.out", "0.20726105", "nan", "Press at line 30: 'nan' is not a finite number"),
        ("lammps.rhodo.out", "-149.3300", "-nan", "line 75 has a value that is not a finite number: 'E_coul"),
        ("lammps.lj.out", "       100   0.7574531", "\n", "line .. is not a row of the thermo table: ''"),
        ("lammps.rhodo.out", "Comm    |", "ERROR: lost atoms\nComm    |", "line 95: ERROR: lost atoms"),
        ("lammps.rhodo.out", "-25355.5794 KinEng", "1e999 KinEng", "step 10: '1e999' is not a finite number"),
        ("netpipe.pingpong.out", "18247.528888", "28247.528888", "disagree"),
        ("likwid.triad.out", "hwthread 1", "hwthread -", "2 threads were used, 1 say where"),
        ("stream.out", "Solution Validates", "Failed Validation on array a[], AvgRelAbsErr", ": Failed Val"),
        ("stream.out", "25798.5", "2798.5", "triad, rate x time: 2798.5 x 0.074423 is not 1920"),
        ("stream.out", "0.076273", "0.079273", "triad: the average time is not between"),
        ("likwid.triad.out", "47159.59", "4715.59", "bandwidth x time"),
        ("lammps.lj.out", "Loop time of 0.67836", "Loop time of 0.87836", "loop time x timesteps/s"),
        ("npb.cg.out", " Version  ", " Class    ", "a broken or a second line"),
        ("npb.cg.out", " Version  ", "#Version  ", "a broken or a second line"),
        ("npb.cg.out", " Version  ", " Edition  ", "no 'Version' in the report as versions 2.3 to 3.4"),
        ("namd.water.out", "-31164.9703", "-311649703", "the sum of its terms"),
        ("milc.su3_rhmd_hisq.out", "Time = 7.635632e+00", "Time = 7.635632e+07", "is longer than from"),
        ("milc.su3_rhmd_hisq.out", "CHECK: delta S", "CHECK: delta", "0 complete changes of the action"),
        ("osu.latency-tails.out", "P90 Tail Lat(us)", "      Validation", "'Validation' is not one that"),
        ("osu.latency.out", "(us)", "(ms)", "the column 'Avg' is not one that the check asked for"),
        ("osu.latency.out", " 2.05\n", " 2.05  1\n", "line 22 has 2 columns"),
        ("openfoam.out", "9.614562458e-07", "9.614562458e-04", "residual of Uz is 0.000961456 in the end"),
        ("openfoam.out", "4.260121843e-10", "4.260121843e-05", "the flow into cells is not that out"),
        ("openfoam.out", "Solving for Uy", "Solving for Ux", "a time step has the unexpected line"),
        ("openfoam.out", "Time = 0.0125\n", "Time = 0.0126\n", "time 0.0126 is not step 4 of 0.003125 s"),
        ("openfoam.out", "\nEnd\n", "\n--> FOAM FATAL ERROR: x\nEnd\n", "FOAM FATAL ERROR: x"),
        ("openfoam.out", "\nEnd\n", "\n[1] --> FOAM FATAL ERROR: x\nEnd\n", "FOAM FATAL ERROR: x"),
        ("openfoam.out", "Final residual = 9.6", "Final residual = -9.6", "residual of Uz is -9.61456e-07"),
        ("openfoam.out", "9.614562458e-07", "nan", "a value that is not a finite number: 'smooth"),
        ("openfoam.out", "OPENFOAM=1912 patch=200626", "...", "the line 'Build' has no version as versions"),
        ("openfoam.out", "\nEnd\n", "\nEnd\n[1] it is killed\n", "killed.* follows the end of the run"),
        ("openfoam.probe.out", "0.03125 ", "0.028125 ", "the probe has 10 rows, asked for 10"),
        ("openfoam.probe.out", "-0.202053555", "nan", "is no velocity of the probe"),
        ("fio.out", '"iops" : 76791.604198', '"iops" : 7679.588206', "a second in 2.001 s are not 153660"),
        ("fio.out", '"iops" : 76791.604198', '"iops" : NaN', "a second in 2.001 s are not 153660"),
        ("fio.out", '"bw_bytes" : 314538410', '"bw_bytes" : 31453841', "are not 629391360"),
        ("fio.out", '"jobname" : "read"', '"jobname" : "write"', "two jobs have one name"),
        ("fio.out", '"eta" : 0', '"error" : 5', "the key 'error' appears twice, with different values"),
        ("fio.out", '"size" : "64M"', '"size" : 64', "an option is no text: .*'size': 64"),
        ("fio.out", '"50.000000" : 75264', '"50.000000" : 752640', "half of the requests take 752.64 us"),
        ("fio.out", '"95.000000" : 2', '"95.000000" : 1', "90 % of the requests take 218112 ns, 95 % 144736"),
        ("fio.out", '"jobs"', '"jobs" : [], "old jobs"', "it has no job"),
        ("fio.out", '"fio-3', '"fio-2', "fio-2.* prints other keys and units than ver"),
        ("fio.out", '"rw" : "randread"', '"rw" : "randrw"', "job random_read has no percentiles"),
        ("fio.out", '"total_ios" : 0', '"total_ios" : 5', "job random_read both reads and writes"),
        ("fio.out", '"percentile"', '"percentage"', "job random_read has no percentiles: run it without"),
        ("fio.out", '"jobs"', '"jobs', "it is not JSON, or cut off"),
        ("ior.out", '"bwMiB": 2201.5899', '"bwMiB": 201.5899', "write: 201.5899 MiB/s in 0.0145 s are not"),
        ("ior.out", '"bwMeanMIB": 9024.2539', '"bwMeanMIB": 9024.3', "read: .* MiB/s, in its summary 9024.3"),
        ("ior.out", '"access": "read"', '"access": "rate"', "no key 'read' as versions 3.3 to 4.1 print it"),
        ("ior.out", '"Finished"', '"Version"', "the key 'Version' appears twice, with different values"),
        ("ior.out", '"segmentCount": 1', '"blockSize": 1', "the key 'blockSize' appears twice"),
        ("ior.out", '"Finished": "Fri', '"Finished": "', "end: .* is not a date"),
        ("ior.out", '"segmentCount": 1', '"segmentCount": 2', "are not 67108864 bytes"),
        ("ior.out", '"numTasks": 2', '"numTasks": 3', "it is not the JSON of a whole run"),
        ("ior.out", '"summary": [', '"summary": [{"operation": "x", "numTasks": 2},', "write once and read"),
        ("ior.out", '"Results": [', '"Results": [{"access": "x"},', "it did not write once and read once$"),
        ("ior.out", "252.0 GiB", "252.0  GiB", "capacity: '252.0  GiB' is no size"),
        ("ior.out", "252.0 GiB", "- GiB", "capacity: '-' is not a finite number"),
        ("ior.out", "252.0 GiB", "252.0 giB", "capacity: '252.0 giB' is no size"),
        ("mdtest.out", "2 tasks, 4000", "3 tasks, 4000", "2 tasks in its first line, 3 in its table"),
        ("mdtest.out", "2 tasks, 4000", "2 tasks, 400", "33434.203 a second in 0.12 s are not 400 files"),
        ("mdtest.out", "V-0: Rank", "WARNING: Rank", "WARNING: Rank"),
        ("mdtest.out", "V-0: Rank", "ERROR: Rank", "ERROR: Rank"),
        ("mdtest.out", "V-0: Rank", "FAIL: Rank", "FAIL: Rank"),
        ("mdtest.out", "finished at 11/27", "finished at 13/27", "end: .* is not a date"),
        ("mdtest.out", "l                62555.802", "l                62555.803", "several values: File"),
        ("mdtest.out", "0.011          0.011", "0.011          0.012", "one iteration has several values"),
        ("pgbench.out", "0 2 465", "0 3 465", "transactions of client 0 are missing, or not in their order"),
        ("pgbench.out", "795641795 899563", "795641795 779563", "of client 0 are missing, or not in their"),
        # It begins in the second before, in which the client was busy.
        ("pgbench.out", "0 4 1838 0", "0 4 200838 0", "of client 0 are missing, or not in their order"),
        ("pgbench.out", "average = 1.408", "average = 1.410", "mean latency 1.410 ms, by its log 1.40"),
        ("pgbench.out", "stddev = 3.374", "stddev = 3.376", "standard deviation 3.376 ms, by its log 3.37"),
        ("pgbench.out", "avg 0.518", "avg 0.520", "mean lag 0.520 ms, by its log 0.51"),
        ("pgbench.out", "max 3.702", "max 3.704", "largest lag 3.704 ms, by its log 3.702"),
        ("pgbench.peak.out", "processed: 4716", "processed: 9716", "9716 transactions in 1 s are not"),
        ("pgbench.peak.out", "processed: 4716", "processed: 2316", "2316 transactions in 1 s are not"),
        ("pgbench.peak.out", "tps = 4", "tps = 3", "ms keep 3.15 of 4 clients busy"),
        ("pgbench.peak.out", "tps = 4", "pgbench: error: x\ntps = 4", "line .*: pgbench: error: x"),
        ("pgbench.peak.out", "pgbench (1", "pgbench (0", "does not count failed transactions: use Post"),
        ("pgbench.peak.out", "\ntps", "\nrate limit\ntps", "the log of its transactions is missing"),
        ("hpl.out", "Finished      1", "Finished      2", "1 tests passed, 0 failed, 0 were skipped, of 2"),
        ("hpl.out", "0 tests skipped", "1 tests skipped", "1 tests passed, 0 failed, 1 were skipped"),
        ("hpl.out", "     0 tests completed and failed", "     1 tests completed and failed", "1 failed"),
        ("hpl.out", "2.24531530e-03 ...... PASSED", "2.24531530e+03 ...... FAILED", "FAILED"),
        ("npb.cg.out", "               SUCCESSFUL", "             UNSUCCESSFUL", "verification"),
        ("namd.water.out", "\nENERGY:       0 ", "\nENERGY:       7 ", "first energies are of step 7"),
        ("namd.water.out", "\nENERGY:     100 ", "\nENERGY:       0 ", "energies of step 0 are there twice"),
        ("namd.water.out", "\nENERGY:     250 ", "\nENERGY:     275 ", "not every 50 from 100 to 500"),
        ("wrf.em_b_wave.out", "SUCCESS COMPLETE", "FATAL CALLED FROM", "FATAL"),
        ("wrf.em_b_wave.out", "_01:00:00 on", "_01:05:00 on", "steps are missing"),
        ("mpip.wrf-12-steps.out", "Assignment      : 1 vm", "Assignment      : ", "each of 1 tasks"),
        ("mpip.wrf-12-steps.out", "39.82", "49.82", "line 20: 0.856 s of 2.15 s are not 49"),
        ("mpip.wrf-12-steps.out", " 4.291      1.970    45.91", " 4.491  1.970  43.87", "adds up to 4.291"),
        ("mpip.wrf-12-steps.out", " 4.291      1.970    45.91", " 4.291  2.970  69.21", "adds up to 1.97"),
        ("milc.su3_rhmd_hisq.out", "delta S = -1.", "delta S = nan\n-1.", "not a finite number: .*delta S"),
        ("npb.cg.out", "Zeta is ", "Zeta is NaN ", "not a finite number: .*Zeta"),
        ("likwid.triad.out", "MFlops/s:\t", "MFlops/s:\tinf\t", "not a finite number: .*inf"),
        ("ior.out", '"bwMiB": 2201.5899', '"bwMiB": Infinity', "write: inf MiB/s in 0.0145 s are not"),
        ("mdtest.out", "mdtest-4.0.0", "mdtest-3.3.0", "version 3.3.0 prints other tables"),
        ("stress-ng.vm.out", "-version: 0.15", "-version: 0.14", "version 0.14.06 may count other"),
        ("namd.water.out", "for Linux", "from Linux", "no version line as versions 2.9 to 3.0"),
        ("mpip.wrf-12-steps.out", ": 3.5.0", ": 2.8.2", "version 3.4 or 3.5"),
        ("milc.su3_rhmd_hisq.out", "OK converged", "NOT converged", "NOT converged"),
        ("milc.su3_rhmd_hisq.out", "delta S = -1", "delta S = -", "changes of the action"),
        ("perftest.send_lat.out", "Mtu             : 1024", "Mtu             : 1000", "MTU"),
        ("perftest.send_lat.out", "t_typical[usec]", "t_typical[msec]", "column headers of latency"),
        ("perftest.read_lat-each.out", ": 1024", ": 2048", "for 64 bytes is not like"),
        ("perftest.read_lat-each.out", "324.04", "-nan  ", "'-nan' is not a finite number"),
        ("stream.out", "Solution Validates", "Failed Validation\nSolution Validates", "Failed Validation"),
        ("stream.out", "25798.5", "25798.5 1", "the row of triad has 5 columns, not 4"),
        ("netpipe.pingpong.out", "0.00000171\n", "0.00000171", "NetPIPE output: the last row is cut off"),
        ("osu.latency.out", " 405.89\n", " 405", "OSU output: line .. is cut off"),
        ("perftest.send_lat.out", "9.46 ", "", "perftest output: a row of latency has 8 columns, not 9"),
        ("namd.water.out", "Info: 10125 ATOMS", "Charm++> Running in SMP mode: 2", "without SMP"),
        ("namd.water.out", "Info: 10125 ATOMS", "ERROR: lost\nInfo: 10125 ATOMS", "output: line 113: ERROR"),
        ("namd.water.out", "WallClock: 6.643943", "WallClock: 0.000000", "NAMD output: wall clock: 0.000"),
        ("namd.water.out", "\nENERGY:     150 ", "\nENERGY:     100 ", "energies of step 100 are there"),
        ("namd.water.out", "\nENERGY:     150 ", "\nENERGY: 1   150 ", "energies, the header"),
        ("wrf.em_b_wave.out", "DATE = 0001-01-01", "DATE = 0001-13-01", "output: start date: '0001-13-01"),
        ("wrf.em_b_wave.out", "0001-01-01_00:20:00 on", "0001-13-01_00:20:00 on", "output: line .*: '0001"),
        ("lammps.lj.out", "95.6% CPU use", "0.0% CPU use", "LAMMPS output: CPU use: 0.0 is not above"),
        ("mpip.wrf-12-steps.out", "@ Version", "@--- MPI Time\n@ Version", "mpiP output: section 'MPI Time'"),
        ("milc.su3_rhmd_hisq.out", "RUNNING COM", "Termination: node 0, status = 1\nRUNNING COM", "Termi"),
        ("milc.su3_rhmd_hisq.out", "RUNNING COM", "Time = x\nRUNNING COM", "MILC output: line 'Time ='"),
        ("hpcc.out", "0.0035214 ...... PASSED", "35.214 ...... FAILED", "residual"),
    ],
)  # fmt: skip
def test_a_damaged_output_is_refused_with_its_reason(name, good, bad, message):
    text = read(name)
    assert good in text
    with pytest.raises(OutputError, match=message) as error:
        PARSERS[name](text.replace(good, bad, 1))
    # It names its program.
    assert not str(error.value).startswith("None ")


@pytest.mark.parametrize(
    ("name", "pattern", "other", "message"),
    [
        ("namd.water.out", r"^ENERGY:.*\n", "", "no energies"),
        ("namd.water.out", r"^(TCL: [MR]|Info: NUMBER OF).*\n", "", "no number of steps as versions"),
        ("wrf.em_b_wave.out", r"^Timing for main.*\n", "", "0 steps, the last at no time, completed at 0001"),
        ("wrf.em_b_wave.out", r"(_00:20.* on .*: +)\S+\b", r"\g<1>0.00000", "step at 0001-01-01_00:20:00:"),
    ],
)  # fmt: skip
def test_an_output_without_a_part_is_refused_with_its_reason(name, pattern, other, message):
    text, count = re.subn(pattern, other, read(name), flags=re.MULTILINE)
    assert count
    with pytest.raises(OutputError) as error:
        PARSERS[name](text)
    assert f" output: {message}" in str(error.value)


def test_a_wrf_run_that_did_not_simulate_the_time_that_was_asked_for_is_refused():
    """Builds with OpenMP do not print when they completed: a lost step at the end shows only so."""
    text = read("corpus/wrf/3.8.1-dm+sm.out")
    assert wrf.parse(text, 360).end == "2001-10-25_00:06:00"
    lost = re.sub("(?m)^Timing for main: time 2001-10-25_00:06:00 .*\n", "", text)
    assert wrf.parse(lost).end == "2001-10-25_00:04:48"
    with pytest.raises(OutputError, match=r"0\.08 h were simulated, to .*; asked for 0\.1 h"):
        wrf.parse(lost, 360)


@pytest.mark.parametrize(
    ("line", "version"),
    [
        # Lines of public logs of OpenCFD's builds, then of the Foundation's.
        ("Build  : _8993af73-20221106 OPENFOAM=2206 patch=221104 version=2206", "2206"),
        ("Build  : 51ed7a6034-20230103 OPENFOAM=2212 version=v2212", "2212"),
        ("Build  : v1906 OPENFOAM=1906", "1906"),
        ("Build  : v1712", "1712"),
        ("Build  : v1612+", "1612+"),
        ("Build  : 2.4.0-f0842aea0e77", "2.4.0"),
        ("Build  : 4.x-1214e6ab8a9f", "4.x"),
        ("Build  : 7", "7"),
        ("Build  : 10-c4cf895ad8fa", "10"),
        ("Build  : dev-f3775ac96129", "dev"),
    ],
)
def test_the_build_of_openfoam_is_read_as_others_print_it(line, version):
    text = re.sub(r"^Build .*$", line, read("openfoam.out"), flags=re.MULTILINE)
    assert openfoam.parse(text, steps=10).version == version
    # The Foundation's versions from 9 on print the unit of the time.
    with_unit = re.sub(r"^(Time = \S+)$", r"\1s", text, flags=re.MULTILINE)
    assert with_unit != text
    assert openfoam.parse(with_unit, steps=10) == openfoam.parse(text, steps=10)


@pytest.mark.parametrize(
    "version",
    ["2.9", "2.14", "2.14b1", "3.0", "3.0.2", "3.0alpha9", "Git-2021-06-06", "Git-2024-06-05-9f3f1bc"],
)
@pytest.mark.parametrize(
    "end",
    [
        "[Partition 0][Node 0] End of program",
        "End of program",
        "Program finished.",
        "Program finished.\n[Partition 0][Node 0] End of program",
        "[Partition 0][Node 0] End of program\nProgram finished.",
    ],
)
def test_versions_and_ends_of_namd_are_read(version, end):
    text = read("namd.water.out")
    text = re.sub(r"^Info: NAMD \S+ ", f"Info: NAMD {version} ", text, count=1, flags=re.MULTILINE)
    run = namd.parse(text.replace("[Partition 0][Node 0] End of program", end))
    assert (run.version, run.atoms) == (version, 10125)


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("pgbench (16.2)", "16.2"),
        ("pgbench (19beta4)", "19beta4"),
        ("pgbench (18rc1)", "18rc1"),
        ("pgbench (20devel)", "20devel"),
        ("pgbench (17.2 (Homebrew))", "17.2"),
        ("pgbench (15.5 (Ubuntu 15.5-1.pgdg22.04+1))", "15.5"),
        ("pgbench (16.4 - Percona Server for PostgreSQL 16.4.1)", "16.4"),
    ],
)
def test_versions_of_pgbench_are_read_with_what_packages_add(printed, version):
    text = re.sub(r"\A.*", printed, read("pgbench.peak.out"))
    assert pgbench.parse(text).version == version


def test_stream_without_openmp_is_refused():
    text = re.sub(r"^Number of Threads.*\n", "", read("stream.out"), flags=re.MULTILINE)
    with pytest.raises(OutputError, match=r"no threads requested \(OpenMP\) as versions 5.9 and 5.10"):
        stream.parse(text)


def test_a_rate_that_contradicts_the_measured_latency_of_pgbench_is_refused():
    text = read("corpus/pgbench/15.4-ubuntu-progress.out")
    with pytest.raises(OutputError, match=r"638.572 a second of 18.235 ms keep 11.64 of 8 clients busy"):
        pgbench.parse(text.replace("tps = 438.571637", "tps = 638.571637"))


def test_a_table_of_osu_may_have_another_type_of_data_below_its_header():
    text = read("corpus/osu/7.2-hpcx-bw.out")
    other = text.replace("# Datatype: MPI_CHAR.", "# Datatype: MPI_INT.")
    assert other != text
    assert osu.parse(other, 1, 4) == osu.parse(text, 1, 4)


def test_a_parameter_of_ior_with_two_values_that_nobody_reads_is_left_out():
    text = read("ior.out")
    run = ior.parse(text.replace('"refnum": 0', '"refnum": 0, "refnum": 1', 1))
    assert "refnum" not in run.parameters
    assert run.parameters == {
        name: value for name, value in ior.parse(text).parameters.items() if name != "refnum"
    }


def test_notes_before_the_json_of_fio_may_have_braces():
    text = read("fio.out")
    assert fio.parse("fio: warning {x}\n" + text) == fio.parse(text)


def test_a_restart_of_wrf_begins_at_the_date_of_its_file():
    """Versions from 4.2 on print the start of the first run beside it."""
    text = read("corpus/wrf/3.8.1-dm+sm-restart.out")
    first = "  SIMULATION START DATE = 2001-10-24_00:00:00\n"
    begun = text.replace("Timing for main", f"{first}Timing for main", 1)
    assert wrf.parse(begun, 10800) == wrf.parse(text, 10800)
    late = text.replace("wrfrst_d01_2001-10-25_00_00_00", "wrfrst_d01_2001-10-24_23_00_00")
    with pytest.raises(OutputError, match=r"steps are missing: .* from 2001-10-24_23:00:00 to"):
        wrf.parse(late)
