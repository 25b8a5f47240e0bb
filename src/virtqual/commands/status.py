"""`virtqual status`: where each system stands, in a line, and who has to be told."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.text import Text

from virtqual import paths
from virtqual.commands.speaking import speaking
from virtqual.errors import InfrastructureError, UsageError, VirtqualError
from virtqual.files.wording import list_names, pluralize
from virtqual.history import outbox
from virtqual.history.nights import ANSWERS, by_place, gap, notices, standings
from virtqual.report.console import verbatim
from virtqual.session.summary import Summary, summaries

#: Whom to tell is stated in this file of the state directory.
NOTIFY = "notify.yaml"
#: What monitoring calls the states (exit codes of its plugins), the worst last.
OK, WARNING, UNKNOWN, CRITICAL = 0, 1, 3, 2
_WORST = (OK, WARNING, UNKNOWN, CRITICAL)
_STATES = {0: OK, 1: CRITICAL, 3: WARNING}
_STYLE = {OK: "green", WARNING: "yellow", UNKNOWN: "yellow", CRITICAL: "bold red"}


def command(
    system: Annotated[str, typer.Option(help="only this system")] = "",
    notify: Annotated[
        bool, typer.Option("--notify", help=f"send what is new, as {NOTIFY} of the state directory says")
    ] = False,
) -> None:
    """Say in one line for each system and class where it stands.

    The exit code is for monitoring, the worst of all lines: 0 within budget,
    1 undecided, 2 over budget or no answer, 3 no session when one was expected.
    """
    with speaking():
        say = verbatim()
        found = [one for _, one in summaries(paths.sessions()) if not system or _system(one) in ("", system)]
        known = [one for one in found if isinstance(one, Summary)]
        file, now = paths.state() / NOTIFY, datetime.now(UTC)
        if notify and not file.exists():
            raise UsageError(f"{file}: not there, and it says whom to tell (docs/nights.md)")
        settings = outbox.read(file) if file.exists() else None
        expected = settings.expected if settings else None
        state = OK
        for _, nights in by_place(known):
            one, line = standing(nights, now, expected)
            say.print(Text(line, style=_STYLE[one]), soft_wrap=True)
            state = max(state, one, key=_WORST.index)
        if not known:
            say.print(f"no session below {paths.sessions()}", soft_wrap=True)
            state = UNKNOWN
        for unreadable in (one for one in found if isinstance(one, VirtqualError)):
            say.print(Text(f"left out: {unreadable}", style="yellow"), soft_wrap=True)
        if isinstance(next(iter(found), None), VirtqualError):
            # The newest one: what it says is not known.
            state = max(state, WARNING, key=_WORST.index)
        if notify and settings and known:
            told = notices(known, expected=expected, now=now)
            spans = {place: _span(nights) for place, nights in by_place(known)}
            sent, failed = outbox.deliver(told, paths.state() / "outbox", settings.ways(), spans)
            say.print(f"{pluralize(sent, 'notice')} sent")
            if failed:
                raise InfrastructureError(f"not all could be told: {'; '.join(failed)}")
    raise typer.Exit(state)


def _span(nights: Sequence[Summary]) -> outbox.Span:
    answered = [night for night in nights if night.answered]
    return nights[0].created, (answered or nights)[-1].created


def _system(one: Summary | VirtqualError) -> str:
    return one.system if isinstance(one, Summary) else ""


def standing(nights: Sequence[Summary], now: datetime, expected: timedelta | None) -> tuple[int, str]:
    """Return the state of one system and class, and a line that says it; `nights` in the order of time."""
    every, newest = nights, nights[-1]
    # One that still runs, or was interrupted and may go on, has no answer yet: what was before it holds.
    nights = [night for night in nights if night.answered]
    if not nights:
        return UNKNOWN, f"{newest.system} {newest.hypervisor_class}: no session has come to an end yet"
    stands = standings(nights)
    stood = ["OVER" if over and one.exit_code in ANSWERS else one.outcome for one, over in stands]
    last, over = stands[-1]
    same = next((n for n, one in enumerate(reversed(stood)) if one != stood[-1]), len(stood))
    state = CRITICAL if over else _STATES.get(last.exit_code, CRITICAL)
    line = f"{last.system} {last.hypervisor_class}: {stood[-1]} since {nights[-same].created:%Y-%m-%d} "
    line += f"({same} in a row), {last.hypervisor}"
    if over:
        line += f"; OVER: {list_names(sorted(over), 3)}"
    if newest is not last:
        line += f"; one of {newest.created:%Y-%m-%d %H:%M} has not come to an end"
    if expected and (since := gap(every, expected, now)):
        state = max(state, UNKNOWN, key=_WORST.index)
        line += f"; NO SESSION that came to an end since {since:%Y-%m-%d %H:%M}"
    return state, line


app = typer.Typer(add_completion=False)
app.command()(command)
