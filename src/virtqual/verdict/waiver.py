"""Accepted overheads: who accepted what, for which build, until when."""

from __future__ import annotations

import math
from datetime import date
from typing import Annotated, cast

from pydantic import ConfigDict, Field

from virtqual.files.datafile import PlacedModel
from virtqual.verdict.budget import Gate
from virtqual.verdict.metric import Metric, Positive, Text
from virtqual.verdict.notation import format_percent, read_percent

Percent = Annotated[str, Field(pattern=r"^\d+(\.\d+)?%$")]


class Waiver(PlacedModel):
    """An OVER that its owner accepts for one build and for a time.

    Attributes
    ----------
    setting
        None for every setting.
    up_to
        The worst that is accepted: ``8%`` slower than native (or than the earlier overhead), or that ratio
        itself, 1.08 for times and 0.92 for rates.
    expires
        The last day on which it holds.
    """

    model_config = ConfigDict(populate_by_name=True)

    metric: Text
    setting: Text | None = None
    gate: Gate
    up_to: Positive | Percent
    hypervisor_class: Annotated[Text, Field(alias="class")]
    build: Text
    owner: Text
    reason: Text
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
        return log <= (math.log1p(self.slower) if metric.better == "lower" else -math.log1p(-self.slower))

    @property
    def slower(self) -> float:
        """The worst accepted difference, as a fraction of native's value."""
        if isinstance(self.up_to, str):
            return cast(float, read_percent(self.up_to))
        return abs(self.up_to - 1)

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
        return f"{format_percent(self.slower)} slower by {self.owner} until {self.expires}"
