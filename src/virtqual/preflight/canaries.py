"""Canaries: what a curve or a ratio says of a missing feature, from measurement alone.

Each is a pure function of measured values and returns a :class:`Canary`.  The thresholds are halfway, on a
logarithmic scale, between what the published studies measured with and without the feature.
``canary_runs`` feeds them from the runs of a session.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

Curve = Mapping[float, float]
State = Literal["present", "missing", "unknown"]
_WORDS = {"present": "is there", "missing": "seems to be missing", "unknown": "is not observable"}


class Canary(BaseModel):
    """The answer of one canary.

    Attributes
    ----------
    feature
        The feature that it watches.
    state
        ``present``: the feature is there; ``missing``: it is missing; ``unknown``: not observable.
    evidence
        The numbers it was decided from, or why it could not be; a sentence.
    protects
        Ids of the published claims behind it.
    remedy
        Advice for the case that the feature is missing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    feature: str
    state: State
    evidence: str
    protects: tuple[str, ...]
    remedy: str

    @property
    def answer(self) -> str:
        """What it says of the feature, without the numbers."""
        return f"{self.feature} {_WORDS[self.state]}"

    @property
    def text(self) -> str:
        """One sentence."""
        return f"{self.answer}: {self.evidence}"

    def says(self, state: State, evidence: str) -> Canary:
        """Return what this canary says of some values."""
        return self.model_copy(update={"state": state, "evidence": evidence})


def _silent(feature: str, protects: tuple[str, ...], remedy: str) -> Canary:
    return Canary(feature=feature, state="unknown", evidence="not asked", protects=protects, remedy=remedy)


WRITE_COMBINING = _silent(
    "write combining",
    ("R03", "R04", "R05", "R07"),
    "use a hypervisor that maps the adapter's doorbells write-combining into the VM",
)
IOMMU_LARGE_PAGES = _silent(
    "IOMMU large pages",
    ("R08", "R09", "R11"),
    "have the hypervisor map the VM's memory by large pages in the IOMMU: memory backed by huge pages, and "
    "no option that forbids them there (intel_iommu=sp_off)",
)
VIRTUAL_NUMA = _silent(
    "truthful virtual NUMA",
    ("S26", "D11", "D12"),
    "make the VM's NUMA nodes those of the hardware, with memory and vCPUs bound to them",
)
FITS_A_NODE = _silent(
    "a VM that fits its NUMA nodes",
    ("S23", "S24", "S25", "S30"),
    "size the VM to one NUMA node (with hyperthreads, ESXi preferHT), or show it the nodes",
)

# The anomaly of 16 to 128 B lies between sizes that are sent inline and those that are not (R04).
BUMP, BELOW, ABOVE = (16.0, 128.0), (2.0, 8.0), 256.0
# A send costs 0.4 us more without write combining (R03) and none with it (R05); half of that.
OFFSET_US = 0.2
# A bump smaller than this share of the latency is no bump.
BUMP_SHARE = 0.05


def write_combining(virtual: Curve, native: Curve | None = None, *, offset: bool = True) -> Canary:
    """Tell from small-message latencies whether the adapter's doorbells are mapped write-combining.

    Parameters
    ----------
    virtual
        Half round trips in the VM, us, by message size in B: at least one of 2 to 8 B, two of 16 to 128 B,
        and 256 B.
    native
        The same times natively; where they are given, a bump counts as far as native has none there.
    offset
        Whether an offset of the small messages against native counts, too.  That of an MPI library may have
        another cause (claim R08).

    Notes
    -----
    Without the feature, ESXi 6.0 showed a bump from 16 to 128 B and an offset of 0.4 us (send); both were
    gone in 6.0u1 (RDMA and HPC applications in virtual machines, claims R03 to R05).
    """
    says = WRITE_COMBINING.says
    curves = [virtual] if native is None else [virtual, native]
    common = sorted(set.intersection(*(set(curve) for curve in curves)))
    below = [size for size in common if BELOW[0] <= size <= BELOW[1]]
    inside = [size for size in common if BUMP[0] <= size <= BUMP[1]]
    if not below or len(inside) < 2 or ABOVE not in common:
        return says("unknown", "sizes 2 to 8, 16 to 128 and 256 B are needed")
    bumps = [_bump(curve, below, inside) for curve in curves]
    bump = bumps[0] - (bumps[1] if native is not None else 0)
    beside = "" if native is None else f" ({bumps[1]:+.2f} us natively)"
    evidence = [f"16 to 128 B lie {bumps[0]:+.2f} us off the line from {below[-1]:g} to {ABOVE:g} B{beside}"]
    missing = bump > BUMP_SHARE * float(np.median([curves[-1][size] for size in below]))
    if native is not None and offset:
        more = float(np.median([virtual[size] - native[size] for size in below]))
        evidence.append(f"messages of 2 to 8 B take {more:+.2f} us against native")
        missing = missing or more > OFFSET_US
    return says("missing" if missing else "present", "; ".join(evidence))


def _bump(curve: Curve, below: list[float], inside: list[float]) -> float:
    """Return how far the sizes inside lie above a smooth curve through their neighbours, us."""
    ends = [math.log(below[-1]), math.log(ABOVE)]
    values = [float(np.median([curve[size] for size in below])), curve[ABOVE]]
    return float(np.median([curve[size] - np.interp(math.log(size), ends, values) for size in inside]))


# The study's small messages cost 20 % more with 4 KiB pages (R08) and nothing with 2 MiB pages (R09).
KNEE = 1.10
# So many numbers of buffers, over such a factor, show where a curve rises.
NUMBERS, OVER = 4, 16


def iommu_large_pages(virtual: Curve, native: Curve | None = None) -> Canary:
    """Tell from the time of a message against the number of buffers whether the IOMMU maps by large pages.

    Parameters
    ----------
    virtual
        Time of one small message in the VM, us, at full rate, by the number of registered buffers (4 KiB
        apart) that the messages go through; at least four numbers over a factor of 16.
    native
        The same times natively; where they are given, the adapter's own cost of more buffers is not counted.

    Notes
    -----
    With 4 KiB pages every buffer needs an entry of the IOTLB: beyond its size the time rises (claim R11).
    With large pages the curve is flat.

    Like is compared with like: numbers of buffers count where the rate of messages limits both sides.  Where
    a side's time still falls with more buffers, it is latency, and what a VM adds to that is another thing.

    The cost that a VM adds to every message (no write combining, a slow vCPU) overlaps with the IOMMU's, and
    may hide it.  So "present" takes a time with many buffers that is close to native's; where few buffers
    have an overhead already and many have no larger one, the answer is "unknown".

    It cannot see that native's own IOMMU maps by small pages, too; what else grows with the number of queue
    pairs in a VM alone; and, without `native`, whether something else limits the VM.
    """
    says = IOMMU_LARGE_PAGES.says
    curves = [virtual] if native is None else [virtual, native]
    counts = sorted(set.intersection(*(set(curve) for curve in curves)))
    if not _far_enough(counts):
        return says("unknown", "four numbers of buffers over a factor of 16 are needed")
    counts = [count for count in counts if all(_limited_by_rate(curve, count) for curve in curves)]
    if not _far_enough(counts):
        shown = ", ".join(f"{count:g}" for count in counts)
        return says(
            "unknown",
            "four numbers of buffers over a factor of 16 are needed at which the rate limits both sides; "
            f"it does at {shown}",
        )
    times = {count: virtual[count] / (1 if native is None else native[count]) for count in counts}
    few = float(np.median([times[count] for count in counts[:2]]))
    # The largest alone: the knee may lie before it.
    many = times[counts[-1]]
    rise = many / few
    unit = " us" if native is None else " of native"
    evidence = f"{many:.2f}{unit} with {counts[-1]:g} buffers, {few:.2f} with {counts[0]:g} ({rise:.2f}x)"
    if rise <= KNEE and native is not None and many > KNEE:
        return says(
            "unknown",
            f"{evidence}: with few buffers something else takes longer already, and may hide the IOMMU",
        )
    if rise <= KNEE:
        return says("present", evidence)
    knee = next(count for count in counts if times[count] > math.sqrt(rise) * few)
    return says("missing", f"{evidence}, rising at {knee:g}")


def _far_enough(counts: list[float]) -> bool:
    return len(counts) >= NUMBERS and counts[-1] >= OVER * counts[0]


def _limited_by_rate(curve: Curve, count: float) -> bool:
    """Return whether messages through more buffers take no less time than through so many."""
    return curve[count] <= KNEE * min(us for other, us in curve.items() if other >= count)


# Where the hardware's own nodes differ less than this, nothing can be told from them; nor where a VM has less
# than this of the hardware's bandwidth, because then it is not memory that limits it.
TELLING, MEMORY_BOUND = 0.9, 0.5


def virtual_numa(
    virtual: tuple[float, float], native: tuple[float, float] | None = None, *, expected: float = 0.5
) -> Canary:
    """Tell from local and remote triad whether the NUMA nodes that a guest shows are the hardware's.

    Parameters
    ----------
    virtual
        Triad bandwidth in the VM, MB/s, with CPUs of one node and memory of the same, and of another.
    native
        The same numbers, measured natively.
    expected
        Remote bandwidth as a part of local where nodes are real, if native is not given: half (claim S26).

    Notes
    -----
    Nodes that are not the hardware's have the same bandwidth to all memory: a ratio of 1.  The threshold lies
    halfway, on a logarithmic scale, between that and what is expected.
    """
    says = VIRTUAL_NUMA.says
    if not all(bandwidth > 0 for bandwidth in (*virtual, *(native or ()))):
        return says("unknown", "two bandwidths of each side are needed")
    if native is not None:
        expected = native[1] / native[0]
        if (part := virtual[0] / native[0]) < MEMORY_BOUND:
            return says(
                "unknown", f"local memory has {part:.2f} of native's bandwidth: something else limits it"
            )
    ratio = virtual[1] / virtual[0]
    whose = "natively" if native is not None else "where the nodes are real"
    evidence = f"remote memory has {ratio:.2f} of the local bandwidth, {expected:.2f} {whose}"
    if expected > TELLING:
        return says("unknown", f"{evidence}: too much alike to tell")
    return says("present" if ratio < math.sqrt(expected) else "missing", evidence)


# Triad of one VM against all of its host of two nodes, natively: what each level means (S24, S25).
LEVELS = {
    1.0: "as with both nodes, its memory beside its CPUs",
    0.7: "as when it is spread over both nodes and half of its accesses are remote",
    0.5: "as with one node",
}
# As far below the least of them as that is below the next.
LEAST = 0.5 / math.sqrt(0.7 / 0.5)


def fits_a_node(virtual: float, native: float, *, nodes: int, share: float) -> Canary:
    """Tell from triad whether a VM is larger than a NUMA node of its host without seeing the nodes.

    Parameters
    ----------
    virtual
        Triad bandwidth of one VM, MB/s.
    native
        Bandwidth of the whole host, MB/s.
    nodes
        NUMA nodes of the host: the study's levels are those of two.
    share
        The share that the VM should get: 0.5 when it is sized to one node, 1.0 when it is shown both.
    """
    says = FITS_A_NODE.says
    if nodes != 2 or share not in (0.5, 1.0) or not (virtual > 0 and native > 0):
        return says("unknown", "two nodes, and a share of 0.5 or 1.0, are needed")
    ratio = virtual / native
    if ratio < LEAST:
        return says("unknown", f"{ratio:.2f} of the host's bandwidth: something else than NUMA limits it")
    level = min(LEVELS, key=lambda known: abs(math.log(ratio / known)))
    evidence = f"{ratio:.2f} of the host's bandwidth where {share:g} is its share: {LEVELS[level]}"
    return says("present" if level == share else "missing", evidence)
