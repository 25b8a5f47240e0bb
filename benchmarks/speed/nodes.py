"""Judging of sessions whose runs take many nodes: seconds and memory by the number of nodes.

    python benchmarks/speed/nodes.py [--nodes 50,400,1000] [--times 5] [--before CHECKOUT] [--limit 60]

Writes sessions whose runs name that many nodes of either side, each with an identity of its own: once with
the hosts of the VMs unknown, and once with them known. `virtqual show` reads each session from outside the
state directory, and hence judges it. A table has the medians of its CPU time and of its largest memory; with
``--before``, those of another checkout in turn with this one, and their ratios. A command that takes longer
than the limit (CPU seconds) is ended, and not repeated. The exit code is 1 if 1,000 nodes take more than 5 s
or 300 MiB, or if both checkouts do not print the same.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from judging import make_identity, read_recorded_run

from virtqual.qualify.concluding import conclude_session
from virtqual.runs import Run
from virtqual.session.log import Begun, Finished, Log
from virtqual.session.session import Head

ROOT = Path(__file__).parents[2]
PAIRS = 18
RUN_S = 60.0
GOAL_NODES, GOAL_S, GOAL_MIB = 1000, 5.0, 300.0


class Spent(NamedTuple):
    """What a command took and printed; nothing if it was ended."""

    seconds: float
    mib: float
    output: bytes


def make_run(base: dict[str, Any], side: str, pair: int, begin: float, nodes: int, value: float) -> Run:
    """Return a run on many nodes; each VM runs on the host that a native node is."""
    (identity,), (software,) = base["identity"].values(), base["software"]
    names = [f"{side}{number:04}" for number in range(nodes)]
    fields = {
        "check": "lammps_loop_time", "side": side, "pair": pair, "start": begin, "end": begin + RUN_S,
        "seconds": RUN_S - 1, "job": f"{pair}{side}", "nodes": names,
        "hosts": {name: f"host{number:04}" for number, name in enumerate(names)},
        "results": [{"metric": "lammps_loop_time", "setting": "made", "values": [value]}],
        "software": [{**software, "node": name} for name in names],
        "identity": {name: make_identity(identity, name) for name in names},
    }  # fmt: skip
    return Run.model_validate({**base, **fields})


def write_session(directory: Path, nodes: int, *, with_hosts: bool) -> None:
    """Write and conclude a session of `PAIRS` pairs, whose runs take this many nodes."""
    directory.mkdir(parents=True)
    log, rng, base = Log(directory), random.Random(1), read_recorded_run()
    head = Head(
        session=directory.name,
        created="2026-01-01T00:00:00Z",
        system="made",
        hypervisor_class="kvm",
        identity={"native": {}, "virtual": {}},
        stack={"name": "made", "hash": "0", "programs": []},
    )
    log.append(Begun(head=head))
    sides = ("native", "virtual")
    runs = {side: make_run(base, side, 0, 0.0, nodes, 30.0) for side in sides}
    for number in range(2 * PAIRS):
        pair, place = divmod(number, 2)
        side, begin = sides[(pair + place) % 2], 1.8e9 + number * RUN_S
        (result,) = runs[side].results
        fields = {
            "pair": pair, "start": begin, "end": begin + RUN_S - 1, "job": str(number),
            "results": (result.model_copy(update={"values": (30 * rng.gauss(1, 0.01),)}),),
        }  # fmt: skip
        if not with_hosts:
            fields["hosts"] = {}
        log.append(Finished(run=runs[side].model_copy(update=fields)))
    conclude_session(log, None)


#: The exit code of `SHOW` at its limit.
ENDED_CODE = 99
#: Runs a command, and prints its CPU seconds and its largest memory, KiB, as the last line on stderr.
SHOW = """
import atexit, os, re, resource, signal, sys, time
from pathlib import Path
from virtqual.cli import app
limit = int(sys.argv.pop(1))
status = Path("/proc/self/status")
resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
def report():
    kib = re.search(r"VmHWM:\\s*(\\d+)", status.read_text())[1]
    print(f"\\n{time.process_time():.3f} {kib}", file=sys.stderr, flush=True)
def end(*_):
    report()
    os._exit(99)
signal.signal(signal.SIGXCPU, end)
atexit.register(report)
app()
"""


def run_show(directory: Path, checkout: Path, limit_s: int) -> Spent:
    """Return what `virtqual show` of a checkout takes for a session, as far as it came within the limit."""
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "COLUMNS": "200"}
    command = [sys.executable, "-c", SHOW, str(limit_s), "show", str(directory)]
    done = subprocess.run(command, env=environment, capture_output=True, check=False, cwd=checkout)
    *doubts, spent = done.stderr.splitlines()
    seconds, kib = map(float, spent.split())
    if done.returncode == ENDED_CODE:
        return Spent(seconds, kib / 1024, b"")
    done.check_returncode()
    return Spent(seconds, kib / 1024, done.stdout + b"".join(doubts))


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", default="50,400,1000")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--before", type=Path, help="another checkout, measured in turn with this one")
    parser.add_argument("--limit", type=int, default=60, help="CPU seconds of a command")
    options = parser.parse_args()
    checkouts = {"now": ROOT} | ({"before": options.before.resolve()} if options.before else {})
    is_missed = False
    print("| nodes | hosts | code | CPU s | MiB | output |\n| ---: | --- | --- | ---: | ---: | --- |")
    with tempfile.TemporaryDirectory() as place:
        os.environ["VIRTQUAL_STATE"] = f"{place}/state"
        for nodes in map(int, options.nodes.split(",")):
            for hosts in ("unknown", "known"):
                directory = Path(place) / f"{nodes}-{hosts}"
                write_session(directory, nodes, with_hosts=hosts == "known")
                spent: dict[str, list[Spent]] = {code: [] for code in checkouts}
                for _ in range(options.times):
                    for code, checkout in checkouts.items():
                        if not spent[code] or spent[code][-1].output:
                            spent[code].append(run_show(directory, checkout, options.limit))
                is_missed |= print_rows(nodes, hosts, spent)
    return int(is_missed)


def print_rows(nodes: int, hosts: str, spent: dict[str, list[Spent]]) -> bool:
    """Print the rows of a session, and return whether a goal is missed."""
    medians = {
        code: [statistics.median(column) for column in zip(*(part[:2] for part in parts), strict=True)]
        for code, parts in spent.items()
    }
    outputs = {part.output for parts in spent.values() for part in parts}
    is_same = len(outputs - {b""}) == 1
    said = ("same" if is_same else "OTHER") + ", one was ended" * (b"" in outputs)
    for code, (seconds, mib) in medians.items():
        print(f"| {nodes:,} | {hosts} | {code} | {seconds:.2f} | {mib:.0f} | {said} |", flush=True)
    if "before" in medians:
        ratios = [before / now for before, now in zip(medians["before"], medians["now"], strict=True)]
        print(f"| {nodes:,} | {hosts} | ratio | {ratios[0]:.1f}x | {ratios[1]:.1f}x | |", flush=True)
    seconds, mib = medians["now"]
    return not is_same or (nodes <= GOAL_NODES and (seconds > GOAL_S or mib > GOAL_MIB))


if __name__ == "__main__":
    sys.exit(main())
