"""Feed the canaries from the runs of a session: which samples each takes, or why it has none.

A canary is asked of the medians over the pairs that count, and of each pair.  Where too few pairs agree with
the medians, the answer is "not observable": one run or two have made them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from virtqual.identity.cpus import cpu_list
from virtqual.identity.record import Identity, seen
from virtqual.preflight import canaries
from virtqual.preflight.canaries import Canary, State
from virtqual.runs import Run
from virtqual.verdict.pairs import SIDES, Series, Side

# So large a share of the pairs must say what their medians say.
AGREE = 0.75
STATES: tuple[State, ...] = ("missing", "present", "unknown")
# Latencies that an adapter's doorbells show in, by metric and beginning of the setting, and whether an offset
# of the small messages counts: MPI's may be the IOMMU's (R08).
DOORBELLS = {
    ("rdma_send_latency", ""): True,
    ("rdma_write_latency", ""): True,
    ("rdma_read_latency", ""): True,
    ("osu_latency", "two nodes"): False,
}
# MPI over RDMA takes less for a small message between two nodes, natively, us; over TCP more.
RDMA_US = 6.0
# What the settings of STREAM's checks say, before the number of the node.
LOCAL, REMOTE = "local memory", "remote memory"
ONE_NODE = re.compile(r"^(STREAM, )?\d+ threads?$")
NO_TRIAD = {False: "no triad of one node was measured", True: "triad's arrays do not exceed the caches"}

Values = Mapping[Side, Mapping[float, float]]
Ask = Callable[[Values], Canary]


@dataclass(frozen=True)
class SessionSeries:
    """The measurements of a session, ordered for the canaries.

    Attributes
    ----------
    series
        The series of the runs that count, by ``metric@setting``.
    nodes
        The first node of each side's runs by check, where they say what it was.
    checks
        Name of the check of each series.
    """

    series: Mapping[str, Series]
    nodes: Mapping[tuple[str, Side], Identity]
    checks: Mapping[str, str]

    @classmethod
    def of(cls, runs: Sequence[Run], series: Mapping[str, Series]) -> SessionSeries:
        """Sort the runs of a session.

        Parameters
        ----------
        runs
            The runs after preflight, so that disturbed ones do not count.
        series
            The series of the same runs.
        """
        return cls(
            {name: measured for name, measured in series.items() if measured.valid},
            {(run.check, run.side): next(iter(run.identity.values())) for run in runs if run.identity},
            {result.series: run.check for run in runs for result in run.results},
        )

    def of_metric(self, metric: str, setting: str = "") -> list[Series]:
        """Return the series of a metric whose setting begins so."""
        return [
            series
            for series in self.series.values()
            if series.metric.name == metric and series.setting.startswith(setting)
        ]

    def node(self, series: Series, side: Side) -> Identity | None:
        """Return what a node of one side was while a series was measured."""
        return self.nodes.get((self.checks[series.id], side))


def of_session(measured: SessionSeries) -> tuple[Canary, ...]:
    """Return what every canary says of a session."""
    asked = (_write_combining, _iommu_large_pages, _virtual_numa, _fits_a_node)
    return tuple(canary(measured) for canary in asked)


def _write_combining(measured: SessionSeries) -> Canary:
    says, found, why = canaries.WRITE_COMBINING.says, [], []
    for (metric, setting), offset in DOORBELLS.items():
        for series in measured.of_metric(metric, setting):
            if reason := _no_doorbells(measured, series):
                why.append(f"{series.id}: {reason}")
                continue

            def ask(values: Values, offset: bool = offset) -> Canary:
                return canaries.write_combining(values["virtual"], values["native"], offset=offset)

            answer = _agreed(ask, series)
            found.append(answer.says(answer.state, f"{series.id}: {answer.evidence}"))
    if not found:
        needed = ", ".join(f"{metric} {setting}".rstrip() for metric, setting in DOORBELLS)
        return says("unknown", "; ".join(why) or f"none of {needed} was measured")
    # One program that shows it is enough: another may send small messages in another way.
    state = min((canary.state for canary in found), key=STATES.index)
    return says(state, "; ".join(canary.evidence for canary in found if canary.state == state))


def _no_doorbells(measured: SessionSeries, series: Series) -> str | None:
    """Return why a latency says nothing of the way to an adapter's doorbells; None if it does."""
    node = measured.node(series, "virtual")
    if node is None:
        return "its runs do not say what the VM's adapters are"
    kinds = [adapter.kind for adapter in node.hcas]
    if not kinds:
        return "the VM has no RDMA adapter"
    if all(kind == "software" for kind in kinds):
        return "the VM's RDMA adapter is software and has no doorbells"
    least = float(np.min(np.median(series.values("native"), axis=0)))
    if series.metric.name == "osu_latency" and least > RDMA_US:
        return f"{least:.1f} us natively: MPI did not go over RDMA"
    return None


def _iommu_large_pages(measured: SessionSeries) -> Canary:
    says = canaries.IOMMU_LARGE_PAGES.says
    for series in measured.of_metric("rdma_buffers"):
        if reason := _no_doorbells(measured, series):
            return says("unknown", f"{series.id}: {reason}")
        return _agreed(lambda values: canaries.iommu_large_pages(values["virtual"], values["native"]), series)
    return says("unknown", "no message rate by number of registered buffers was measured")


def _virtual_numa(measured: SessionSeries) -> Canary:
    says = canaries.VIRTUAL_NUMA.says
    for local in measured.of_metric("memory_triad"):
        before, is_local, _ = local.setting.partition(LOCAL)
        remote = measured.of_metric("memory_triad", before + REMOTE)
        if is_local and remote:
            return _agreed(_ask_numa, local, remote[0])
    return says("unknown", "triad of local and of remote memory was not measured")


def _ask_numa(values: Values) -> Canary:
    virtual, native = ((values[side].get(0, 0), values[side].get(1, 0)) for side in ("virtual", "native"))
    return canaries.virtual_numa(virtual, native)


def _fits_a_node(measured: SessionSeries) -> Canary:
    says = canaries.FITS_A_NODE.says
    found = [triad for triad in measured.of_metric("memory_triad") if ONE_NODE.search(triad.setting)]
    if not found:
        return says("unknown", NO_TRIAD[bool(measured.of_metric("cache_triad"))])
    # What the host can is what it gives to its best number of threads.
    best = max(found, key=lambda triad: float(np.median(triad.values("native"))))
    native, virtual = (measured.node(best, side) for side in SIDES)
    if native is None or virtual is None:
        return says("unknown", "the runs do not say what their nodes were")
    numa, cpus = native.topology.numa, virtual.topology.cpus
    if not seen(numa) or not seen(cpus):
        return says("unknown", "the runs do not say where the CPUs of both sides lie")
    nodes = [len(cpu_list(node)) for node in numa.values()]
    if len(nodes) == 1:
        return says("unknown", "the hardware has one NUMA node")
    if native.topology.spanned(numa) != tuple(numa):
        return says("unknown", "the native run did not use CPUs of all NUMA nodes")
    vcpus = len(cpu_list(cpus))
    share = {max(nodes): 0.5, sum(nodes): 1.0}.get(vcpus)
    if share is None:
        return says("unknown", f"the VM has {vcpus} CPUs, a node of its host {max(nodes)} of {sum(nodes)}")

    def ask(values: Values) -> Canary:
        virtual, native = (values[side][0] for side in ("virtual", "native"))
        return canaries.fits_a_node(virtual, native, nodes=len(nodes), share=share)

    return _agreed(ask, best)


def _agreed(ask: Ask, *series: Series) -> Canary:
    """Ask a canary of the medians over the pairs, and believe it where the pairs agree.

    The point of a scalar is its place among `series`.
    """
    rows_of = [{pair.number: row for row, pair in enumerate(each.valid)} for each in series]
    numbers = sorted(set.intersection(*map(set, rows_of)))
    if not numbers:
        return ask({side: {} for side in SIDES})

    def of_pairs(chosen: Sequence[int]) -> Values:
        values: dict[Side, dict[float, float]] = {side: {} for side in SIDES}
        for place, each in enumerate(series):
            rows = [rows_of[place][number] for number in chosen]
            for side in SIDES:
                medians = np.median(each.values(side)[rows], axis=0)
                values[side] |= dict(zip(each.points or (float(place),), map(float, medians), strict=True))
        return values

    answer, count = ask(of_pairs(numbers)), len(numbers)
    if answer.state == "unknown" or count == 1:
        return answer
    alike = sum(ask(of_pairs([number])).state == answer.state for number in numbers)
    evidence = f"{answer.evidence} (medians of {count} pairs)"
    if alike < AGREE * count:
        return answer.says("unknown", f"{evidence}, which only {alike} of them bear out")
    return answer.says(answer.state, evidence)
