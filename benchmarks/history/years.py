"""Seconds that the history of 1,000 sessions of 200 metrics takes, from their summaries.

    . ci/activate && python benchmarks/history/years.py [--sessions 1000] [--metrics 200] [--of-a-build 10]

Prints medians of five runs, and the ratio to reading the same files as plain JSON.
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

from virtqual.history.builds import make_place
from virtqual.session.log import LOG, Log
from virtqual.session.summary import Summary, file_of, summaries
from virtqual.verdict import Interval, Outcome, Verdict


def write(directory: Path, sessions: int, metrics: int, sessions_a_build: int) -> None:
    """Write simulated summaries; the first metric becomes slower after two fifths of the sessions."""
    rng = np.random.default_rng(1)
    for number in range(sessions):
        logs = 0.05 + rng.normal(0, 0.01, metrics)
        logs[0] += 0.1 * (number >= sessions * 2 // 5)
        verdicts = tuple(
            Verdict(
                metric=f"metric_{index}",
                setting="one node",
                gate="overhead",
                outcome=Outcome.WITHIN,
                unit="s",
                better="lower",
                budget="<= 1.3x (margin 0.1)",
                native=1.0,
                virtual=float(np.exp(log)),
                overhead=Interval.build(float(log), float(log) - 0.02, float(log) + 0.02, "lower"),
                spread=0.02,
                pairs=4,
            )
            for index, log in enumerate(logs)
        )
        place = directory / f"{number:05}"
        place.mkdir()
        (place / LOG).touch()
        summary = Summary(
            # A summary belongs to its session as long as it has the state of its log.
            log=Log(place).state(),
            session=place.name,
            label="",
            created=datetime(2023, 1, 1, 22, tzinfo=UTC) + timedelta(days=number),
            system="site",
            hypervisor_class="kvm",
            hypervisor=f"QEMU {number // sessions_a_build}",
            complete=True,
            runs=8 * metrics,
            outcome="WITHIN",
            exit_code=0,
            conclusion="",
            facts={"hypervisor build": str(number // sessions_a_build)},
            verdicts=verdicts,
        )
        file_of(place).parent.mkdir(exist_ok=True)
        file_of(place).write_text(summary.model_dump_json(by_alias=True) + "\n", encoding="utf-8")


def measure(function: Callable[[], object]) -> float:
    """Return the seconds of a call, the median of five."""
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--metrics", type=int, default=200)
    parser.add_argument("--of-a-build", type=int, default=10, help="sessions of each build")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write(directory, options.sessions, options.metrics, options.of_a_build)
        files = list(directory.glob(".summaries/*.json"))
        plain_s = measure(lambda: [json.loads(file.read_bytes()) for file in files])
        read_s = measure(lambda: list(summaries(directory)))
        nights = [summary for _, summary in summaries(directory) if isinstance(summary, Summary)]
        assert len(nights) == options.sessions
        search_s = measure(lambda: make_place("site", "kvm", nights))
        changed, *unchanged = make_place("site", "kvm", nights).metrics
        assert changed.name.startswith("metric_0 ")
        false_alarms = sum(bool(metric.summary) for metric in unchanged)
    print(f"{options.sessions} sessions of {options.metrics} metrics, medians of five runs")
    print(f"read: {read_s:.2f} s ({read_s / plain_s:.1f} times as long as plain JSON)")
    print(f"search: {search_s:.2f} s; together {read_s + search_s:.2f} s; {false_alarms} false alarms")


if __name__ == "__main__":
    main()
