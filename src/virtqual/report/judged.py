"""Pairs that were judged outside of a session, as one HTML file or as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from virtqual.errors import UsageError
from virtqual.files.records import write_file
from virtqual.report import markdown, plots
from virtqual.report.rendering import render_page
from virtqual.report.rows import MAX_ROWS_SHOWN, Row, make_rows
from virtqual.report.summary import (
    MEANINGS,
    Line,
    describe_answer,
    describe_so_far,
)
from virtqual.session.conclusion import EXIT_CODES
from virtqual.verdict import Outcome, SessionVerdict, first_of
from virtqual.verdict.labels import NATIVE_AND_VIRTUAL, REFERENCE_AND_CANDIDATE, Labels
from virtqual.verdict.pairs import Series, Side

#: By the end of a file's name.
SUFFIXES = (".html", ".md")
MAX_REASONS_SHOWN = 3


@dataclass(frozen=True)
class JudgedFile:
    """What was judged, what both sides are, and what the data cannot tell apart."""

    title: str
    #: Names of sessions with their verdicts; the name may be empty if there is one.
    judged: Sequence[tuple[str, SessionVerdict]]
    labels: Labels = NATIVE_AND_VIRTUAL
    #: By session and by series (``metric@setting``): the pairs, for plots.
    series: Mapping[str, Mapping[str, Series]] = field(default_factory=dict)
    #: Facts of each side by name, such as command, host, CPU, boot and date.
    facts: Mapping[Side, Mapping[str, str]] = field(default_factory=dict)
    #: Facts of the whole: the files, the date, the number of runs.
    about: Mapping[str, str] = field(default_factory=dict)
    #: Sentences on what the data cannot tell apart.
    caveats: Sequence[str] = ()
    #: What was asked for and not measured, and runs that were lost.
    not_measured: Sequence[str] = ()
    #: How a measurement that is not complete goes on; empty if it is.
    next_step: str = ""
    #: Of a measurement that was interrupted, or that an error ended; None for that of the outcome.
    exit_code: int | None = None
    #: The command that measures or judges it again.
    again: str = ""

    @property
    def outcome(self) -> Outcome:
        """The outcome of the worst session."""
        return first_of(answer.outcome for _, answer in self.judged)


@dataclass(frozen=True)
class _Section:
    """One session as the template shows it."""

    name: str
    answer: SessionVerdict
    sentence: str
    rows: Sequence[Row]
    forest: plots.Forest
    #: What to know with the sentence.
    notes: Sequence[str]

    @property
    def lines(self) -> list[Line]:
        """The lines of all verdicts, those that matter first."""
        return [row.line for row in self.rows]


def render_html(it: JudgedFile) -> str:
    """Return the page, in one file without a script."""
    sections = _make_sections(it)
    worst = _find_worst(it, sections)
    code = EXIT_CODES[it.outcome] if it.exit_code is None else it.exit_code
    return render_page(
        "judged.html.j2",
        f"{it.outcome.value}: {it.title}",
        it=it,
        sections=sections,
        worst=worst,
        words=it.labels,
        compared=_compare_facts(it.facts),
        code=f"Exit code {code}: {MEANINGS[code]}.",
        max_rows=MAX_ROWS_SHOWN,
    )


def render_markdown(it: JudgedFile) -> str:
    """Return the same as Markdown, for a merge request or a mail."""
    sections, escape = _make_sections(it), markdown.escape
    worst = _find_worst(it, sections)
    lines = [f"# {escape(it.title)}", "", f"**{it.outcome.value}**: {escape(worst.sentence)}", ""]
    lines += [escape(it.next_step), ""] if it.next_step else []
    for section in sections:
        if len(sections) > 1:
            lines += [
                f"## {escape(section.name)}: {section.answer.outcome.value}",
                "",
                escape(section.sentence),
                "",
            ]
        lines += markdown.make_list(section.notes)
        lines += [*markdown.make_verdict_table(section.lines, it.labels), ""] if section.lines else []
        lines += markdown.make_list(line.verdict.message for line in section.lines if not line.verdict.passes)
    if it.facts:
        head = ("compared", it.labels.reference, it.labels.candidate)
        lines += [*markdown.make_table(head, _compare_facts(it.facts)), ""]
    lines += markdown.make_list(f"{name}: {text}" for name, text in it.about.items())
    for title, texts in (("Cannot be told apart", it.caveats), ("Not measured", it.not_measured)):
        lines += [f"**{title}**", "", *markdown.make_list(texts)] if texts else []
    lines += ["To do it again:", "", f"    {' '.join(it.again.split())}", ""] if it.again else []
    return "\n".join(lines).rstrip() + "\n"


def write_report(it: JudgedFile, file: Path) -> None:
    """Write a report; the end of the file's name says in which form.

    Raises
    ------
    UsageError
        The name has another end, or the file cannot be written.
    """
    check_name(file)
    text = render_html(it) if file.suffix == ".html" else render_markdown(it)
    try:
        write_file(text, file)
    except OSError as error:
        raise UsageError(f"-o {file}: {error.strerror}") from error


def check_name(file: Path) -> None:
    """Raise `UsageError` unless a report can have this name: to be called before anything is measured."""
    if file.suffix not in SUFFIXES:
        raise UsageError(f"-o {file}: the name has to end with {' or '.join(SUFFIXES)}")


def _make_sections(it: JudgedFile) -> list[_Section]:
    sections = []
    for name, answer in it.judged:
        series = it.series.get(name, {})
        forest, rows = make_rows(answer.verdicts, series, series, {}, it.labels)
        is_named = it.labels not in (NATIVE_AND_VIRTUAL, REFERENCE_AND_CANDIDATE)
        subject = it.labels.candidate if is_named else f"the {it.labels.build}"
        lines = [row.line for row in rows]
        sentence = describe_answer(answer.outcome, lines, subject, answer.slow_runs)
        sections.append(
            _Section(name, answer, sentence, rows, forest, _list_notes(answer, lines, it.caveats))
        )
    return sections


def _find_worst(it: JudgedFile, sections: Sequence[_Section]) -> _Section:
    """Return the first session with the outcome of the file."""
    empty = _Section("", SessionVerdict(()), "Nothing could be judged.", (), plots.draw_forest([]), ())
    return next((section for section in sections if section.answer.outcome is it.outcome), empty)


def _list_notes(answer: SessionVerdict, lines: Sequence[Line], caveats: Sequence[str]) -> list[str]:
    has_several = len({line.outcome for line in lines}) > 1
    notes = [f"Of {len(lines)} metrics: {describe_so_far(lines)}."] if has_several else []
    reasoned = (Outcome.INVALID, Outcome.UNDECIDED)
    open_lines = [line for line in lines if line.outcome is answer.outcome and line.outcome in reasoned]
    reasons = [f"{line.name}: {line.verdict.reasons[0]}." for line in open_lines if line.verdict.reasons]
    notes += reasons[:MAX_REASONS_SHOWN]
    notes += [f"Slow runs: {answer.slow_runs.text}."] if answer.slow_runs.found else []
    notes += [f"Lost runs: {answer.slow_runs.lost_text}."] if answer.slow_runs.more_runs else []
    return notes + [
        f"{text[:1].upper()}{text[1:]}."
        for text in (answer.without_hosts, "" if caveats else answer.confounded)
        if text
    ]


def _compare_facts(facts: Mapping[Side, Mapping[str, str]]) -> list[tuple[str, str, str]]:
    """Return the facts of both sides in rows: their name, and the text of each side."""
    native, virtual = facts.get("native", {}), facts.get("virtual", {})
    names = dict.fromkeys((*native, *virtual))
    return [(name, native.get(name, "-"), virtual.get(name, "-")) for name in names]
