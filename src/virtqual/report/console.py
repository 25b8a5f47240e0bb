"""The console of every command: text from outside reaches a terminal as text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from virtqual.files.wording import printable


class PrintableConsole(Console):
    """Console on which a label or a message cannot move the cursor or hide a line."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the segments with printable text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


#: Names of nodes, builds and files stand as they are: never as markup, emoji codes or highlighted numbers.
verbatim = partial(PrintableConsole, emoji=False, highlight=False, markup=False)
