"""The claims of published studies, judged by the code that judges sessions.

    . ci/activate && python benchmarks/studies/run.py [--references DIR] [--class production]

Writes ``docs/studies.md``. A study prints one value where a session has pairs: the value stands for as many
pairs, with the spread, as the study's file in ``references/published/`` states. Ends with 1 if a conclusion
differs and no reason is known.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from virtqual import paths
from virtqual.files.datafile import DataError, DataModel, parse
from virtqual.files.wording import suggest
from virtqual.references import References, load_references
from virtqual.references.published import (
    INCONSISTENCIES,
    Claim,
    PublishedCase,
    StatedPrior,
    Study,
    load_studies,
)
from virtqual.verdict import Case, Outcome, Verdict, first_of, judge_sessions
from virtqual.verdict.noise import Prior
from virtqual.verdict.pairs import SIDES, Sample, Series, pair_up

# A native value that is farther from its own reference is not compared with.
NATIVE_TOLERANCE = 0.05


@dataclass(frozen=True, eq=False)
class JudgedClaim:
    """A claim of a study with a verdict for each of its cases, and a note for readers."""

    study: str
    claim: Claim
    verdicts: tuple[Verdict, ...]
    note: str

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of all cases; None if nothing can be judged."""
        return first_of(verdict.outcome for verdict in self.verdicts) if self.verdicts else None

    @property
    def agrees(self) -> bool:
        """Study and virtqual conclude the same, or nothing can be judged."""
        return self.outcome is None or self.outcome.value == self.claim.concluded

    @property
    def overheads(self) -> str:
        """The overheads of the cases."""
        return ", ".join(map(format_overhead, self.verdicts))


class Inconsistency(DataModel):
    """A point at which studies contradict themselves, each other, or other knowledge."""

    id: str
    studies: list[str]
    what: str


class InconsistenciesFile(DataModel):
    schema_: Annotated[Literal["virtqual-inconsistencies/1"], Field(alias="schema")]
    inconsistencies: list[Inconsistency]


def load_published(directory: Path) -> tuple[list[Study], dict[str, str]]:
    """Return the studies, and their inconsistencies by id; an unknown id is a mistake."""
    studies = load_studies(directory)
    entries = parse(directory / INCONSISTENCIES).read(InconsistenciesFile).inconsistencies
    texts = {entry.id: entry.what for entry in entries}
    problems = []
    for path in sorted(directory.glob("*.yaml")):
        document = parse(path)
        for index, claim in enumerate(document.content.get("claims", [])):
            name = claim.get("inconsistency")
            if name is not None and name not in texts:
                message = f"unknown inconsistency {name!r}: {suggest(name, texts)}"
                problems.append(document.problem(("claims", index, "inconsistency"), message))
    if problems:
        raise DataError(problems)
    return studies, texts


def judge_claims(
    studies: Sequence[Study],
    inconsistencies: Mapping[str, str],
    references: References,
    hypervisor_class: str = "production",
) -> list[JudgedClaim]:
    """Judge every published claim that has numbers, in the order of the files."""
    judged = []
    for study in studies:
        prior = Prior(sigma=study.prior.sigma, df=study.prior.df, source=study.prior.source)
        for claim in study.claims:
            verdicts: list[Verdict] = []
            for entry in claim.cases:
                series = make_series(entry, study.prior, references)
                budget = references.budget(series, hypervisor_class, gate="overhead")
                case = Case(series, budget, prior, refused=_refusals(entry))
                (session,) = judge_sessions([[case]], looks=[study.prior.pairs])
                verdicts += session.verdicts
            note = _note(claim, inconsistencies)
            judged.append(JudgedClaim(study.study.id, claim, tuple(verdicts), note))
    return judged


def make_series(case: PublishedCase, stated: StatedPrior, references: References) -> Series:
    """Return the pairs for which a printed comparison stands."""
    metric = references.metrics[case.metric]
    points = tuple(case.sizes or ())
    reference, candidate = case.values
    native = np.full(max(len(points), 1), reference)
    virtual = np.full(len(native), candidate)
    if case.bump is not None:
        is_outside = [not case.bump.low <= size <= case.bump.high for size in points]
        virtual[is_outside] = reference
    return pair_up(metric, case.setting, points, _samples(native, virtual, stated.pairs))


def _samples(native: np.ndarray, virtual: np.ndarray, pairs: int) -> Iterator[Sample]:
    values = {"native": native, "virtual": virtual}
    for number in range(pairs):
        for position, side in enumerate(SIDES if number % 2 == 0 else SIDES[::-1]):
            start = 2.0 * number + position
            # A clock would have to be coarse to show one value again and again.
            drifted = (values[side] * (1 + 1e-6 * number)).tolist()
            yield Sample(side, number, tuple(drifted), start, start + 1)


def _refusals(case: PublishedCase) -> tuple[str, ...]:
    refusals = [] if case.refused is None else [case.refused]
    if case.reference_expected is not None:
        off = case.values[0] / case.reference_expected - 1
        if abs(math.log1p(off)) > NATIVE_TOLERANCE:
            refusals.append(f"native is {off:+.1%} off its own reference of {case.reference_expected:g}")
    return tuple(refusals)


def _note(claim: Claim, inconsistencies: Mapping[str, str]) -> str:
    notes = []
    if claim.inconsistency is not None:
        notes.append(f"{claim.inconsistency}: {inconsistencies[claim.inconsistency]}")
    notes += [text for case in claim.cases for text in (case.refused, case.assumption) if text]
    return "; ".join(dict.fromkeys(notes))


def format_ratio(ratio: float) -> str:
    return f"{ratio:.3f}x" if 0.8 <= ratio < 1.2 else f"{ratio:.2f}x"


def format_overhead(verdict: Verdict) -> str:
    if verdict.findings:
        finding = verdict.findings[0]
        is_range = finding.low is not None and finding.high is not None
        sizes = f" at {finding.low:g} to {finding.high:g}" if is_range else ""
        return f"{format_ratio(finding.judged.ratio)}{sizes}"
    return format_ratio(verdict.overhead.ratio) if verdict.overhead else "-"


def make_page(claims: Sequence[JudgedClaim], studies: Sequence[Study]) -> str:
    """Return the page: a table for each study, and the notes on its claims."""
    judged = [claim for claim in claims if claim.outcome is not None]
    differing = [claim for claim in judged if not claim.agrees]
    lines = [
        "# Published studies",
        "",
        "Written by `python benchmarks/studies/run.py`: the numbers that the studies print, judged by the",
        "code that judges sessions.",
        "",
        f"{len(claims)} claims: {len(judged)} judged, {len(claims) - len(judged)} listed as what they are;",
        f"{len(judged) - len(differing)} as the study concludes, {len(differing)} otherwise (**bold**).",
        "I1, I2, ... are contradictions of the studies, from `references/published/inconsistencies.yaml`.",
    ]
    for study in studies:
        entry, stated = study.study, study.prior
        lines += ["", f"## {entry.title}", ""]
        lines += [f"{entry.publisher}, {entry.date}; build: {entry.build}. A printed value stands for"]
        lines += [f"{stated.pairs} pairs that vary by {stated.sigma:.1%}.", ""]
        lines += ["| id | claim | study | virtqual | virtual/native |", "|---|---|---|---|---|"]
        own = [claim for claim in claims if claim.study == entry.id]
        for claim in own:
            outcome = "-" if claim.outcome is None else claim.outcome.value
            cells = (
                claim.claim.id,
                claim.claim.claim,
                claim.claim.concluded or "-",
                outcome if claim.agrees else f"**{outcome}**",
                claim.overheads or claim.claim.listed_as or "",
            )
            lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
        claims_by_note: dict[str, list[str]] = defaultdict(list)
        for claim in own:
            if claim.note or not claim.agrees:
                claims_by_note[claim.note or "no reason is known"].append(claim.claim.id)
        notes = [f"- {', '.join(ids)}: {note}" for note, ids in claims_by_note.items()]
        lines += ["", *notes] if notes else []
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Judge the claims of published studies.")
    parser.add_argument("--references", type=Path, default=paths.references())
    parser.add_argument("--class", dest="hypervisor_class", default="production")
    parser.add_argument("--output", type=Path, default=paths.root() / "docs/studies.md")
    options = parser.parse_args(arguments)
    studies, inconsistencies = load_published(options.references / "published")
    references = load_references(options.references)
    claims = judge_claims(studies, inconsistencies, references, options.hypervisor_class)
    options.output.write_text(make_page(claims, studies), encoding="utf-8")
    return int(any(not claim.agrees and not claim.note for claim in claims))


if __name__ == "__main__":
    sys.exit(main())
