"""Canaries: what a curve or a ratio says of a missing feature, from measurement alone.

Each is a pure function of measured values and returns a :class:`Canary`.  The thresholds are halfway, on a
logarithmic scale, between what the published studies measured with and without the feature.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

Curve = Mapping[float, float]
State = Literal["present", "missing", "unknown"]


@dataclass(frozen=True)
class Canary:
    """What one canary says.

    Attributes
    ----------
    feature
        The feature that it watches.
    state
        ``present``: the feature is there; ``missing``: it is missing; ``unknown``: the values cannot tell.
    evidence
        The numbers it was decided from, in a sentence.
    protects
        Ids of the published claims behind it.
    """

    feature: str
    state: State
    evidence: str
    protects: tuple[str, ...]

    @property
    def text(self) -> str:
        """One sentence."""
        word = {"present": "is there", "missing": "is missing", "unknown": "cannot be told"}[self.state]
        return f"{self.feature} {word}: {self.evidence}"


# The anomaly of 16 to 128 B lies between sizes that are sent inline and those that are not (R04).
BUMP, BELOW, ABOVE = (16.0, 128.0), (2.0, 8.0), 256.0
# A send costs 0.4 us more without write combining (R03) and none with it (R05); half of that.
OFFSET_US = 0.2
# A bump smaller than this share of the latency is no bump.
BUMP_SHARE = 0.05


def write_combining(virtual: Curve, native: Curve | None = None) -> Canary:
    """Tell from small-message latencies whether the adapter's doorbells are mapped write-combining.

    Parameters
    ----------
    virtual
        Half round trips of an RDMA send in the VM, us, by message size in B: at least one of 2 to 8 B, two of
        16 to 128 B, and 256 B.
    native
        The same natively; where given, an offset of the small messages counts too.

    Notes
    -----
    Without the feature, ESXi 6.0 showed a bump from 16 to 128 B and an offset of 0.4 us (send); both were
    gone in 6.0u1 (RDMA and HPC applications in virtual machines, claims R03 to R05).
    """
    protects = ("R03", "R04", "R05", "R07")
    feature = "write combining"
    below = [size for size in virtual if BELOW[0] <= size <= BELOW[1]]
    inside = [size for size in virtual if BUMP[0] <= size <= BUMP[1]]
    if not below or len(inside) < 2 or ABOVE not in virtual:
        return Canary(feature, "unknown", "sizes 2 to 8, 16 to 128 and 256 B are needed", protects)
    start, end = max(below), ABOVE
    small = float(np.median([virtual[size] for size in below]))
    # What a smooth curve through its neighbours would have there, by the logarithm of the size.
    excess = [
        virtual[size] - np.interp(math.log(size), [math.log(start), math.log(end)], [small, virtual[end]])
        for size in inside
    ]
    bump = float(np.median(excess))
    evidence = [f"16 to 128 B lie {bump:+.2f} us off the line from {start:g} to {end:g} B"]
    missing = bump > BUMP_SHARE * small
    if native is not None:
        common = [size for size in below if size in native]
        if not common:
            return Canary(feature, "unknown", "native lacks the sizes 2 to 8 B", protects)
        offset = float(np.median([virtual[size] - native[size] for size in common]))
        evidence.append(f"messages of 2 to 8 B take {offset:+.2f} us against native")
        missing = missing or offset > OFFSET_US
    return Canary(feature, "missing" if missing else "present", "; ".join(evidence), protects)


# The study's small messages cost 20 % more with 4 KiB pages (R08) and nothing with 2 MiB pages (R09).
KNEE = 1.10


def iommu_large_pages(by_buffers: Curve) -> Canary:
    """Tell from a latency against the number of buffers whether the IOMMU maps by large pages.

    Parameters
    ----------
    by_buffers
        Latency of one small size, us, by the number of registered buffers (4 KiB apart) that the messages go
        through in turn; at least four numbers over a factor of 16.

    Notes
    -----
    With 4 KiB pages every buffer needs an entry of the IOTLB: beyond its size the latency rises (claim R11).
    With large pages the curve is flat.
    """
    feature, protects = "IOMMU large pages", ("R08", "R09", "R11")
    counts = sorted(by_buffers)
    if len(counts) < 4 or counts[-1] < 16 * counts[0]:
        return Canary(feature, "unknown", "four numbers of buffers over a factor of 16 are needed", protects)
    few = float(np.median([by_buffers[count] for count in counts[:2]]))
    many = float(np.median([by_buffers[count] for count in counts[-2:]]))
    rise = many / few
    evidence = f"{many:.2f} us with {counts[-1]:g} buffers, {few:.2f} us with {counts[0]:g} ({rise:.2f}x)"
    if rise <= KNEE:
        return Canary(feature, "present", evidence, protects)
    knee = next(count for count in counts if by_buffers[count] > math.sqrt(rise) * few)
    return Canary(feature, "missing", f"{evidence}, rising at {knee:g}", protects)


# Purely remote bandwidth is half of local where nodes are real (S26), and as fast where they are not.
REMOTE = math.sqrt(0.5)


def virtual_numa(local: float, remote: float) -> Canary:
    """Tell from local and remote triad whether the NUMA nodes that a guest shows are the hardware's.

    Parameters
    ----------
    local, remote
        Triad bandwidth, MB/s, with CPUs of one node and memory of the same, and of another.
    """
    feature, protects = "truthful virtual NUMA", ("S26", "D11", "D12")
    if not (local > 0 and remote > 0):
        return Canary(feature, "unknown", "two bandwidths are needed", protects)
    ratio = remote / local
    evidence = f"remote memory has {ratio:.2f} of the local bandwidth (about 0.5 where the nodes are real)"
    return Canary(feature, "present" if ratio < REMOTE else "missing", evidence, protects)


# Triad of one VM against all of its host of two nodes, natively: what each level means (S24, S25).
LEVELS = {
    1.0: "it uses both nodes, its memory beside its CPUs",
    0.7: "it is spread over both nodes and half of its accesses are remote",
    0.5: "it has the bandwidth of one node",
}


def fits_a_node(virtual: float, native: float, *, nodes: int, share: float) -> Canary:
    """Tell from triad whether a VM is larger than a NUMA node of its host without seeing the nodes.

    Parameters
    ----------
    virtual
        Triad bandwidth of one VM, MB/s.
    native
        Of the whole host, MB/s.
    nodes
        NUMA nodes of the host: the study's levels are those of two.
    share
        What the VM should get: 0.5 when it is sized to one node, 1.0 when it is shown both.
    """
    feature, protects = "a VM that fits its NUMA nodes", ("S23", "S24", "S25", "S30")
    if nodes != 2 or share not in (0.5, 1.0) or not (virtual > 0 and native > 0):
        return Canary(feature, "unknown", "two nodes, and a share of 0.5 or 1.0, are needed", protects)
    ratio = virtual / native
    level = min(LEVELS, key=lambda one: abs(math.log(ratio / one)))
    evidence = f"{ratio:.2f} of the host's bandwidth where {share:g} is its share: {LEVELS[level]}"
    return Canary(feature, "present" if level == share else "missing", evidence, protects)
