"""The sessions that commands list: a conclusion of others is judged again before it is shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from virtqual.errors import VirtqualError
from virtqual.session.summary import Summary, is_believed, summaries


def verified_summaries(sessions: Path) -> Iterator[tuple[Path, Summary | VirtqualError]]:
    """Yield what `summaries` yields; a session whose conclusion is not believed is an error."""
    for directory, found in summaries(sessions):
        if isinstance(found, VirtqualError) or is_believed(found):
            yield directory, found
        else:
            # What judges again takes as long to import as all else, and most lists do not need it.
            from virtqual.qualify.checking import verify

            yield directory, verify(found, directory)
