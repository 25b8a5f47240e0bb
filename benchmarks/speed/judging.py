"""Growth of the time that judging a session takes with the number of its runs.

    python benchmarks/speed/judging.py [--runs 400,800,1600,12800] [--times 5]

Judges made sessions whose runs carry the identity, software and load of a recorded run, each a copy of its
own. A table shows CPU seconds (the median) and their ratio per doubling of the runs: 2.0 is linear growth.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from virtqual.runs import Run
from virtqual.session.judge import judge
from virtqual.session.log import Log
from virtqual.session.session import Session

RECORDED = Path(__file__).parents[2] / "tests/sessions/kvm-within.jsonl.gz"
RUN_S = 60.0
MAX_JUDGING_S = 30.0
SCALARS = ("lammps_loop_time", "namd_elapsed", "npb_is", "npb_cg", "hpl", "dgemm", "fft", "memory_triad")
CURVES = ("mpi_latency", "osu_allreduce")
SIZES = [2.0**power for power in range(23)]


def read_recorded_run() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        log = Log(Path(directory))
        log.path.write_bytes(gzip.decompress(RECORDED.read_bytes()))
        return log.session().runs[0].model_dump(mode="json", by_alias=True)


def make_identity(identity: dict[str, Any], node: str) -> dict[str, Any]:
    """Return the identity of a node of a kind of its own: firmware keeps more or less memory for itself."""
    memory = {**identity["memory"], "total_mib": identity["memory"]["total_mib"] + int(node[-4:])}
    return {**identity, "node": node, "boot": f"boot of {node}", "memory": memory}


def make_session(
    turns: int, nodes: int = 1, checks: int = 1, width: int = 1, *, with_hosts: bool = True
) -> Session:
    """Return a session of 2 x turns x nodes x checks runs, each of as many nodes as `width` says.

    Several VMs lie on hosts of their own, which are unknown unless `with_hosts` is set.
    """
    base, rng = read_recorded_run(), random.Random(1)
    (identity,), (software,) = base["identity"].values(), base["software"]
    metrics = SCALARS[:1] if checks == 1 else (SCALARS + CURVES)[:checks]
    runs, clock = [], 1.8e9
    for metric in metrics:
        points = SIZES if metric in CURVES else []
        for turn in range(turns):
            for side in ("native", "virtual") if turn % 2 == 0 else ("virtual", "native"):
                for place in range(nodes):
                    number = (place + turn) % nodes if side == "virtual" else place
                    names = [f"{side}{number * width + index:04}" for index in range(width)]
                    values = [30 * rng.gauss(1, 0.01) for _ in points or [0]]
                    result = {"metric": metric, "setting": "made", "points": points, "values": values}
                    fields = {
                        "check": metric, "side": side, "pair": turn * nodes + place, "turn": turn,
                        "start": clock, "end": clock + RUN_S, "seconds": RUN_S - 1, "job": str(len(runs)),
                        "nodes": names, "results": [result],
                        "hosts": {name: name if nodes > 1 else "host" for name in names if with_hosts},
                        "software": [{**software, "node": name} for name in names],
                        "identity": {name: make_identity(identity, name) for name in names},
                    }  # fmt: skip
                    runs.append(Run.model_validate_json(json.dumps({**base, **fields})))
                clock += RUN_S
    return Session(
        session="made",
        created="2026-01-01T00:00:00Z",
        system="made",
        hypervisor_class="kvm",
        identity={"native": {}, "virtual": {}},
        stack={"name": "made", "hash": "0", "programs": []},
        runs=runs,
    )


#: Sizes of a session by its number of runs.
CASES = {
    "1 series, 1 pair of nodes, more turns": lambda runs: {"turns": runs // 2},
    "1 series, 18 turns, more nodes": lambda runs: {"turns": 18, "nodes": runs // 36},
    "1 series, 64 nodes a side, more turns": lambda runs: {"turns": runs // 128, "nodes": 64},
    "10 checks, 1 pair of nodes, more turns": lambda runs: {"turns": runs // 20, "checks": 10},
    "10 checks, 18 turns, more nodes": lambda runs: {"turns": 18, "nodes": runs // 360, "checks": 10},
}


def measure_judging(session: Session, times: int) -> float:
    """Return the median CPU seconds of judging a session; it is not judged again after `MAX_JUDGING_S`."""
    spent: list[float] = []
    while len(spent) < times and sum(spent) < MAX_JUDGING_S:
        begin = time.process_time()
        judge(session)
        spent.append(time.process_time() - begin)
    return statistics.median(spent)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", default="400,800,1600,12800")
    parser.add_argument("--times", type=int, default=5)
    arguments = parser.parse_args()
    judge(make_session(4))
    for case, compute_sizes in CASES.items():
        print(f"{case}\n{'runs':>8} {'seconds':>9} {'a doubling':>11}", flush=True)
        before = None
        for run_count in map(int, arguments.runs.split(",")):
            session = make_session(**compute_sizes(run_count))
            runs, seconds = len(session.runs), measure_judging(session, arguments.times)
            ratio = ""
            if before:
                ratio = f"{(seconds / before[1]) ** (1 / math.log2(runs / before[0])):.2f}x"
            print(f"{runs:>8,} {seconds:>9.3f} {ratio:>11}", flush=True)
            before = runs, seconds


if __name__ == "__main__":
    main()
