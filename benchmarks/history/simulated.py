"""Simulated histories whose truth is known: how often are steps and drifts found, and found in vain?

    . ci/activate && python benchmarks/history/simulated.py [--histories 1000] [--margin 0.03]

Histories of 12 builds with three sessions each, 11 metrics, and a standard error of 1.4 % a session, known
from four pairs.  A step is one of margin + 2 % on one metric, at a build that has two or more after it.
"""

from __future__ import annotations

import argparse

import numpy as np

from virtqual.history.builds import shrunk
from virtqual.history.change_points import Changes, History, changes

BUILDS, SESSIONS, METRICS, ERROR, PAIRS = 12, 3, 11, 0.014, 4
NIGHTS = 50


def history(
    rng: np.random.Generator, builds: np.ndarray, virtual: np.ndarray, native: np.ndarray, boots: float = 0.0
) -> History:
    """Return a history of what each side costs (shape (n,)), with the noise of its sessions."""
    count = len(builds)
    spread = ERROR * np.sqrt(PAIRS)
    own = spread**2 * rng.chisquare(PAIRS - 1, count) / (PAIRS - 1)
    # What the machine does from night to night moves both sides alike.
    night = rng.normal(0, 0.02, count)
    log = virtual - native + rng.normal(0, ERROR, count) + rng.normal(0, boots, count)
    variance = shrunk(own, np.full(count, PAIRS)) / PAIRS
    sides = native + night, native + night + log
    return History(builds, log, variance, *sides, np.arange(count, dtype=np.int64))


def main() -> None:
    """Print what is found."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--margin", type=float, default=0.03)
    parser.add_argument("--boots", type=float, default=0.0)
    asked = parser.parse_args()
    rng = np.random.default_rng(1)
    builds = np.repeat(np.arange(BUILDS), SESSIONS)
    nothing = np.zeros(len(builds))

    def judged(virtual: np.ndarray, native: np.ndarray = nothing, of: np.ndarray = builds) -> Changes:
        return changes(history(rng, of, virtual, native, asked.boots), METRICS)

    many = range(asked.histories)

    def share(hits: int) -> str:
        return f"{hits} of {asked.histories} ({hits / asked.histories:.1%})"

    false = drifts = 0
    for _ in many:
        found = [judged(nothing) for _ in range(METRICS)]
        false += any(one.steps for one in found)
        drifts += any(one.drift for one in found)
    print(f"nothing changed: a step in {share(false)}, a drift in {share(drifts)}", flush=True)
    right = late = 0
    for _ in many:
        at = int(rng.integers(2, BUILDS - 2))
        found = judged((builds >= at) * (asked.margin + 0.02))
        right += [(builds[one.at], one.cause) for one in found.steps] == [(at, "build")]
        late += found.drift is not None
    print(f"step of {asked.margin + 0.02:.0%}: laid to its build in {share(right)}; a drift in {share(late)}")
    upgraded = (np.arange(len(builds)) >= len(builds) // 2) * 0.15
    both = sum(any(judged(-upgraded, -upgraded).steps for _ in range(METRICS)) for _ in many)
    print(f"machine upgraded, both sides 15 % faster: a step in {share(both)}", flush=True)
    native = [judged(nothing, -upgraded).steps for _ in many]
    named = sum(len(steps) == 1 and steps[0].cause != "build" for steps in native)
    print(f"native side alone 15 % faster: named as the machine's in {share(named)}", flush=True)
    nights = np.arange(NIGHTS)
    of = np.zeros(NIGHTS, dtype=np.int64)
    drifting = [judged(0.001 * nights, np.zeros(NIGHTS), of) for _ in many]
    seen = [one.drift.noticed for one in drifting if one.drift]
    stepped = sum(bool(one.steps) for one in drifting if not one.drift)
    print(
        f"drift of 0.1 % a night: noticed by night {NIGHTS} in {share(len(seen))}, "
        f"in the middle at night {np.median(seen):.0f}; taken for a step in {share(stepped)}"
    )


if __name__ == "__main__":
    main()
