"""Accepted overheads: who accepted what, for which build, until when."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date

from virtqual.references.budgets import Gate
from virtqual.references.metrics import Metric


@dataclass(frozen=True)
class Waiver:
    """An OVER that somebody has accepted for a time, up to a size.

    Parameters
    ----------
    metric
        Name of the metric.
    setting
        Setting of the metric; None for every setting.
    gate
        Whether the ``overhead`` is accepted or its ``change`` since an earlier session: they are two answers.
    up_to
        The worst that is accepted, as virtual/native (of a change: as the ratio of two overheads): below 1
        for rates, above 1 for times.
    hypervisor_class
        The class it holds under.
    build
        The hypervisor build it holds for; a waiver never outlives a build.
    owner
        Who answers for it.
    reason
        Why it is acceptable.
    expires
        The last day on which it holds.
    where
        ``file:line`` it was read from.
    """

    metric: str
    setting: str | None
    gate: Gate
    up_to: float
    hypervisor_class: str
    build: str
    owner: str
    reason: str
    expires: date
    where: str = ""

    def matches(self, metric: str, setting: str, gate: Gate, hypervisor_class: str, build: str) -> bool:
        """Return whether it is about this result, expired or not, and however bad the result is."""
        return (
            self.metric == metric
            and self.setting in (None, setting)
            and self.gate == gate
            and self.hypervisor_class == hypervisor_class
            and self.build == build
        )

    def covers(self, log: float, metric: Metric) -> bool:
        """Return whether a log difference (positive is worse) is no worse than what is accepted."""
        worst = math.log(self.up_to) if metric.better == "lower" else -math.log(self.up_to)
        return log <= worst

    def holds(self, today: date) -> bool:
        """Return whether it has not expired by `today`."""
        return today <= self.expires

    def text(self, today: date) -> str:
        """Return it as a report shows it."""
        if not self.holds(today):
            return f"waiver of {self.owner} expired on {self.expires} ({self.where})"
        name = self.metric if self.setting is None else f"{self.metric}@{self.setting}"
        return f"{self.gate} of {name} accepted up to {self.accepted}: {self.reason}"

    @property
    def accepted(self) -> str:
        """The accepted ratio, who accepted it, and until when: ``0.92x by ops until 2026-06-01``."""
        return f"{self.up_to:g}x by {self.owner} until {self.expires}"
