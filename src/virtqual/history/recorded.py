"""What a stored session tells the files of a system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from virtqual.verdict.pairs import Series


@dataclass(frozen=True)
class Recorded:
    """The part of a stored session that references are made of."""

    session: str
    #: ISO date on which the session began.
    date: str
    system: str
    #: Hypervisor build of the virtual side; noise is pooled within one build.
    build: str
    #: CPU model of the native side.
    cpu: str
    stack: str
    #: The check of each series, such as ``Memory %threads=one``, and the series.
    series: tuple[tuple[str, Series], ...]
    #: Sentences: which of its series are not taken, and why.
    left_out: tuple[str, ...] = ()
    #: See `virtqual.session.facts`.
    facts: Mapping[str, str] = field(default_factory=dict)
