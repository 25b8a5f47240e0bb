"""Recorded sessions of one system, and what is written of them."""

from virtqual.history.recorded import Recorded


def make_recorded(number, *series, check="Case"):
    """Return a session of a number with series, all of one check."""
    recorded = tuple((check, measured) for measured in series)
    return Recorded(f"s{number}", f"2026-01-{number:02}", "site", "9.2", "Xeon", "abc", recorded)


def write_proposals(proposals):
    """Write the files of proposals."""
    for proposal in proposals:
        proposal.path.parent.mkdir(parents=True, exist_ok=True)
        proposal.path.write_text(proposal.after, encoding="utf-8")
