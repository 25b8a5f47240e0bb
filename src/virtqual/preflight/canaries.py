"""Canaries name a missing feature of the hypervisor from measured curves alone.

Thresholds lie halfway, on a logarithmic scale, between the studies' values with and without the feature.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel

from virtqual.identity.record import Identity
from virtqual.runs import Run
from virtqual.verdict.pairs import Series

Curve = Mapping[float, float]
State = Literal["missing", "present", "unknown"]
#: A feature's state, and the numbers or the reason in words.
Answer = tuple[State, str]

# R04: the anomaly of 16 to 128 B lies between sizes that are sent inline and those that are not.
BUMP_SIZES_B, SIZES_BELOW_B, SIZE_ABOVE_B = (16, 128), (2, 8), 256
# A send costs 0.4 us more without write combining (R03), and nothing with it (R05): half of that.
MAX_OFFSET_US = 0.2
MIN_BUMP_SHARE = 0.05
# R08, R09: small messages cost 20 % more with 4 KiB pages, and nothing with 2 MiB pages.
MAX_RISE = 1.10
MIN_COUNTS, MIN_COUNT_RANGE = 4, 16
# Share of the pairs that must agree with the medians.
MIN_AGREEMENT = 0.75
# True if more time for small messages counts, by metric and setting; with MPI it may be the IOMMU's (R08).
DOORBELL_METRICS = {
    ("rdma_send_latency", ""): True,
    ("rdma_write_latency", ""): True,
    ("rdma_read_latency", ""): True,
    ("osu_latency", "two nodes"): False,
}


class Canary(BaseModel, extra="forbid", frozen=True):
    """State of one feature, from a session's measurements; `protects` holds ids of published claims."""

    feature: str
    state: State
    evidence: str
    protects: tuple[str, ...]
    remedy: str

    @property
    def answer(self) -> str:
        """The feature and its state in words, without the numbers."""
        words = {"present": "is there", "missing": "seems to be missing", "unknown": "is not observable"}
        return f"{self.feature} {words[self.state]}"

    @property
    def text(self) -> str:
        """One sentence."""
        return f"{self.answer}: {self.evidence}"


def ask_canaries(runs: Sequence[Run], all_series: Iterable[Series], max_rdma_us: float) -> tuple[Canary, ...]:
    """Return the answers of all canaries for a session's admitted runs and their series.

    MPI whose native messages all take longer than `max_rdma_us` did not go over RDMA.
    """
    checks = {result.series: run.check for run in runs for result in run.results}
    vms = {run.check: vm for run in runs if run.side == "virtual" for vm in run.identity.values()}
    doorbells, buffers = [], []
    for series in (series for series in all_series if series.valid):
        vm = vms.get(checks[series.id])
        for (metric, setting), offset in DOORBELL_METRICS.items():
            if series.metric.name == metric and series.setting.startswith(setting):
                doorbells.append(_ask(partial(write_combining, offset=offset), series, vm, max_rdma_us))
        if series.metric.name == "rdma_buffers":
            buffers.append(_ask(iommu_large_pages, series, vm, max_rdma_us))
    metrics = ", ".join(f"{metric} {setting}".rstrip() for metric, setting in DOORBELL_METRICS)
    return (
        Canary(
            feature="write combining",
            protects=("R03", "R04", "R05", "R07"),
            remedy="use a hypervisor that maps the adapter's doorbells write-combining into the VM",
            **_summarise(doorbells, f"none of {metrics} was measured"),
        ),
        Canary(
            feature="IOMMU large pages",
            protects=("R08", "R09", "R11"),
            remedy="have the hypervisor map the VM's memory by large pages in the IOMMU: back it by huge "
            "pages, and set no option that forbids them there (intel_iommu=sp_off)",
            **_summarise(buffers, "no message rate by number of registered buffers was measured"),
        ),
    )


def _summarise(answers: Iterable[Answer], why_none: str) -> dict[str, Any]:
    """Return the worst state with its evidence: one program that shows the fault is enough."""
    evidence: dict[State, list[str]] = {"missing": [], "present": [], "unknown": []}
    for state, text in answers:
        evidence[state].append(text)
    worst: State = next((state for state, texts in evidence.items() if texts), "unknown")
    return {"state": worst, "evidence": "; ".join(evidence[worst]) or why_none}


def _ask(
    ask: Callable[[Curve, Curve], Answer], series: Series, vm: Identity | None, max_rdma_us: float
) -> Answer:
    """Ask a canary about the medians over the pairs; three of four pairs must agree with the answer."""
    count = len(series.valid)
    if reason := _explain_unobservable(series, vm, max_rdma_us):
        return "unknown", f"{series.id}: {reason}"

    def ask_rows(rows: slice) -> Answer:
        curves = [np.median(series.values[side][rows], axis=0).tolist() for side in ("virtual", "native")]
        return ask(*(dict(zip(series.points, curve, strict=True)) for curve in curves))

    state, evidence = ask_rows(slice(None))
    evidence = f"{series.id}: {evidence}"
    if state == "unknown" or count == 1:
        return state, evidence
    agreeing = sum(ask_rows(slice(row, row + 1))[0] == state for row in range(count))
    evidence += f" (medians of {count} pairs)"
    if agreeing < MIN_AGREEMENT * count:
        return "unknown", f"{evidence}, which only {agreeing} of them bear out"
    return state, evidence


def _explain_unobservable(series: Series, vm: Identity | None, max_rdma_us: float) -> str | None:
    if vm is None:
        return "its runs do not say what the VM's adapters are"
    if not vm.hcas:
        return "the VM has no RDMA adapter"
    if all(hca.kind == "software" for hca in vm.hcas):
        return "the VM's RDMA adapter is software and has no doorbells"
    latency = series.medians["native"].min()
    if series.metric.name == "osu_latency" and latency > max_rdma_us:
        return f"{latency:.1f} us natively: MPI did not go over RDMA"
    return None


def write_combining(virtual: Curve, native: Curve, *, offset: bool = True) -> Answer:
    """Tell from half round trips (us by message size in B) whether doorbells are mapped write-combining.

    Without it, ESXi 6.0 showed a bump at 16 to 128 B and 0.4 us more for small messages; 6.0u1 showed neither
    (claims R03 to R05).  `offset` tells whether more time for small messages counts.
    """
    sizes = sorted(virtual)
    below = [size for size in sizes if SIZES_BELOW_B[0] <= size <= SIZES_BELOW_B[1]]
    inside = [size for size in sizes if BUMP_SIZES_B[0] <= size <= BUMP_SIZES_B[1]]
    if not below or len(inside) < 2 or SIZE_ABOVE_B not in sizes:
        return "unknown", "sizes 2 to 8, 16 to 128 and 256 B are needed"

    def median_bump(curve: Curve) -> float:
        """Return by how many us the sizes inside lie above a smooth curve through their neighbours."""
        ends = [math.log(below[-1]), math.log(SIZE_ABOVE_B)]
        values = [float(np.median([curve[size] for size in below])), curve[SIZE_ABOVE_B]]
        return float(np.median([curve[size] - np.interp(math.log(size), ends, values) for size in inside]))

    bump, native_bump = median_bump(virtual), median_bump(native)
    missing = bump - native_bump > MIN_BUMP_SHARE * float(np.median([native[size] for size in below]))
    evidence = f"16 to 128 B lie {bump:+.2f} us off the line from {below[-1]:g} to {SIZE_ABOVE_B} B"
    evidence += f" ({native_bump:+.2f} us natively)"
    if offset:
        offset_us = float(np.median([virtual[size] - native[size] for size in below]))
        evidence += f"; messages of 2 to 8 B take {offset_us:+.2f} us against native"
        missing = missing or offset_us > MAX_OFFSET_US
    return "missing" if missing else "present", evidence


def iommu_large_pages(virtual: Curve, native: Curve) -> Answer:
    """Tell from the time of a message (us by number of buffers) whether the IOMMU maps by large pages.

    With 4 KiB pages every buffer needs an entry of the IOTLB, and the time rises beyond its size (claim R11).
    Numbers of buffers count only if the message rate limits both sides: a time that still falls is latency.
    """
    counts = sorted(_select_rate_limited(virtual) & _select_rate_limited(native))
    if len(counts) < MIN_COUNTS or counts[-1] < MIN_COUNT_RANGE * counts[0]:
        listed = ", ".join(f"{count:g}" for count in counts)
        why = "four numbers of buffers over a factor of 16 are needed at which the rate limits both sides"
        return "unknown", f"{why}; it does at {listed}"
    ratios = {count: virtual[count] / native[count] for count in counts}
    few, many = float(np.median([ratios[count] for count in counts[:2]])), ratios[counts[-1]]
    rise = many / few
    evidence = f"{many:.2f} of native with {counts[-1]:g} buffers, {few:.2f} with {counts[0]:g} ({rise:.2f}x)"
    if rise > MAX_RISE:
        knee = next(count for count in counts if ratios[count] > math.sqrt(rise) * few)
        return "missing", f"{evidence}, rising at {knee:g}"
    if many > MAX_RISE:
        return "unknown", f"{evidence}: with few buffers something else takes longer, and may hide the IOMMU"
    return "present", evidence


def _select_rate_limited(curve: Curve) -> set[float]:
    """Return the numbers of buffers from which on the time of a message does not fall."""
    return {count for count in curve if curve[count] <= MAX_RISE * min(curve[c] for c in curve if c >= count)}
