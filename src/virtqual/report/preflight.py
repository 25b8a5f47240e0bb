"""The findings of preflight as text for people, in 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from virtqual.preflight.canaries import Canary
from virtqual.preflight.finding import Action, Finding

_STYLE = {"refuse": "bold red", "report": "yellow", "unseen": "dim"}
_WORD = {"refuse": "refused", "report": "reported"}


def show(findings: Sequence[Finding], console: Console, *, briefly: bool = False) -> None:
    """Print findings, refusals first; `briefly` only names the items that are reported."""
    findings_by_item: dict[tuple[Action, str], list[Finding]] = {}
    for finding in findings:
        findings_by_item.setdefault((finding.action, finding.item), []).append(finding)
    for (action, item), group in findings_by_item.items():
        if action == "unseen" or (briefly and action == "report"):
            continue
        head = Text(f"{_WORD[action]} ", style=_STYLE[action])
        head.append(item, style="bold")
        head.append(f"  (claims at risk: {', '.join(group[0].protects)})", style="dim")
        console.print(head)
        for finding in group:
            console.print(Padding(Text(finding.reason), (0, 0, 0, 4)))
        console.print(Padding(Text(f"-> {group[0].remedy}", style="dim"), (0, 0, 0, 4)))
    reported = [item for action, item in findings_by_item if action == "report"]
    if briefly and reported:
        text = Text("reported, not refused: ", style=_STYLE["report"])
        console.print(text.append(", ".join(reported), "default"))
    compared = {item for action, item in findings_by_item if action != "unseen"}
    unseen = [item for action, item in findings_by_item if action == "unseen" and item not in compared]
    if unseen:
        console.print(Text(f"not observable, so not compared: {', '.join(unseen)}", style="dim"))


def show_canaries(canaries: Sequence[Canary], console: Console, *, briefly: bool = False) -> None:
    """Print canaries, missing features first; `briefly` only names the features that are not observable."""
    for canary in canaries:
        if canary.state == "missing":
            head = Text("canary ", style="bold red").append(canary.answer, "bold")
            console.print(head.append(f"  (claims at risk: {', '.join(canary.protects)})", "not bold dim"))
            console.print(Padding(Text(canary.evidence), (0, 0, 0, 4)))
            console.print(Padding(Text(f"-> {canary.remedy}", style="dim"), (0, 0, 0, 4)))
    quiet = [canary for canary in canaries if canary.state != "missing"]
    if not briefly:
        for canary in quiet:
            console.print(Text(f"canary {canary.text}", style="dim"))
    elif quiet:
        unseen = ", ".join(canary.feature for canary in quiet if canary.state == "unknown") or "none"
        console.print(Text(f"canaries not observable: {unseen}", style="dim"))


def explain_claims(findings: Sequence[Finding], canaries: Sequence[Canary], console: Console) -> None:
    """Explain the ids of claims if one was printed."""
    shown = any(finding.action != "unseen" for finding in findings)
    if shown or any(canary.state == "missing" for canary in canaries):
        text = "Claims are results of published studies; docs/studies.md lists them."
        console.print(Text(text, style="dim"))


def conclusion(findings: Sequence[Finding], hypervisor_class: str) -> str:
    """Return the answer of preflight in one sentence."""
    refused = len({finding.item for finding in findings if finding.action == "refuse"})
    reported = len({finding.item for finding in findings if finding.action == "report"})
    if refused:
        return f"Not comparable under class {hypervisor_class}: {refused} refused, {reported} reported."
    return f"Comparable under class {hypervisor_class}: none refused, {reported} reported."
