"""The same histories through Apache Otava, in an environment of its own: who finds what?

    . ci/activate && python benchmarks/history/beside_otava.py [--histories 200] [--margin 0.03]

Otava (https://otava.apache.org) sees virtual/native of each session, in order, with its defaults: windows of
50, p of 0.001.  It knows nothing of builds, of errors, or of how many metrics there are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

import numpy as np
from simulated import BUILDS, METRICS, NIGHTS, SESSIONS, history

from virtqual import paths
from virtqual.history.change_points import Changes, changes

OTAVA = "apache-otava==0.8.0"
#: Reads lists of values, one a line, and prints where each changes.
INNER = """
import json, sys
from otava.analysis import compute_change_points
for line in sys.stdin:
    found, _ = compute_change_points(json.loads(line), window_len=50, max_pvalue=0.001, min_magnitude=0.0)
    print(json.dumps([int(one.index) for one in found]))
"""


def otava(series: list[np.ndarray]) -> list[list[int]]:
    """Return the change points of each series of ln(virtual/native)."""
    place = paths.state() / "otava"
    python = place / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", OTAVA], check=True)
    lines = "".join(json.dumps(np.exp(one).tolist()) + "\n" for one in series)
    done = subprocess.run([str(python), "-c", INNER], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    """Print what either finds."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--histories", type=int, default=200)
    parser.add_argument("--margin", type=float, default=0.03)
    asked = parser.parse_args()
    rng = np.random.default_rng(1)
    builds = np.repeat(np.arange(BUILDS), SESSIONS)
    nothing = np.zeros(len(builds))
    many = asked.histories

    def shares(name: str, ours: list[bool], theirs: list[bool]) -> None:
        print(f"{name}: virtqual {np.mean(ours):.1%}, Otava {np.mean(theirs):.1%} of {many}", flush=True)

    quiet = [[history(rng, builds, nothing, nothing) for _ in range(METRICS)] for _ in range(many)]
    theirs = otava([one.log for each in quiet for one in each])
    shares(
        "nothing changed, a step or drift on any metric",
        [any(_any(changes(one, METRICS)) for one in each) for each in quiet],
        [any(theirs[k * METRICS : (k + 1) * METRICS]) for k in range(many)],
    )
    at = rng.integers(2, BUILDS - 2, many)
    stepped = [history(rng, builds, (builds >= b) * (asked.margin + 0.02), nothing) for b in at]
    ours = [[int(builds[step.at]) for step in changes(one, METRICS).steps] for one in stepped]
    theirs = otava([one.log for one in stepped])
    shares(
        f"a step of {asked.margin + 0.02:.0%}, at its build and nowhere else",
        [found == [b] for found, b in zip(ours, at, strict=True)],
        [found == [b * SESSIONS] for found, b in zip(theirs, at, strict=True)],
    )
    nights, of = np.arange(NIGHTS), np.zeros(NIGHTS, dtype=np.int64)
    drifting = [history(rng, of, 0.001 * nights, np.zeros(NIGHTS)) for _ in range(many)]
    shares(
        f"a drift of 0.1 % a night, any word of it by night {NIGHTS}",
        [_any(changes(one, METRICS)) for one in drifting],
        [bool(found) for found in otava([one.log for one in drifting])],
    )


def _any(found: Changes) -> bool:
    return bool(found.steps) or found.drift is not None


if __name__ == "__main__":
    main()
