"""The four configurations of the OpenStack study: node interleaving off and on, native and virtual.

The firmware's setting changes with a reboot, so two sessions hold them: BM-1 and VM-1 (off), BM-2 and VM-2
(on).  What the study compares across them is not paired in time, and gets no verdict here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from virtqual.errors import RefusedError, UsageError
from virtqual.runs import Result, Run
from virtqual.session.store import Session

#: What the settings of a system with node interleaving end in: its series are never taken for the others.
INTERLEAVED = ", node interleaving on"

Values = dict[tuple[str, str], tuple[float, ...]]


@dataclass(frozen=True)
class Row:
    """One series: ratios of medians over both sessions, the geometric mean over a curve.

    Attributes
    ----------
    series
        ``metric@setting``.
    off, on
        Virtual against native in the same session: VM-1 / BM-1 and VM-2 / BM-2.
    across
        VM-2 / BM-1, as the study prints it.
    native
        BM-2 / BM-1: what node interleaving alone costs.
    """

    series: str
    off: float
    on: float
    across: float
    native: float


def named(result: Result, *, interleaved: bool) -> Result:
    """Return a result with node interleaving in its setting."""
    return result.model_copy(update={"setting": result.setting + INTERLEAVED}) if interleaved else result


def comparable(off: Session, on: Session) -> None:
    """Refuse two sessions that differ in more than the firmware's setting.

    Raises
    ------
    RefusedError
        Another stack, another hypervisor's build, or other processors: each is named.
    """
    differ = [
        what
        for what, one, other in (
            ("software stack", off.stack.get("hash"), on.stack.get("hash")),
            ("hypervisor", *(one.identity.get("virtual", {}).get("hypervisor") for one in (off, on))),
            ("native processor", *(one.identity.get("native", {}).get("processor") for one in (off, on))),
        )
        if one != other
    ]
    if differ:
        raise RefusedError(
            f"sessions {off.session} and {on.session} have another {' and another '.join(differ)}: "
            "what differs between them would not be node interleaving alone"
        )


def compare(off: Sequence[Run], on: Sequence[Run]) -> list[Row]:
    """Compare the series that two sessions have in common.

    Parameters
    ----------
    off, on
        Runs of the session without and with node interleaving.

    Raises
    ------
    UsageError
        The sessions are the other way round, or have no series of both sides in common.
    """
    if any(result.setting.endswith(INTERLEAVED) for run in off for result in run.results):
        raise UsageError("the first session must be the one without node interleaving")
    without, interleaved = _medians(off), _medians(on)
    rows = []
    for series in dict.fromkeys(name for name, _ in without):
        sides = ("native", "virtual")
        keys = [(series, side) for side in sides], [(series + INTERLEAVED, side) for side in sides]
        if not (without.keys() >= set(keys[0]) and interleaved.keys() >= set(keys[1])):
            continue
        bm1, vm1 = (without[key] for key in keys[0])
        bm2, vm2 = (interleaved[key] for key in keys[1])
        if len(bm1) == len(vm1) == len(bm2) == len(vm2):
            rows.append(Row(series, _ratio(vm1, bm1), _ratio(vm2, bm2), _ratio(vm2, bm1), _ratio(bm2, bm1)))
    if not rows:
        raise UsageError(
            "no series of both sides is in both sessions; the second must be of a system whose partitions "
            "state extras.node_interleaving = 'on'"
        )
    return rows


def _medians(runs: Sequence[Run]) -> Values:
    found: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    for run in runs:
        for result in run.results:
            if not result.invalid:
                found[result.series, run.side].append(result.values)
    return {key: tuple(map(median, zip(*values, strict=True))) for key, values in found.items()}


def _ratio(above: tuple[float, ...], below: tuple[float, ...]) -> float:
    logs = [math.log(one / other) for one, other in zip(above, below, strict=True)]
    return math.exp(math.fsum(logs) / len(logs))
