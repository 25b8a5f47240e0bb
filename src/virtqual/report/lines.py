"""Verdicts as JSON lines: one for each series and one for each session; see docs/judge-your-own.md."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field

from virtqual.verdict import Interval, Outcome, Verdict
from virtqual.verdict.slow_runs import SlowRuns

Schema = Literal["virtqual-verdict/2"]


class VerdictLine(Verdict):
    """A verdict, with its session and its estimate at the top level."""

    schema_: Schema = Field(alias="schema", default="virtqual-verdict/2")
    kind: Literal["series"] = "series"
    session: str

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ratio(self) -> float | None:
        """virtual/native or its change; of a baseline the recorded overhead."""
        shown = self._interval
        return shown.ratio if shown and math.isfinite(shown.ratio) else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def low(self) -> float | None:
        """The smaller end of the interval of `ratio`."""
        return (self._interval.low or None) if self._interval else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def high(self) -> float | None:
        """The larger end of the interval of `ratio`."""
        return self._interval.high if self._interval else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def nodes(self) -> dict[str, float]:
        """The same as `hosts`."""
        return self.hosts

    @property
    def _interval(self) -> Interval | None:
        return self.overhead if self.outcome is Outcome.BASELINE else self.judged


class SessionLine(BaseModel):
    """The answer on a session; a file of pairs never qualifies a build."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_: Schema = Field(alias="schema", default="virtqual-verdict/2")
    kind: Literal["session"] = "session"
    session: str
    outcome: Outcome
    qualified: Literal[False] = False
    slow_runs: SlowRuns
    reasons: list[str]
