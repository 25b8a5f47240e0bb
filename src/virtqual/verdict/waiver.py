"""Accepted overheads: who accepted what, for which build, until when."""

from __future__ import annotations

import math
from datetime import date
from typing import Annotated

from pydantic import BeforeValidator, Field

from virtqual.files.datafile import PlacedModel, Text
from virtqual.verdict.budget import Gate
from virtqual.verdict.metric import Metric, Positive
from virtqual.verdict.notation import format_percent, read_percent


def _read_percent_only(value: object) -> float:
    """Return the fraction of a text such as ``8%``; 1.08 and 0.08 might mean several things."""
    fraction = read_percent(value)
    if not isinstance(value, str) or not isinstance(fraction, float):
        raise ValueError("write how much slower is accepted, such as 8%.")
    return fraction


class Waiver(PlacedModel, populate_by_name=True):
    """An OVER that its owner accepts for one build and for a time."""

    metric: Text
    #: None for every setting.
    setting: Text | None = None
    gate: Gate
    #: How much slower than native is accepted, or than the earlier overhead: ``8%``, in code a fraction.
    up_to: Annotated[Positive, BeforeValidator(_read_percent_only)]
    hypervisor_class: Annotated[Text, Field(alias="class")]
    build: Text
    owner: Text
    reason: Text
    #: The last day on which it holds.
    expires: date

    def matches(self, metric: str, setting: str, gate: Gate) -> bool:
        """Return whether it is about this result of its class and build, expired or not."""
        return (self.metric, self.gate) == (metric, gate) and self.setting in (None, setting)

    @property
    def subject(self) -> tuple[str, str | None, Gate, str, str]:
        """The results that it is about."""
        return self.metric, self.setting, self.gate, self.hypervisor_class, self.build

    def covers(self, log: float, metric: Metric) -> bool:
        """Return whether a log difference (positive is worse) is no worse than what is accepted."""
        return log <= (math.log1p(self.up_to) if metric.better == "lower" else -math.log1p(-self.up_to))

    def holds(self, today: date) -> bool:
        """Return whether it has not expired."""
        return today <= self.expires

    def text(self, today: date) -> str:
        """Return the waiver as a report shows it."""
        if not self.holds(today):
            file, line = self.place
            return f"waiver of {self.owner} expired on {self.expires} ({file}:{line})"
        name = self.metric if self.setting is None else f"{self.metric}@{self.setting}"
        return f"{self.gate} of {name} accepted up to {self.accepted}: {self.reason}"

    @property
    def accepted(self) -> str:
        """The accepted slowdown, its owner and its last day: ``8% slower by ops until 2026-06-01``."""
        return f"{format_percent(self.up_to)} slower by {self.owner} until {self.expires}"
