"""Whole sessions with a planted truth, judged by the code that judges real ones: which verdicts are false?

    . ci/activate && python benchmarks/decision/logs.py SESSION [--sessions N] [--overhead budget|FRACTION]

SESSION is the directory of a finished session whose runs rotate over nodes, such as one of the rehearsed
centre.  Its runs are the templates: nodes, records, binaries and jobs stay as they are, the values are drawn.
Every session is written as a log, read again, judged after each turn after which the decision is tried, and
gets more turns of what is still undecided, as `virtqual qualify` does.  What is planted: the same overhead in
every metric (by default exactly its budget, where a false OVER is likeliest), nodes that differ, and noise.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.progress import track
from scipy import stats

from virtqual.harness import order
from virtqual.references import project_references
from virtqual.runs import Result, Run
from virtqual.session.judge import judge
from virtqual.session.log import Begun, Finished, Log
from virtqual.session.pairing import checks_of
from virtqual.session.session import Head, Session
from virtqual.session.store import load
from virtqual.site.held import Rotation
from virtqual.verdict.rule import LOOKS

# Seconds between the beginnings of two runs of a place.
STEP = 60.0


class Truth(NamedTuple):
    """What is planted; all of it as natural logarithms.

    Attributes
    ----------
    overhead
        Of every metric; None for its budget.
    nodes, runs
        SD of nodes, and of runs of one node.
    """

    overhead: float | None
    nodes: float
    runs: float


class Template(NamedTuple):
    """A finished session, taken apart.

    Attributes
    ----------
    session
        As it was read.
    runs
        One run of each check on each node or set of nodes, by check, side, and place.
    values
        Native values of each series: the median over its runs, size by size.
    """

    session: Session
    runs: dict[str, dict[str, list[Run]]]
    values: dict[str, tuple[float, ...]]

    @classmethod
    def read(cls, directory: Path) -> Template:
        session = load(directory)
        assert isinstance(session, Session)
        first_runs: dict[str, dict[str, dict[tuple[str, ...], Run]]] = defaultdict(lambda: defaultdict(dict))
        values = defaultdict(list)
        for run in session.runs:
            first_runs[run.check][run.side].setdefault(run.nodes, run)
            for result in run.results if run.side == "native" else ():
                values[result.series].append(result.values)
        runs = {
            check: {side: [places[key] for key in sorted(places)] for side, places in sides.items()}
            for check, sides in first_runs.items()
        }
        middle = {
            name: tuple(map(statistics.median, zip(*rows, strict=True))) for name, rows in values.items()
        }
        return cls(session, runs, middle)

    def rotation(self, check: str) -> Rotation:
        """Return among how many places the runs of a check rotate."""
        width = min(map(len, self.runs[check].values()))
        return Rotation(width, width)

    def overhead(self, result: Result, native: Sequence[float]) -> np.ndarray:
        """Return a metric's budget, log units, at each of its sizes."""
        references, values = project_references(), np.array(native)
        budget = references.budget(result.metric, self.session.hypervisor_class, result.setting)
        return budget.limits(references.metrics[result.metric], result.points, values)[0]


class Drawing:
    """One session that is drawn: what its nodes do to each series, and the runs of any turn.

    Parameters
    ----------
    template, truth
        What it is drawn from.
    seed
        Another session for each.
    """

    def __init__(self, template: Template, truth: Truth, seed: int) -> None:
        self.template, self.truth = template, truth
        self.rng = np.random.default_rng(seed)
        self.nodes = defaultdict(lambda: self.rng.normal(0, truth.nodes))

    def runs(self, check: str, turn: int) -> Iterator[Run]:
        """Yield the runs of a check in a turn, each check in hours of its own."""
        sides = self.template.runs[check]
        rotation = self.template.rotation(check)
        began = self.template.session.runs[0].start + 1e5 * list(self.template.runs).index(check)
        first_of_pair = set[int]()
        for slot in order.order_slots(turn, turn, rotation=rotation):
            if slot.warm_up:
                continue
            start = began + STEP * (2 * turn + (slot.pair in first_of_pair))
            first_of_pair.add(slot.pair)
            nodes = order.choose_nodes(slot, [run.nodes for run in sides[slot.side]], rotation)
            run = next(run for run in sides[slot.side] if run.nodes == nodes)
            new = {
                "pair": slot.pair,
                "turn": turn,
                "start": start,
                "end": start + STEP / 2,
                "job": f"{check} {slot}",
                "results": tuple(self._result(run, result) for result in run.results),
            }
            yield run.model_copy(update=new)

    def _result(self, run: Run, result: Result) -> Result:
        metric = project_references().metrics[result.metric]
        values = self.template.values[result.series]
        cost = self.nodes[run.nodes, result.series] + self.rng.normal(0, self.truth.runs)
        if run.side == "virtual":
            planted = self.truth.overhead
            cost = cost + (self.template.overhead(result, values) if planted is None else planted)
        factors = np.exp(cost if metric.better == "lower" else -cost)
        return result.model_copy(update={"values": tuple((np.array(values) * factors).tolist())})


def judged(template: Template, truth: Truth, seed: int) -> dict[str, str]:
    """Return the outcome of each series of a session that is drawn, written, read and judged to its end."""
    drawing, session = Drawing(template, truth, seed), template.session
    with tempfile.TemporaryDirectory() as directory:
        log = Log(Path(directory))
        log.append(
            Begun(head=Head.model_validate(session.model_dump(by_alias=True, include=set(Head.model_fields))))
        )
        turns = dict.fromkeys(template.runs, 0)
        turns_needed = dict.fromkeys(template.runs, LOOKS[0])
        while turns_needed:
            for check, last in turns_needed.items():
                for turn in range(turns[check], last):
                    for run in drawing.runs(check, turn):
                        log.append(Finished(run=run))
                turns[check] = last
            read = load(Path(directory))
            assert isinstance(read, Session)
            verdict = judge(read).verdict
            assert verdict is not None
            checks = checks_of(read.runs)
            turns_needed = {}
            for need in verdict.needs:
                check = checks[need.series]
                last = math.ceil((need.last + 1) / template.rotation(check).width)
                turns_needed[check] = max(turns_needed.get(check, 0), last)
    return {series_verdict.series: series_verdict.outcome.name for series_verdict in verdict.verdicts}


def main() -> int:
    """Draw sessions and judge them; 1 where more than 1 % have a false OVER."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("session", type=Path, help="directory of a finished session")
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--overhead", type=float, help="a fraction; the budget of each metric if not given")
    parser.add_argument("--nodes", type=float, default=0.02, help="SD of nodes, a fraction (0.02)")
    parser.add_argument(
        "--runs", type=float, default=0.015, help="SD of runs of one node, a fraction (0.015)"
    )
    options = parser.parse_args()
    template = Template.read(options.session)
    overhead = None if options.overhead is None else math.log1p(options.overhead)
    judge_drawing = partial(judged, template, Truth(overhead, options.nodes, options.runs))
    over, outcomes = 0, defaultdict(Counter)
    with ProcessPoolExecutor() as pool:
        for verdicts in track(
            pool.map(judge_drawing, range(options.sessions)), "judging", total=options.sessions
        ):
            over += "OVER" in verdicts.values()
            for name, outcome in verdicts.items():
                outcomes[name][outcome] += 1
    for name, counted in outcomes.items():
        print(f"  {name:44s} {', '.join(f'{count} {outcome}' for outcome, count in counted.most_common())}")
    high = stats.beta.ppf(0.95, over + 1, options.sessions - over)
    print(f"sessions with OVER: {over} of {options.sessions}, {high:.2%} at most (95 %)")
    return int(overhead is None and over > 0.01 * options.sessions)


if __name__ == "__main__":
    sys.exit(main())
