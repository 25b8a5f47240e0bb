"""Two nodes that may be compared, and the faults that make them differ.

``bare.look`` and ``guest.look`` are written by hand in the form of `virtqual identity --script`: a host of
two sockets, and an ESXi guest of the same size that is shown all of it.  ``busy.begin`` and ``busy.end`` were
noted by ``node.sh`` around a run on one of two CPUs while another program kept the other busy.
"""

import re
from pathlib import Path

from made_runs import made_run
from virtqual.identity import Identity, Load, gather, readers
from virtqual.identity.load import between
from virtqual.runs import Result, Run

FAULTS = Path(__file__).parents[2] / "faults/preflight"


def node(name: str, used: str = "", **edits: str) -> Identity:
    """Read a recorded node; each edit is a pattern and what stands in its place."""
    text = (FAULTS / f"{name}.look").read_text(encoding="utf-8")
    for pattern, instead in edits.items():
        text, count = re.subn(pattern, instead, text, flags=re.MULTILINE)
        assert count, pattern
    return readers.read(gather.parse(text), used)


def notes(name: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (FAULTS / name).read_text(encoding="utf-8").splitlines())


def busy() -> Load:
    return between(notes("busy.begin"), notes("busy.end"), own_cpus=1)


def quiet() -> Load:
    """The same run where the neighbour's ticks were idle ones."""
    end = notes("busy.end")
    before = [int(tick) for tick in notes("busy.begin")["cpu_ticks"].split()]
    spent = int(end["cpu_ticks"].split()[0]) - before[0]
    end["cpu_ticks"] = " ".join(
        str(tick + {0: spent, 3: spent}.get(index, 0)) for index, tick in enumerate(before)
    )
    return between(notes("busy.begin"), end, own_cpus=1)


def run(side: str, pair: int, identity: Identity, load: Load | None) -> Run:
    return made_run(
        side,
        pair,
        check="lammps %problem=lj",
        start=100.0 * pair + (50 if side == "virtual" else 0),
        end=100.0 * pair + (90 if side == "virtual" else 40),
        job=f"{pair}{side}",
        nodes=(str(identity.node),),
        results=(Result.scalar("lammps_loop_time", "lj", 2.0),),
        identity={str(identity.node): identity},
        load=load,
        seconds=2.0,
    )
