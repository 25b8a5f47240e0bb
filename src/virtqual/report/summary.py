"""What a reader wants first: one sentence for all verdicts, and a line for each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from virtqual.files.wording import pluralize
from virtqual.verdict import Interval, Outcome, Verdict
from virtqual.verdict.notation import (
    Direction,
    exp_or_inf,
    format_percent,
    format_value,
    has_factor,
    scale_unit,
)
from virtqual.verdict.slow_runs import SlowRuns

#: The picture shows percent if all slowdowns and limits are below this one.
MAX_PERCENT_LOG = math.log(2.2)
#: What blocks is shown first.
_ORDER = (Outcome.OVER, Outcome.INVALID, Outcome.UNDECIDED, Outcome.WITHIN, Outcome.BASELINE)
#: What the exit code of each outcome means.
MEANINGS = {
    0: "it passes",
    1: "over budget",
    3: "undecided, which is not a pass",
    4: "refused: no comparison is possible",
    5: "the infrastructure failed",
    130: "interrupted",
}


@dataclass(frozen=True)
class Line:
    """One verdict in a table: of a curve the size or range that decides it."""

    verdict: Verdict
    judged: Interval | None
    #: The budget at that size in log units; None without one.
    limit: float | None
    #: The overhead from which on no estimate is WITHIN there, in log units.
    within_below: float | None
    #: Such as ``at 2 MiB`` or ``from 16 to 128 B``; empty for a scalar.
    size: str
    #: In the verdict's unit.
    native: float | None
    virtual: float | None

    @property
    def outcome(self) -> Outcome:
        """The outcome of the verdict."""
        return self.verdict.outcome

    @property
    def slowdown(self) -> str:
        """The estimate without its interval; ``-`` if there is none."""
        return self.result.partition(" (")[0]

    @property
    def bounds(self) -> str:
        """The interval; empty if it is unknown."""
        return self.result.partition(" (")[2].removesuffix(")")

    @property
    def result(self) -> str:
        """Such as ``35.0% slower (16.0% to 45.0%)``; ``-`` without an estimate."""
        return self.judged.text(self.verdict.better) if self.judged else "-"

    @property
    def allowed(self) -> str:
        """Such as ``at most 60%``, or ``at most 20x`` next to a factor; ``-`` without a budget."""
        if self.limit is None or self.judged is None:
            return "-"
        better = self.verdict.better
        return describe_allowed(self.limit, better, as_factor=self.judged.is_factor(better))

    @property
    def scaled(self) -> tuple[str, str, str]:
        """The values of the reference and of the candidate side, and their unit, as people write them."""
        unit, values = scale_unit(self.verdict.unit, self.native, self.virtual)
        native, virtual = map(format_value, values)
        return native, virtual, unit

    @property
    def name(self) -> str:
        """Metric, setting and size."""
        change = " (change)" if self.verdict.has_change else ""
        return f"{self.verdict.name}{change} {self.size}".strip()


def describe_allowed(limit: float, better: Direction, *, as_factor: bool = False) -> str:
    """Return the largest slowdown that is allowed, such as ``at most 60%``, or ``at most 4x``.

    Examples
    --------
    >>> describe_allowed(math.log(1.1), "lower"), describe_allowed(math.log(4), "lower")
    ('at most 10%', 'at most 4x')
    """
    fraction = share_of(limit, better)
    if fraction >= 1 - 1e-9 or (as_factor and has_factor(better, limit)):
        return f"at most {exp_or_inf(limit):.3g}x"
    return f"at most {format_percent(round(fraction, 4))}"


def make_line(verdict: Verdict) -> Line:
    """Return the line of a verdict, of a curve that of the size or range that decides."""
    deciding = verdict.deciding
    limit = None if verdict.outcome is Outcome.BASELINE else deciding.limit
    within_below = None if limit is None or deciding.margin is None else limit + deciding.margin
    return Line(
        verdict, deciding.judged, limit, within_below, verdict.where, deciding.native, deciding.virtual
    )


def make_whole_line(verdict: Verdict) -> Line:
    """Return the line of a verdict with the mean over all sizes of a curve, and no limit."""
    return Line(verdict, verdict.estimate, None, None, "", verdict.native, verdict.virtual)


def sort_lines(verdicts: Iterable[Verdict]) -> list[Line]:
    """Return the lines of verdicts: what blocks first, then the slowest first, by the numbers shown."""
    lines = [make_line(verdict) for verdict in verdicts]
    has_factors = shows_factors(lines)
    return sorted(lines, key=lambda line: _rank(line, has_factors=has_factors))


def _rank(line: Line, *, has_factors: bool) -> tuple[bool, int, bool, float]:
    judged, slowdown = line.judged, 0.0
    if judged:
        slowdown = judged.log if has_factors else share_of(judged.log, line.verdict.better)
    return line.verdict.passes, _ORDER.index(line.outcome), judged is None, -slowdown


def shows_factors(lines: Iterable[Line | None]) -> bool:
    """Return whether a slowdown or limit is so large that the picture shows factors, and not percent."""
    judged = [line for line in lines if line and line.judged]
    logs = [log for line in judged if line.judged for log in (line.judged.log, line.limit or 0.0)]
    return any(abs(log) > MAX_PERCENT_LOG for log in logs)


def share_of(log: float, better: Direction) -> float:
    """Return by which fraction of the reference's value the candidate is slower."""
    return exp_or_inf(log) - 1 if better == "lower" else 1 - exp_or_inf(-log)


def describe_answer(
    outcome: Outcome, lines: Sequence[Line], subject: str, slow_runs: SlowRuns | None = None
) -> str:
    """Return one or two sentences on sorted lines: how many metrics hold, and the worst with its limit.

    `subject` is what was judged, such as a build.

    Examples
    --------
    >>> describe_answer(Outcome.INVALID, [], "The candidate")
    'Nothing could be judged.'
    """
    text = _describe_outcome(outcome, lines, subject, slow_runs) if lines else "Nothing could be judged."
    return f"The {text[4:]}" if text.startswith("the ") else text


def _describe_outcome(
    outcome: Outcome, lines: Sequence[Line], subject: str, slow_runs: SlowRuns | None
) -> str:
    chosen = [line for line in lines if line.outcome is outcome and not line.verdict.waived]
    if outcome is Outcome.OVER:
        if not chosen:
            why = f" ({slow_runs.text})" if slow_runs else ""
            return f"{subject} is not within budget: its runs are slow or lost too often{why}."
        worst = _describe_one(chosen, chosen[0], "The worst")
        return f"{subject} is over budget{_count(chosen, lines)}. {worst}"
    if outcome is Outcome.UNDECIDED:
        return _describe_undecided(chosen, lines, subject)
    if outcome is Outcome.INVALID:
        return f"{subject} could not be judged{_count(chosen, lines)}."
    if outcome is Outcome.BASELINE:
        metrics = pluralize(len(lines), "metric")
        return f"A baseline of {subject} was recorded with {metrics}; no budget applies to it."
    if waived := sum(line.verdict.waived for line in lines):
        within = f"{len(lines) - waived} of {pluralize(len(lines), 'metric')}"
        return f"{subject} is within budget on {within}; {waived} accepted by waiver."
    nearest = _describe_one(lines, _find_nearest(lines), "Nearest to its limit")
    return f"{subject} is within budget{_count(lines, lines)}. {nearest}"


def _describe_undecided(chosen: Sequence[Line], lines: Sequence[Line], subject: str) -> str:
    if not chosen:
        return f"No verdict on {subject}, although it is within budget{_count(lines, lines)}: runs were lost."
    first = _describe_one(chosen, chosen[0], "The slowest")
    if all(not line.verdict.pairs and line.judged for line in chosen):
        return f"An estimate, and no verdict. {first}"
    yet = " yet" if any(line.verdict.next_pairs for line in chosen) else ""
    return f"No verdict{yet} on {subject}{_count(chosen, lines)}. {first}"


def _count(some: Sequence[Line], lines: Sequence[Line]) -> str:
    """Return such as `` on 2 of 11 metrics``; empty if there is one alone."""
    # A metric may have a verdict on its overhead, and one on the change.
    noun = "metric" if len({line.verdict.gate for line in lines}) == 1 else "verdict"
    if len(lines) == 1:
        return ""
    if len(some) == len(lines):
        return f" on {'both' if len(lines) == 2 else f'all {len(lines)}'} {noun}s"
    return f" on {len(some)} of {len(lines)} {noun}s"


def _describe_one(lines: Sequence[Line], line: Line, which: str) -> str:
    """Return one of some lines in a sentence, with its limit."""
    allowed = "" if line.limit is None else f", {line.allowed} is allowed"
    head = f"{which} is {line.name}: " if len(lines) > 1 else f"{line.name} is "
    return f"{head}{line.result}{allowed}."


def _find_nearest(lines: Sequence[Line]) -> Line:
    """Return the line that is nearest to its limit."""
    known = [line for line in lines if line.judged] or lines
    return max(known, key=lambda line: line.judged.log - (line.limit or 0.0) if line.judged else 0.0)


def describe_so_far(lines: Sequence[Line]) -> str:
    """Return how many of the verdicts have which outcome, such as ``2 over budget, 9 within budget``."""
    words = {
        Outcome.OVER: "over budget",
        Outcome.INVALID: "not judged",
        Outcome.UNDECIDED: "undecided",
        Outcome.WITHIN: "within budget",
        Outcome.BASELINE: "recorded without a budget",
    }
    counts = Counter(Outcome.WITHIN if line.verdict.passes else line.outcome for line in lines)
    parts = [f"{counts[outcome]} {word}" for outcome, word in words.items() if counts[outcome]]
    if len(parts) == 1 and len(lines) > 1:
        return f"all {parts[0].partition(' ')[2]}"
    return ", ".join(parts)
