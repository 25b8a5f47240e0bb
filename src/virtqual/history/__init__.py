"""Proposals of references from stored sessions, for people to review: see ``virtqual record``."""

from virtqual.history.history import NoHistoryError, noise_entry
from virtqual.history.native import FALSE_ALARMS, reference_entries
from virtqual.history.propose import Proposal, Recorded, RecordedSeries, propose

__all__ = [
    "FALSE_ALARMS",
    "NoHistoryError",
    "Proposal",
    "Recorded",
    "RecordedSeries",
    "noise_entry",
    "propose",
    "reference_entries",
]
