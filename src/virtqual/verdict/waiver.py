"""Accepted overheads: who accepted what, for which build, until when."""

from __future__ import annotations

import math
from datetime import date
from typing import Annotated

from pydantic import ConfigDict, Field, PrivateAttr

from virtqual.files.datafile import DataModel
from virtqual.verdict.budget import Gate
from virtqual.verdict.metric import Metric, Positive, Text


class Waiver(DataModel):
    """An OVER that its owner accepts for one build and for a time.

    Attributes
    ----------
    setting
        None for every setting.
    up_to
        The worst accepted ratio, virtual/native or for a change the ratio of two overheads: below 1 for
        rates, above 1 for times.
    expires
        The last day on which it holds.
    """

    model_config = ConfigDict(populate_by_name=True)

    metric: Text
    setting: Text | None = None
    gate: Gate
    up_to: Positive
    hypervisor_class: Annotated[Text, Field(alias="class")]
    build: Text
    owner: Text
    reason: Text
    expires: date
    _place: tuple[str, int] = PrivateAttr(("", 0))

    def matches(self, metric: str, setting: str, gate: Gate) -> bool:
        """Return whether it is about this result of its class and build, expired or not."""
        return (self.metric, self.gate) == (metric, gate) and self.setting in (None, setting)

    @property
    def subject(self) -> tuple[str, str | None, Gate, str, str]:
        """The results that it is about."""
        return self.metric, self.setting, self.gate, self.hypervisor_class, self.build

    def covers(self, log: float, metric: Metric) -> bool:
        """Return whether a log difference (positive is worse) is no worse than what is accepted."""
        worst = math.log(self.up_to) if metric.better == "lower" else -math.log(self.up_to)
        return log <= worst

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
        """The accepted ratio, its owner and its last day: ``0.92x by ops until 2026-06-01``."""
        return f"{self.up_to:g}x by {self.owner} until {self.expires}"

    @property
    def place(self) -> tuple[str, int]:
        """The file that it was read from, and its line."""
        return self._place

    def read_from(self, file: str, line: int) -> Waiver:
        """Return the waiver with the place that it was read from."""
        waiver = self.model_copy()
        waiver._place = (file, line)
        return waiver
