"""Proposals of references from stored sessions, for people to review: see ``virtqual record``."""

from virtqual.history.history import NoHistoryError, noise_entry
from virtqual.history.native import FALSE_ALARMS, reference_entries
from virtqual.history.propose import Proposal, Recorded, RecordedSeries, propose, propose_hosts
from virtqual.history.survey import host_entry

__all__ = [
    "FALSE_ALARMS",
    "NoHistoryError",
    "Proposal",
    "Recorded",
    "RecordedSeries",
    "host_entry",
    "noise_entry",
    "propose",
    "propose_hosts",
    "reference_entries",
]
