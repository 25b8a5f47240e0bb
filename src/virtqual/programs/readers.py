"""Readers of programs' outputs by name, for outputs of which nobody knows what was asked for.

The parsers of this package check an output against what a check asked for. These readers take sizes, orders
and numbers of steps from the output itself. Metrics have the names and units of ``references/metrics`` where
those fit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from virtqual.programs import (
    fio,
    fixed_work,
    hpcc,
    hpl,
    ior,
    lammps,
    likwid,
    milc,
    namd,
    netpipe,
    npb,
    openfoam,
    osu,
    perftest,
    pgbench,
    pointer_chase,
    stream,
    stress_ng,
    wrf,
)
from virtqual.programs.text import OutputError

LOWER: Literal["lower"] = "lower"
HIGHER: Literal["higher"] = "higher"


@dataclass(frozen=True)
class Reading:
    """One metric of a run.

    Attributes
    ----------
    values
        By size, in `axis_unit`; a scalar has the size None.
    """

    metric: str
    setting: str
    unit: str
    better: Literal["lower", "higher"]
    values: dict[float | None, float]
    axis_unit: str = ""


@dataclass(frozen=True)
class Reader:
    """A program whose output can be read.

    Attributes
    ----------
    program
        The program and the versions that are known.
    mark
        Pattern of a line that each run prints once, near its beginning; `recognise` looks for it.
    has_many
        Whether a file may hold several runs, each of which begins at a mark.
    """

    program: str
    mark: str
    read: Callable[[str], list[Reading]]
    has_many: bool = True


def recognise(text: str) -> str | None:
    """Return the name of the reader whose program printed a text, or None; of several, the first program."""
    marks = {
        name: match.start()
        for name, reader in READERS.items()
        if (match := re.search(reader.mark, text, re.MULTILINE | re.ASCII))
    }
    return min(marks, key=lambda name: marks[name]) if marks else None


def read_output(text: str, reader: str) -> list[Reading]:
    """Return the metrics of the output of one run.

    Raises
    ------
    OutputError
        The output is incomplete, wrong or of several runs, or its form is not known.
    """
    runs = read_runs(text, reader)
    if len(runs) != 1:
        raise OutputError(READERS[reader].program, f"has {len(runs)} runs of the same kind: expected one")
    return runs[0]


def read_runs(text: str, reader: str) -> list[list[Reading]]:
    """Return the metrics of each run in an output, in order; raises OutputError as `read_output`.

    Different benchmarks of one program, such as osu_latency and osu_bw, count as one run.
    """
    chosen = READERS[reader]
    text = text.replace("\r\n", "\n")
    begins = [match.start() for match in re.finditer(chosen.mark, text, re.MULTILINE | re.ASCII)]
    if not begins:
        raise OutputError(chosen.program)
    ends = begins[1:] if chosen.has_many else []
    parts = [text[begin:end] for begin, end in zip([0, *ends], [*ends, len(text)], strict=True)]
    runs: list[list[Reading]] = []
    count: Counter[tuple[str, str]] = Counter()
    for part in parts:
        for reading in chosen.read(part):
            number = count[reading.metric, reading.setting]
            count[reading.metric, reading.setting] += 1
            if number == len(runs):
                runs.append([])
            runs[number].append(reading)
    return runs


def _scalar(
    metric: str, setting: str, unit: str, better: Literal["lower", "higher"], value: float
) -> Reading:
    return Reading(metric, setting, unit, better, {None: value})


def _curve(
    metric: str, setting: str, unit: str, better: Literal["lower", "higher"], values: Mapping[int, float]
) -> Reading:
    return Reading(metric, setting, unit, better, {float(size): values[size] for size in values}, "B")


_OSU_METRICS = {
    "Latency": "osu_latency",
    "Multi Latency": "osu_multi_latency",
    "Bandwidth": "osu_bandwidth",
    "Bi-Directional Bandwidth": "osu_bibandwidth",
    "Multiple Bandwidth / Message Rate": "osu_multi_bandwidth",
    "Allreduce Latency": "osu_allreduce",
    "Allgather Latency": "osu_allgather",
    "All-to-All Personalized Exchange Latency": "osu_alltoall",
    "Broadcast Latency": "osu_bcast",
}


def _read_osu(text: str) -> list[Reading]:
    table = osu.parse_table(text)
    name = re.sub(r"(?i) (?:cost )?test$", "", table.benchmark)
    metric = _OSU_METRICS.get(name) or f"osu_{re.sub(r'[^a-z0-9]+', '_', name.lower()).strip('_')}"
    is_time = table.unit == "us"
    setting = f"{table.pairs} pair{'s' * (table.pairs > 1)}" if table.pairs else ""
    values = {size if size is None else float(size): value for size, value in table.values.items()}
    axis = "" if None in values else "B"
    return [Reading(metric, setting, table.unit, LOWER if is_time else HIGHER, values, axis)]


def _read_stream(text: str) -> list[Reading]:
    rates = stream.parse_rates(text)
    return [_scalar(f"memory_{kernel}", "", "MB/s", HIGHER, rate) for kernel, rate in rates.items()]


def _read_hpl(text: str) -> list[Reading]:
    by_variant = hpl.parse_all(text)
    readings = []
    for variant, runs in by_variant.items():
        suffix = f", {variant}" if len(by_variant) > 1 else ""
        for run in runs:
            setting = f"N {run.n}, NB {run.block}, {run.p} x {run.q} processes{suffix}"
            readings.append(_scalar("hpl", setting, "GFLOP/s", HIGHER, run.rate))
    return readings


def _read_hpcc(text: str) -> list[Reading]:
    run = hpcc.parse(text)
    setting = f"N {run.n}, {run.processes} processes"
    rates = (
        ("hpl", "GFLOP/s", run.hpl),
        ("dgemm", "GFLOP/s", run.dgemm),
        ("fft", "GFLOP/s", run.fft),
        ("random_access", "GUP/s", run.random_access),
        ("ptrans", "GB/s", run.ptrans),
    )
    return [_scalar(name, setting, unit, HIGHER, rate) for name, unit, rate in rates]


def _read_npb(text: str) -> list[Reading]:
    run = npb.parse(text)
    own = run.benchmark.lower() in ("is", "cg")
    name = f"npb_{run.benchmark.lower()}" if own else "npb_other"
    setting = f"{run.benchmark} class {run.problem_class}, {run.tasks} tasks"
    return [_scalar(name, setting, "Mop/s", HIGHER, run.rate)]


def _read_lammps(text: str) -> list[Reading]:
    run = lammps.parse(text)
    setting = f"{run.atoms} atoms, {run.steps} steps, {run.tasks} tasks"
    return [_scalar("lammps_loop_time", setting, "s", LOWER, run.loop_time)]


def _read_namd(text: str) -> list[Reading]:
    run = namd.parse(text)
    setting = f"{run.atoms} atoms, {run.last} steps, {run.processes} processors"
    return [_scalar("namd_elapsed", setting, "s", LOWER, run.wall_clock)]


def _read_wrf(text: str) -> list[Reading]:
    run = wrf.parse(text)
    setting = f"{len(run.seconds)} steps to {run.end}, {run.tasks[0]} x {run.tasks[1]} tasks"
    return [_scalar("wrf_elapsed", setting, "s", LOWER, run.total)]


def _read_milc(text: str) -> list[Reading]:
    run = milc.parse(text)
    lattice = " x ".join(map(str, run.lattice))
    setting = f"{lattice}, {run.trajectories} trajectories, {run.processes} processes"
    return [_scalar("milc_elapsed", setting, "s", LOWER, run.time)]


def _read_openfoam(text: str) -> list[Reading]:
    run = openfoam.parse_time(text)
    setting = f"{run.solver}, {run.steps} steps, {run.processes} processes"
    return [_scalar("openfoam_elapsed", setting, "s", LOWER, run.clock_time)]


def _read_fio(text: str) -> list[Reading]:
    readings = []
    for name, job in fio.parse(text).jobs.items():
        readings += [
            _scalar("fio_iops", name, "IO/s", HIGHER, job.operations),
            _scalar("fio_latency", name, "us", LOWER, job.latency),
            _scalar("fio_latency_p99", name, "us", LOWER, job.latency_p99),
        ]
    return readings


def _read_ior(text: str) -> list[Reading]:
    rates, tasks = ior.parse_rates(text)
    setting = f"{tasks} tasks" if tasks else ""
    return [_scalar(f"ior_{access}", setting, "MB/s", HIGHER, rate) for access, rate in rates.items()]


def _read_mdtest(text: str) -> list[Reading]:
    run = ior.parse_mdtest(text)
    setting = f"{run.files} files, {run.tasks} tasks"
    return [_scalar(f"mdtest_{name}", setting, "files/s", HIGHER, rate) for name, rate in run.rates.items()]


def _read_perftest(text: str) -> list[Reading]:
    run = perftest.parse_any(text)
    pairs = f", {run.queue_pairs} queue pairs" if run.queue_pairs > 1 else ""
    setting = f"{run.connection} on {run.link}{pairs}"
    metric = f"rdma_{run.operation}_{run.kind}"
    if run.kind == "latency":
        return [_curve(metric, setting, "us", LOWER, run.columns["typical"])]
    return [_curve(metric, setting, "MB/s", HIGHER, run.columns["average"])]


def _read_netpipe(text: str) -> list[Reading]:
    sizes = [int(row.split()[0]) for row in text.split("\n") if re.match(r" *\d{1,18} ", row)]
    rows = netpipe.parse(text, min(sizes), max(sizes))
    return [_curve("mpi_latency", "NetPIPE", "us", LOWER, {row.size: row.time for row in rows})]


def _read_pgbench(text: str) -> list[Reading]:
    run = pgbench.parse_rate(text)
    setting = f"{run.script}, scale {run.scale}, {run.clients} clients"
    return [_scalar("db_throughput", setting, "tx/s", HIGHER, run.rate)]


def _read_stress_ng(text: str) -> list[Reading]:
    run = stress_ng.parse(text)
    metric = f"stress_ng_{run.stressor.replace('-', '_')}"
    setting = f"version {run.version}"
    return [_scalar(metric, setting, "operations/s", HIGHER, run.operations / run.time)]


def _read_likwid(text: str) -> list[Reading]:
    run = likwid.parse(text)
    setting = f"{run.kernel}, {run.size} B, {run.threads} threads"
    return [_scalar("likwid_bandwidth", setting, "MB/s", HIGHER, run.bandwidth)]


def _read_fixed_work(text: str) -> list[Reading]:
    run = fixed_work.parse(text)
    setting = f"{run.steps} steps, {len(run.means)} CPUs"
    tail: dict[float | None, float] = {float(n): time for n, time in run.exceeded.items()}
    return [
        _scalar("work_mean", setting, "us", LOWER, sum(run.means.values()) / len(run.means)),
        Reading("work_tail", setting, "us", LOWER, tail, "pieces"),
    ]


def _read_pointer_chase(text: str) -> list[Reading]:
    run = pointer_chase.parse(text)
    times = {entry.size: entry.time for entry in run.sets}
    return [_curve("memory_latency", f"pages {run.pages}", "ns", LOWER, times)]


#: By the name that a user writes.
READERS: Mapping[str, Reader] = {
    "osu": Reader("OSU micro-benchmarks 3 to 7", osu.TITLE, _read_osu),
    "stream": Reader("STREAM 5", r"^ ?STREAM version \$Revision: 5", _read_stream),
    "hpcc": Reader(hpcc.NAME, r"^This is the DARPA/DOE HPC Challenge Benchmark", _read_hpcc),
    "hpl": Reader(hpl.NAME, r"^HPLinpack \d|^T/V +N +NB +P +Q +Time +Gflops", _read_hpl, has_many=False),
    "npb": Reader(npb.NAME, r"^ +NAS Parallel Benchmarks?\b.* [A-Z]{2} Benchmark *$", _read_npb),
    "lammps": Reader(lammps.NAME, r"^LAMMPS \([^)]+\)$", _read_lammps),
    "namd": Reader(namd.NAME, r"^Info: NAMD +\S+ +for ", _read_namd),
    "wrf": Reader(wrf.NAME, r"^ *WRF V[34][\d.]+ MODEL$", _read_wrf, has_many=False),
    "milc": Reader(milc.NAME, r"^MIMD version 7", _read_milc, has_many=False),
    "openfoam": Reader(openfoam.NAME, r"^Build +: ", _read_openfoam, has_many=False),
    "fio": Reader(fio.NAME, r"\"fio version\" *:", _read_fio, has_many=False),
    "ior": Reader(ior.IOR, r"^ *\"Version\" *: *\"\d|^IOR-\d", _read_ior, has_many=False),
    "mdtest": Reader(ior.MDTEST, r"^mdtest-\S+ was launched", _read_mdtest, has_many=False),
    "perftest": Reader(
        perftest.NAME, r"^ +(?:RDMA_)?(?:Read|Send|Write) (?:Latency|BW) Test$", _read_perftest
    ),
    "netpipe": Reader(netpipe.NAME, r"\A *\d{1,18} \d+\.\d{6} +\d+\.\d{8}$", _read_netpipe, has_many=False),
    "pgbench": Reader(pgbench.NAME, r"^transaction type: ", _read_pgbench, has_many=False),
    "stress-ng": Reader(stress_ng.NAME, r"^ {6}stress-ng-version: ", _read_stress_ng, has_many=False),
    "likwid": Reader(likwid.NAME, r"^LIKWID MICRO BENCHMARK$", _read_likwid, has_many=False),
    "fixed-work": Reader(fixed_work.NAME, r"\Afixed_work \S+ steps", _read_fixed_work, has_many=False),
    "pointer-chase": Reader(
        pointer_chase.NAME, r"\Apointer_chase \S+ pages", _read_pointer_chase, has_many=False
    ),
}
