"""Verdicts as JSON lines: one for each series and one for each session; see docs/judge-your-own.md."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from virtqual.verdict import Outcome, Verdict
from virtqual.verdict.slow_runs import SlowRuns

Schema = Literal["virtqual-verdict/3"]


class VerdictLine(Verdict):
    """A verdict with its session."""

    schema_: Schema = Field(alias="schema", default="virtqual-verdict/3")
    kind: Literal["series"] = "series"
    session: str


class SessionLine(BaseModel, extra="forbid", frozen=True):
    """The answer on a session; a file of pairs never qualifies a build."""

    schema_: Schema = Field(alias="schema", default="virtqual-verdict/3")
    kind: Literal["session"] = "session"
    session: str
    outcome: Outcome
    qualified: Literal[False] = False
    slow_runs: SlowRuns
    reasons: list[str]
