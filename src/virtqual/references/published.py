"""Published claims, as data: what a study printed and what it concluded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from virtqual.files.datafile import DataError, DataModel, Problem, find_yaml_files, parse
from virtqual.files.wording import suggest
from virtqual.verdict.budget import Sizes
from virtqual.verdict.metric import NotNegative, Positive, Text

Id = Annotated[str, Field(pattern=r"^[A-Z]\d+$")]


class StudyEntry(DataModel):
    """A published study."""

    id: Text
    title: Text
    publisher: Text
    date: Text
    build: Text
    conditions: Text


class StatedPrior(DataModel):
    """The noise that printed values are taken to have, and for how many pairs one stands."""

    sigma: Positive
    df: Positive
    pairs: Annotated[int, Field(ge=2)]
    source: Text


class CaseEntry(DataModel):
    """One comparison that a claim makes.

    Either `reference` and `candidate`, or their `ratio`, or a `difference` from `reference`; for a
    curve the same at all `sizes`, or only inside `bump`.
    """

    metric: Text
    setting: Text
    sizes: list[Positive] | None = None
    bump: Sizes | None = None
    reference: Positive | None = None
    candidate: Positive | None = None
    ratio: Positive | None = None
    difference: NotNegative | None = None
    reference_expected: Positive | None = None
    refused: Text | None = None
    assumption: Text | None = None

    @model_validator(mode="after")
    def _one_comparison(self) -> Self:
        given = [name for name in ("candidate", "ratio", "difference") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("give one of `candidate`, `ratio` and `difference`.")
        if (self.reference is None) != (self.ratio is not None):
            raise ValueError("`reference` goes with `candidate` or `difference`, and not with `ratio`.")
        if self.reference_expected is not None and self.reference is None:
            raise ValueError("`reference_expected` needs a `reference` to compare with.")
        return self

    @property
    def values(self) -> tuple[float, float]:
        """Reference and candidate; 1 and the ratio where only that is printed."""
        if self.ratio is not None:
            return 1.0, self.ratio
        reference = self.reference or 0.0
        return reference, self.candidate if self.candidate is not None else reference + (
            self.difference or 0.0
        )


class NativeEntry(DataModel):
    """An absolute native value that a study prints without a virtual one."""

    metric: Text
    setting: Text
    value: Positive
    unit: Text


class ClaimEntry(DataModel):
    """One claim: judged by its cases, or listed as what it is."""

    id: Id
    where: Text | None = None
    claim: Text
    inconsistency: Text | None = None
    concluded: Literal["WITHIN", "OVER", "INVALID"] | None = None
    cases: Annotated[list[CaseEntry], Field(default_factory=list)]
    listed_as: Text | None = None
    native: NativeEntry | None = None

    @model_validator(mode="after")
    def _judged_or_listed(self) -> Self:
        if bool(self.cases) == (self.listed_as is not None) or bool(self.cases) != (
            self.concluded is not None
        ):
            raise ValueError("a claim has `cases` and what was `concluded`, or is `listed_as` what it is.")
        return self


class _StudyFile(DataModel):
    schema_: Annotated[Literal["virtqual-published/1"], Field(alias="schema")]
    study: StudyEntry
    prior: StatedPrior
    claims: list[ClaimEntry]


class InconsistencyEntry(DataModel):
    """A point at which studies contradict themselves, each other, or other knowledge."""

    id: Id
    studies: list[Text]
    what: Text


class _InconsistenciesFile(DataModel):
    schema_: Annotated[Literal["virtqual-inconsistencies/1"], Field(alias="schema")]
    inconsistencies: list[InconsistencyEntry]


@dataclass(frozen=True)
class Study:
    """A study with its claims, in the order of its file."""

    study: StudyEntry
    prior: StatedPrior
    claims: tuple[ClaimEntry, ...]


@dataclass(frozen=True)
class Published:
    """All studies, and the inconsistencies by id."""

    studies: tuple[Study, ...]
    inconsistencies: Mapping[str, InconsistencyEntry]


def load_published(directory: Path | str) -> Published:
    """Read ``references/published``.

    Raises
    ------
    DataError
        Naming file, line and key of every mistake: a claim twice, an inconsistency that is not listed.
    """
    directory = Path(directory)
    problems: list[Problem] = []
    studies: list[Study] = []
    inconsistencies: dict[str, InconsistencyEntry] = {}
    references: list[tuple[str, Problem]] = []
    seen: dict[str, str] = {}
    for path in find_yaml_files(directory):
        try:
            document = parse(path)
            if "inconsistencies" in document.content:
                for entry in document.read(_InconsistenciesFile).inconsistencies:
                    inconsistencies[entry.id] = entry
                continue
            content = document.read(_StudyFile)
        except DataError as error:
            problems.extend(error.problems)
            continue
        for index, claim in enumerate(content.claims):
            key = ("claims", index, "id")
            if claim.id in seen:
                problems.append(
                    document.problem(key, f"claim {claim.id!r} stands already at {seen[claim.id]}.")
                )
            seen.setdefault(claim.id, document.where(key))
            if claim.inconsistency is not None:
                there = document.problem(("claims", index, "inconsistency"), "")
                references.append((claim.inconsistency, there))
        studies.append(Study(content.study, content.prior, tuple(content.claims)))
    for name, there in references:
        if name not in inconsistencies:
            message = f"unknown inconsistency {name!r}: {suggest(name, inconsistencies)}"
            problems.append(Problem(there.file, there.line, there.key, message))
    if problems:
        raise DataError(problems)
    return Published(tuple(studies), inconsistencies)
