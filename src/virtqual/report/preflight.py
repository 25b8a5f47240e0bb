"""What preflight found, as people read it, in 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from virtqual.preflight.finding import Action, Finding

_STYLE = {"refuse": "bold red", "report": "yellow", "unseen": "dim"}
_WORD = {"refuse": "refused", "report": "reported"}


def show(findings: Sequence[Finding], console: Console, *, briefly: bool = False) -> None:
    """Print findings, what refuses first; `briefly` only names what is reported."""
    told: dict[tuple[Action, str], list[Finding]] = {}
    for finding in findings:
        told.setdefault((finding.action, finding.item), []).append(finding)
    for (action, item), same in told.items():
        if action == "unseen":
            continue
        if briefly and action == "report":
            continue
        head = Text(f"{_WORD[action]} ", style=_STYLE[action])
        head.append(item, style="bold")
        head.append(f"  (protects {', '.join(same[0].protects)})", style="dim")
        console.print(head)
        for finding in same:
            console.print(Padding(Text(finding.reason), (0, 0, 0, 4)))
        console.print(Padding(Text(f"-> {same[0].remedy}", style="dim"), (0, 0, 0, 4)))
    if briefly and (reported := [item for action, item in told if action == "report"]):
        console.print(
            Text("reported, not refused: ", style=_STYLE["report"]).append(", ".join(reported), "default")
        )
    found = {item for action, item in told if action != "unseen"}
    if unseen := [item for action, item in told if action == "unseen" and item not in found]:
        console.print(Text(f"not observable, so not compared: {', '.join(unseen)}", style="dim"))


def conclusion(findings: Sequence[Finding], hypervisor_class: str) -> str:
    """Return one sentence."""
    refused = len({finding.item for finding in findings if finding.action == "refuse"})
    reported = len({finding.item for finding in findings if finding.action == "report"})
    if refused:
        return f"Not comparable under class {hypervisor_class}: {refused} refused, {reported} reported."
    return f"Comparable under class {hypervisor_class}: none refused, {reported} reported."
