"""Markdown that GitHub, GitLab and a mail show well."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from virtqual.files.wording import printable
from virtqual.report.summary import Line
from virtqual.verdict.labels import Labels


def escape(text: str) -> str:
    """Return text that Markdown shows as it is, on one line; an underscore in a word is no markup."""
    return re.sub(
        r"([\\`*{}\[\]<>#|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))", r"\\\1", printable(" ".join(text.split()))
    )


def make_table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[str] = ()) -> list[str]:
    """Return the lines of a table of plain texts; the columns `numbers` are aligned on the right."""
    right = set(numbers)
    lines = [_make_row(head), _make_row(["---:" if name in right else "---" for name in head], plain=True)]
    return lines + [_make_row(row) for row in rows]


def _make_row(cells: Sequence[str], *, plain: bool = False) -> str:
    return f"| {' | '.join(cells if plain else map(escape, cells))} |"


def make_verdict_table(lines: Sequence[Line], words: Labels) -> list[str]:
    """Return the table of verdicts, with the limit next to the result."""
    head = (
        "metric",
        "verdict",
        f"{words.candidate} is",
        "limit",
        words.reference,
        words.candidate,
        "unit",
        "pairs",
    )
    rows = (
        (
            line.name,
            line.verdict.outcome_text,
            line.result,
            line.allowed,
            *line.scaled,
            line.verdict.pairs_text,
        )
        for line in lines
    )
    return make_table(head, rows, (words.reference, words.candidate, "pairs"))


def make_list(texts: Iterable[str]) -> list[str]:
    """Return the lines of a list, with an empty one after it; none without a text."""
    items = [f"- {escape(text)}" for text in texts]
    return [*items, ""] if items else []
