"""What preflight found, as people read it, in 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from virtqual.preflight.finding import Finding

_STYLE = {"refuse": "bold red", "report": "yellow", "unseen": "dim"}
_WORD = {"refuse": "refused", "report": "reported"}


def show(findings: Sequence[Finding], console: Console, *, briefly: bool = False) -> None:
    """Print findings, what refuses first; `briefly` says in two lines what is only reported."""
    for finding in findings:
        if finding.action == "unseen":
            continue
        if briefly and finding.action == "report":
            line = Text(f"reported {finding.item}: ", style=_STYLE["report"])
            line.append(shorten(finding.reason, 145 - len(finding.item), placeholder=" ..."), style="default")
            console.print(line)
            continue
        head = Text(f"{_WORD[finding.action]} ", style=_STYLE[finding.action])
        head.append(finding.item, style="bold")
        head.append(f"  (protects {', '.join(finding.protects)})", style="dim")
        console.print(head)
        console.print(Padding(Text(finding.reason), (0, 0, 0, 4)))
        console.print(Padding(Text(f"-> {finding.remedy}", style="dim"), (0, 0, 0, 4)))
    unseen = dict.fromkeys(finding.item for finding in findings if finding.action == "unseen")
    if unseen:
        console.print(Text(f"not observable, so not compared: {', '.join(unseen)}", style="dim"))


def conclusion(findings: Sequence[Finding], hypervisor_class: str) -> str:
    """Return one sentence."""
    refused = len({finding.item for finding in findings if finding.action == "refuse"})
    reported = len({finding.item for finding in findings if finding.action == "report"})
    if refused:
        return f"Not comparable under class {hypervisor_class}: {refused} refused, {reported} reported."
    return f"Comparable under class {hypervisor_class}: none refused, {reported} reported."
