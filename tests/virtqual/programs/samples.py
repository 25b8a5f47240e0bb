"""Every recorded output with the parser that reads it; other people's outputs are in the `corpus`.

Own text in the format of a version, because no run was at hand: ``stream.5-9``, ``osu.5-6``, ``hpl`` (2.3),
``perftest.send_lat`` and ``.write_bw`` (4.5, the format of Debian 12's binaries),
``stress-ng.0-19`` (0.19.04).
All others are outputs of real runs, ``osu.latency-tails`` without its column of validation.
"""

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial

from corpus import OUTPUTS, READ

from virtqual.programs import (
    fio,
    fixed_work,
    hpcc,
    hpl,
    ior,
    lammps,
    likwid,
    milc,
    mpip,
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
    web_load,
    wrf,
)
from virtqual.programs.text import compute_checksum

PERFTEST = partial(perftest.parse, sizes=[2**power for power in range(1, 24)])

PARSERS: dict[str, Callable[[str], object]] = {
    "fio.out": fio.parse,
    "fixed_work.out": fixed_work.parse,
    "hpcc.out": hpcc.parse,
    "hpl.detailed.out": hpl.parse,
    "hpl.out": hpl.parse,
    "ior.out": ior.parse,
    "lammps.chain.out": lammps.parse,
    "lammps.chain-no-openmp.out": lammps.parse,
    "lammps.lj.out": lammps.parse,
    "lammps.rhodo.out": lammps.parse,
    "likwid.triad.out": likwid.parse,
    "mdtest.out": ior.parse_mdtest,
    "milc.su3_rhmd_hisq.out": milc.parse,
    "mpip.wrf-12-steps.out": mpip.parse,
    "mpip.wrf-2-steps.out": mpip.parse,
    "namd.water.out": namd.parse,
    "netpipe.pingpong.out": partial(netpipe.parse, smallest=1, largest=4096),
    "npb.cg.out": npb.parse,
    "npb.is-3-4-2.out": npb.parse,
    "npb.is.out": npb.parse,
    "openfoam.out": partial(openfoam.parse, steps=10),
    "openfoam.probe.out": partial(openfoam.parse_probe, steps=10),
    "osu.5-6.out": partial(osu.parse, first=4, last=65536),
    "osu.allreduce.out": partial(osu.parse, first=1, last=2**20),
    "osu.bw.out": partial(osu.parse, first=1, last=2**22),
    "osu.latency-tails.out": partial(osu.parse, first=1, last=8192),
    "osu.latency.out": partial(osu.parse, first=1, last=2**22),
    "osu.mbw_mr.out": partial(osu.parse, first=1, last=4096),
    "perftest.read_lat-each.out": partial(perftest.parse_each, sizes=(2, 64, 1024, 4096, 16384, 65536)),
    "perftest.send_lat.out": PERFTEST,
    "perftest.write_bw.out": PERFTEST,
    "pgbench.out": pgbench.parse,
    "pgbench.peak.out": pgbench.parse,
    "pointer_chase.out": pointer_chase.parse,
    "stream.5-9.out": stream.parse,
    "stream.out": stream.parse,
    "stress-ng.0-19.out": stress_ng.parse,
    "stress-ng.fork.out": stress_ng.parse,
    "stress-ng.vm.out": stress_ng.parse,
    "web_load.out": web_load.parse,
    "wrf.em_b_wave.out": wrf.parse,
}
#: With other people's outputs.
ALL_PARSERS = PARSERS | READ


def read(name: str) -> str:
    return (OUTPUTS / name).read_text(encoding="utf-8")


def parse(name: str) -> object:
    return ALL_PARSERS[name](read(name))


def numbers(value: object) -> Iterator[float]:
    """Yield all numbers of a parser's result in order; names and versions are no numbers."""
    if dataclasses.is_dataclass(value):
        for part in dataclasses.fields(value):
            yield from numbers(getattr(value, part.name))
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from numbers(key)
            yield from numbers(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from numbers(entry)
    elif isinstance(value, int | float):
        yield float(value)


def reseal(output: str) -> str:
    """Return an output of one of our own programs with the checksum of its lines."""
    lines = output[: output.rindex("end ")]
    return f"{lines}end {compute_checksum(lines)}\n"
