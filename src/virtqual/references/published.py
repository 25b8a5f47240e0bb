"""Claims of published studies: the numbers that a study printed, and what it concluded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from virtqual.files import reading
from virtqual.files.datafile import DataError, DataModel, Problem, Text
from virtqual.files.datareader import DataReader
from virtqual.verdict.budget import Sizes
from virtqual.verdict.metric import NotNegative, Positive

INCONSISTENCIES = "inconsistencies.yaml"


class StudyDescription(DataModel):
    """A published study."""

    id: Text
    title: Text
    publisher: Text
    date: Text
    build: Text
    conditions: Text


class StatedPrior(DataModel):
    """The noise that printed values are taken to have, and the number of pairs that a value stands for."""

    sigma: Positive
    df: Positive
    pairs: Annotated[int, Field(ge=2)]
    source: Text


class PublishedCase(DataModel):
    """A comparison that a claim makes; for a curve the same at all `sizes`, or only inside `bump`."""

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
    def _check_comparison(self) -> Self:
        if [self.candidate, self.ratio, self.difference].count(None) != 2:
            raise ValueError("give one of `candidate`, `ratio` and `difference`.")
        if (self.reference is None) != (self.ratio is not None):
            raise ValueError("`reference` goes with `candidate` or `difference`, and not with `ratio`.")
        if self.reference_expected is not None and self.reference is None:
            raise ValueError("`reference_expected` needs a `reference` to compare with.")
        return self

    @property
    def values(self) -> tuple[float, float]:
        """Reference and candidate; 1 and the ratio if only the ratio is printed."""
        if self.reference is None:
            return 1.0, self.ratio or 1.0
        difference = self.difference or 0.0
        return self.reference, self.reference + difference if self.candidate is None else self.candidate


class NativeValue(DataModel):
    """An absolute native value that a study prints without a virtual one."""

    metric: Text
    setting: Text
    value: Positive
    unit: Text


class Claim(DataModel):
    """A claim that is judged by its cases, or listed with a remark."""

    id: Annotated[str, Field(pattern=r"^[A-Z]\d+$")]
    where: Text | None = None
    claim: Text
    inconsistency: Text | None = None
    concluded: Literal["WITHIN", "OVER", "INVALID"] | None = None
    cases: tuple[PublishedCase, ...] = Field((), strict=False)
    listed_as: Text | None = None
    native: NativeValue | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        is_judged = bool(self.cases)
        if is_judged == (self.listed_as is not None) or is_judged != (self.concluded is not None):
            raise ValueError("a claim has `cases` and what was `concluded`, or is `listed_as` what it is.")
        return self


class Study(DataModel):
    """A file of ``references/published``: a study with its claims."""

    schema_: Annotated[Literal["virtqual-published/1"], Field(alias="schema")]
    study: StudyDescription
    prior: StatedPrior
    claims: tuple[Claim, ...] = Field(strict=False)


def find_claim_ids(directory: Path) -> frozenset[str]:
    """Return the ids of all claims, by the lines that state them: each ReFrame needs no more of the claims.

    Raises
    ------
    DataError
        A file cannot be read.
    """
    ids = set[str]()
    for path in directory.glob("*.yaml"):
        try:
            text = reading.read_bytes(path, reading.MAX_REVIEWED_BYTES).decode("utf-8", "replace")
        except OSError as error:
            raise DataError([Problem(str(path), None, "", f"cannot be read: {error.strerror}.")]) from None
        if path.name != INCONSISTENCIES:
            ids.update(re.findall(r"^ *- id: ([A-Z]\d+)\s*$", text, re.MULTILINE))
    return frozenset(ids)


def load_studies(directory: Path) -> list[Study]:
    """Read the studies of ``references/published``.

    Raises
    ------
    DataError
        With file, line and key of every mistake, such as an id of two claims.
    """
    reader = DataReader()
    paths = [path for path in reader.find_files(directory) if path.name != INCONSISTENCIES]
    studies: list[Study] = []
    for file in reader.read(paths, Study):
        for index, claim in enumerate(file.content.claims):
            file.is_first(("claims", index, "id"), claim.id, f"claim {claim.id!r} stands already at")
        studies.append(file.content)
    reader.raise_problems()
    return studies
