"""A session in short: what of it lists, nights and histories look at.

It stands in a file beside the session's document, from which it can be made again at any time: years of
sessions are read in seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from virtqual.errors import UsageError
from virtqual.files.records import write_whole
from virtqual.references import Gate
from virtqual.references.load import known as references
from virtqual.session.facts import facts
from virtqual.session.judge import admitted_of
from virtqual.session.log import DOCUMENT, LOG
from virtqual.session.pairing import series_of
from virtqual.session.session import Session
from virtqual.session.store import each, load
from virtqual.verdict import Outcome, VerdictRecord
from virtqual.verdict.pairs import PairingError, Series

FILE = "summary.json"


class VerdictSummary(BaseModel):
    """What was decided about one metric; see `virtqual.verdict.record.VerdictRecord`.

    Attributes
    ----------
    overhead
        ln(virtual/native), signed so that positive is worse; None where native is not observable.
    spread
        Standard deviation of a pair's overhead; None of fewer than two pairs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    metric: str
    setting: str
    gate: Gate
    outcome: Outcome
    passes: bool
    ratio: float | None
    better: Literal["lower", "higher"]
    native: float | None
    virtual: float | None
    overhead: float | None
    spread: float | None
    pairs: int

    @property
    def name(self) -> str:
        """What was judged, for people."""
        return f"{self.metric} {self.setting}" + (" (change)" if self.gate == "change" else "")

    @classmethod
    def of(cls, verdict: VerdictRecord, series: Series | None) -> VerdictSummary:
        """Return a verdict on a series in short."""
        judged = verdict.judged
        return cls(
            metric=verdict.metric,
            setting=verdict.setting,
            gate=verdict.gate,
            outcome=verdict.outcome,
            passes=verdict.passes,
            ratio=judged and judged.ratio,
            better=verdict.better,
            native=verdict.native,
            virtual=verdict.virtual,
            overhead=verdict.overhead and verdict.overhead.log,
            spread=_spread(series),
            pairs=verdict.pairs,
        )


def _spread(series: Series | None) -> float | None:
    if series is None or series.yardstick or len(series.valid) < 2:
        return None
    return float(series.differences().mean(axis=1).std(ddof=1))


class Summary(BaseModel):
    """One session in short; see `virtqual.session.session.Session`.

    Attributes
    ----------
    complete
        Whether all checks of its scope were asked for, and none was left without a verdict.
    facts
        What it says of itself and of its machines; see `virtqual.session.facts`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_: Literal["virtqual-summary/3"] = Field(alias="schema", default="virtqual-summary/3")
    session: str
    label: str
    created: datetime
    system: str
    hypervisor_class: str
    hypervisor: str
    full: bool
    complete: bool
    runs: int
    outcome: str
    exit_code: int
    conclusion: str
    facts: dict[str, str]
    verdicts: tuple[VerdictSummary, ...]

    @property
    def good(self) -> bool:
        """Whether later sessions may be held against it: all of its scope was judged, and is WITHIN.

        A baseline will do, where a class judges nothing but changes; what a waiver accepts will not: it would
        be accepted without one from then on.
        """
        fine = all(one.outcome in (Outcome.WITHIN, Outcome.BASELINE) for one in self.verdicts)
        return self.complete and self.exit_code == 0 and bool(self.verdicts) and fine

    @property
    def answered(self) -> bool:
        """Whether it has come to an end: one that still runs, or was interrupted, may go on."""
        return self.outcome not in ("UNFINISHED", "INTERRUPTED")

    @classmethod
    def of(cls, session: Session, series: Mapping[str, Series] | None = None) -> Summary:
        """Return a session in short; `series` are what its runs say, by id."""
        asked, series = session.request, series or {}
        return cls(
            session=session.session,
            label=session.label,
            created=datetime.fromisoformat(session.created),
            system=session.system,
            hypervisor_class=session.hypervisor_class,
            hypervisor=session.hypervisor,
            full=bool(asked and asked.full),
            complete=bool(asked and not (asked.names or asked.tags or session.failures or session.refused)),
            runs=len(session.runs),
            outcome=session.outcome,
            exit_code=session.exit_code,
            conclusion=session.conclusion,
            facts=facts(session),
            verdicts=tuple(VerdictSummary.of(one, series.get(one.series)) for one in session.verdicts),
        )


def summaries(sessions: Path) -> Iterator[tuple[Path, Summary | UsageError]]:
    """Yield every session of a directory in short, the newest first; for one that cannot be read, why."""
    return each(sessions, summary)


def summary(directory: Path) -> Summary:
    """Return a session in short, from its file if that was made of the session as it is now.

    Raises
    ------
    UsageError
        The session cannot be read.
    """
    file = directory / FILE
    newest = max(
        (p.stat().st_mtime_ns for p in (directory / LOG, directory / DOCUMENT) if p.exists()), default=0
    )
    # One that is not there, or of another version, is made again.
    with suppress(OSError, ValidationError):
        if file.stat().st_mtime_ns == newest:
            return Summary.model_validate_json(file.read_bytes())
    session, series, lasting = load(directory), {}, True
    try:
        series = series_of(admitted_of(session).runs, references())
    except PairingError:
        # Its runs make no pairs, and its verdicts still stand.
        pass
    except UsageError:
        # So do they where a file of metrics is wrong or another one, until it is mended.
        lasting = False
    made = Summary.of(session, series)
    if not lasting:
        return made
    # Of another user's session it is made each time.
    with suppress(OSError):
        write_whole(made, file)
        # A session that went on while it was read is newer than what was read of it.
        os.utime(file, ns=(newest, newest))
    return made


def good(sessions: Path, system: str, hypervisor_class: str, *, full: bool) -> Iterator[Path]:
    """Yield the sessions of a system, class and scope that are `Summary.good`, the newest first."""
    wanted = system, hypervisor_class, full
    for directory, one in summaries(sessions):
        if isinstance(one, Summary) and (one.system, one.hypervisor_class, one.full) == wanted and one.good:
            yield directory
