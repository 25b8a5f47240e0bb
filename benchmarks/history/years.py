"""How long the history of years takes: 1,000 sessions of 200 metrics, from their summaries.

    . ci/activate && python benchmarks/history/years.py [--sessions 1000] [--metrics 200] [--of-a-build 10]

Prints the median of five runs, of reading and of finding what changed, and the ratio to reading the same
files as plain JSON, all in one process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from virtqual.history.builds import place_of
from virtqual.session.log import LOG, Log
from virtqual.session.summary import Summary, VerdictSummary, file_of, summaries
from virtqual.verdict import Outcome


def write(directory: Path, sessions: int, metrics: int, each: int) -> None:
    """Write the summaries of sessions that nobody ran."""
    rng = np.random.default_rng(1)
    for number in range(sessions):
        build = number // each
        logs = 0.05 + rng.normal(0, 0.01, metrics)
        logs[0] += 0.1 * (number >= sessions * 2 // 5)
        verdicts = tuple(
            VerdictSummary(
                metric=f"metric_{index}",
                setting="one node",
                gate="overhead",
                outcome=Outcome.WITHIN,
                passes=True,
                ratio=float(np.exp(log)),
                better="lower",
                native=1.0,
                virtual=float(np.exp(log)),
                overhead=float(log),
                spread=0.02,
                pairs=4,
            )
            for index, log in enumerate(logs)
        )
        one = Summary(
            session=f"{number:05}",
            label="",
            created=datetime(2023, 1, 1, 22, tzinfo=UTC) + timedelta(days=number),
            system="site",
            hypervisor_class="kvm",
            hypervisor=f"QEMU {build}",
            full=True,
            complete=True,
            runs=8 * metrics,
            outcome="WITHIN",
            exit_code=0,
            conclusion="",
            facts={"hypervisor build": str(build)},
            verdicts=verdicts,
        )
        place = directory / one.session
        place.mkdir()
        (place / LOG).touch()
        # A summary is of its session as long as it has the state of its log.
        summary = one.model_copy(update={"log": Log(place).state()})
        file_of(place).parent.mkdir(exist_ok=True)
        file_of(place).write_text(summary.model_dump_json(by_alias=True) + "\n", encoding="utf-8")


def seconds(what: Callable[[], object]) -> float:
    """Return the median of five runs."""
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        what()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def main() -> None:
    """Print the times."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--metrics", type=int, default=200)
    parser.add_argument("--of-a-build", type=int, default=10, help="sessions of each build")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        there = Path(name)
        write(there, asked.sessions, asked.metrics, asked.of_a_build)
        plain = seconds(lambda: [json.loads(file.read_bytes()) for file in there.glob(".summaries/*.json")])
        read = seconds(lambda: [one for _, one in summaries(there)])
        known = [one for _, one in summaries(there) if isinstance(one, Summary)]
        assert len(known) == asked.sessions
        found = seconds(lambda: place_of("site", "kvm", known))
        (first, *others) = place_of("site", "kvm", known).metrics
        assert first.name.startswith("metric_0 ")
        false = sum(bool(one.summary) for one in others)
        print(f"{asked.sessions} sessions of {asked.metrics} metrics, medians of five runs")
        print(f"read: {read:.2f} s ({read / plain:.1f} times as long as plain JSON)")
        print(f"what changed: {found:.2f} s; both {read + found:.2f} s; {false} metrics found in vain")


if __name__ == "__main__":
    main()
