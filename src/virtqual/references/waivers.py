"""Accepted overheads: who accepted what, for which build, until when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True)
class Waiver:
    """An OVER that somebody has accepted for a time.

    Parameters
    ----------
    metric
        Name of the metric.
    setting
        Its setting; None for every setting.
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
    hypervisor_class: str
    build: str
    owner: str
    reason: str
    expires: date
    where: str = ""

    def matches(self, metric: str, setting: str, hypervisor_class: str, build: str) -> bool:
        """Return whether it is about this result, expired or not."""
        return (
            self.metric == metric
            and self.setting in (None, setting)
            and self.hypervisor_class == hypervisor_class
            and self.build == build
        )

    def holds(self, today: date) -> bool:
        """Return whether it has not expired by `today`."""
        return today <= self.expires

    def text(self, today: date) -> str:
        """Return it as a report shows it."""
        if self.holds(today):
            return f"accepted by {self.owner} until {self.expires}: {self.reason}"
        return f"waiver of {self.owner} expired on {self.expires} ({self.where})"
