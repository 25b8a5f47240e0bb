"""A finding of preflight: one difference, why it matters, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel

#: ``refuse``: nothing may be judged; ``report``: a person should know; ``unseen``: could not be compared.
Action = Literal["refuse", "report", "unseen"]
ORDER: tuple[Action, ...] = ("refuse", "report", "unseen")


class Finding(BaseModel, extra="forbid", frozen=True):
    """An item of ``references/preflight.yaml`` that did not pass; `protects` holds ids of claims."""

    item: str
    action: Action
    reason: str
    remedy: str
    protects: tuple[str, ...]

    def prefix(self, words: str) -> Finding:
        """Return the finding with words before its reason, such as the nodes that show it."""
        return self.model_copy(update={"reason": f"{words}: {self.reason}"})

    @property
    def text(self) -> str:
        """One sentence with all of it."""
        return f"{self.item}: {self.reason}; {self.remedy} (claims at risk: {', '.join(self.protects)})"


def refusals(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return the sentences of those that refuse."""
    return tuple(f"preflight: {finding.text}" for finding in findings if finding.action == "refuse")
