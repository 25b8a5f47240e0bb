"""Steps and drifts that are found in simulated histories, rightly and in vain.

    . ci/activate && python benchmarks/history/simulated.py [--histories 1000] [--boots 0.01] [--stalls 0.01]
        [--otava]

Histories of 12 builds with three sessions each, 11 metrics, and a standard error of 1.4 % a session, known
from four pairs. A step is one of 5 % on one metric, at a build that has two or more after it. With
``--stalls`` a share of the runs of both sides takes ten times as long. With ``--otava`` Apache Otava
(https://otava.apache.org), in an environment of its own, sees virtual/native of each session in order, with
its defaults: windows of 50, p of 0.001. It knows neither builds, errors, nor the number of metrics.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence

import numpy as np

from virtqual import paths
from virtqual.history.builds import shrink_variances
from virtqual.history.change_points import Changes, History, find_changes

BUILDS, SESSIONS, METRICS, ERROR, PAIRS = 12, 3, 11, 0.014, 4
NIGHTS, STEP, UPGRADE, DRIFT_A_NIGHT = 50, 0.05, 0.15, 0.001
OTAVA = "apache-otava==0.8.0"
#: Reads lists of values, one a line, and prints where each changes.
OTAVA_SCRIPT = """
import json, sys
from otava.analysis import compute_change_points
for line in sys.stdin:
    points, _ = compute_change_points(json.loads(line), window_len=50, max_pvalue=0.001, min_magnitude=0.0)
    print(json.dumps([int(point.index) for point in points]))
"""


def make_history(
    rng: np.random.Generator, builds: np.ndarray, virtual: np.ndarray, native: np.ndarray, boots: float,
    stalls: float = 0.0,
) -> History:  # fmt: skip
    """Return a history of costs of each side (shape (n,)), with the noise of its sessions."""
    count = len(builds)
    runs = rng.normal(0, ERROR * np.sqrt(PAIRS / 2), (2, count, PAIRS))
    runs += np.log(10) * (rng.random(runs.shape) < stalls)
    pairs = runs[1] - runs[0]
    # From night to night the machine changes both sides alike.
    night = rng.normal(0, 0.02, count)
    log = virtual - native + pairs.mean(axis=1) + rng.normal(0, boots, count)
    variance = shrink_variances(pairs.var(axis=1, ddof=1), np.full(count, PAIRS)) / PAIRS
    sides = native + night, native + night + log
    return History(builds, log, variance, *sides, np.arange(count, dtype=np.int64))


def run_otava(histories: Sequence[History]) -> list[list[int]]:
    """Return the change points of each history by Otava."""
    environment = paths.state() / "otava"
    python = environment / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", OTAVA], check=True)
    lines = "".join(json.dumps(np.exp(history.log).tolist()) + "\n" for history in histories)
    command = [str(python), "-c", OTAVA_SCRIPT]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    """Print the shares of histories."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--boots", type=float, default=0.0)
    parser.add_argument("--stalls", type=float, default=0.0)
    parser.add_argument("--otava", action="store_true")
    options = parser.parse_args()
    rng, total = np.random.default_rng(1), options.histories
    builds = np.repeat(np.arange(BUILDS), SESSIONS)
    nothing = np.zeros(len(builds))

    def draw(virtual: np.ndarray, native: np.ndarray = nothing, builds: np.ndarray = builds) -> History:
        return make_history(rng, builds, virtual, native, options.boots, options.stalls)

    def judge(histories: Sequence[History]) -> list[Changes]:
        return [find_changes(history, METRICS) for history in histories]

    def report(name: str, hits: Sequence[bool], otava_hits: Sequence[bool] | None = None) -> None:
        otava = "" if otava_hits is None else f", Otava {np.mean(otava_hits):.1%}"
        print(f"{name}: {np.mean(hits):.1%}{otava}", flush=True)

    sessions = [[draw(nothing) for _ in range(METRICS)] for _ in range(total)]
    answers = [judge(histories) for histories in sessions]
    points = [any(run_otava(histories)) for histories in sessions] if options.otava else None
    report("nothing changed, a step on any metric", [any(a.steps for a in judged) for judged in answers])
    report("nothing changed, a drift on any metric", [any(a.drift for a in judged) for judged in answers])
    is_change = [any(a.steps or a.drift for a in judged) for judged in answers]
    report("nothing changed, any of both", is_change, points)

    changed_builds = rng.integers(2, BUILDS - 2, total)
    histories = [draw((builds >= build) * STEP) for build in changed_builds]
    answers = judge(histories)
    is_right = [
        [(builds[step.at], step.cause) for step in answer.steps] == [(build, "build")]
        for build, answer in zip(changed_builds, answers, strict=True)
    ]
    points = None
    if options.otava:
        pairs = zip(run_otava(histories), changed_builds, strict=True)
        points = [indices == [build * SESSIONS] for indices, build in pairs]
    report(f"step of {STEP:.0%}, laid to its build and to no other", is_right, points)
    report(f"step of {STEP:.0%}, a drift", [answer.drift is not None for answer in answers])

    upgraded = (np.arange(len(builds)) >= len(builds) // 2) * UPGRADE
    sessions = [[draw(-upgraded, -upgraded) for _ in range(METRICS)] for _ in range(total)]
    is_step = [any(answer.steps for answer in judge(histories)) for histories in sessions]
    report(f"machine upgraded, both sides {UPGRADE:.0%} faster, a step", is_step)
    answers = judge([draw(nothing, -upgraded) for _ in range(total)])
    is_named = [len(a.steps) == 1 and a.steps[0].cause != "build" for a in answers]
    report(f"native side alone {UPGRADE:.0%} faster, named as the machine's", is_named)

    nights, one_build = np.arange(NIGHTS), np.zeros(NIGHTS, dtype=np.int64)
    histories = [draw(DRIFT_A_NIGHT * nights, np.zeros(NIGHTS), one_build) for _ in range(total)]
    answers = judge(histories)
    points = [bool(indices) for indices in run_otava(histories)] if options.otava else None
    is_change = [bool(answer.steps or answer.drift) for answer in answers]
    report(f"drift of {DRIFT_A_NIGHT:.1%} a night, noticed by night {NIGHTS}", is_change, points)
    report("  as a drift", [answer.drift is not None for answer in answers])
    noticed = [answer.drift.noticed for answer in answers if answer.drift]
    print(f"  in the middle at night {np.median(noticed):.0f}")


if __name__ == "__main__":
    main()
