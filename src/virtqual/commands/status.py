"""`virtqual status`: the state of each system in one line, and the delivery of notices."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Annotated

import typer
from rich.text import Text

from virtqual import paths
from virtqual.commands.believed import verified_summaries
from virtqual.commands.names import select_sessions
from virtqual.errors import InfrastructureError, RefusedError, UsageError, VirtqualError
from virtqual.files.wording import list_names, pluralize
from virtqual.history import outbox
from virtqual.history.channels import NOTIFY, Notify, read_site_notify
from virtqual.history.nights import ANSWERS, find_gap, find_notices, find_standings, group_by_place
from virtqual.report.console import verbatim
from virtqual.session.store import system_of
from virtqual.session.summary import Summary

OVER_CODE, UNDECIDED_CODE, BROKEN_CODE = 1, 3, 5
#: Exit codes (docs/exit-codes.md), the worst last: within, undecided, over, refused, broken.
CODE_ORDER = (0, UNDECIDED_CODE, OVER_CODE, RefusedError.exit_code, UsageError.exit_code, BROKEN_CODE)
STYLES = {0: "green", UNDECIDED_CODE: "yellow"}


def command(
    system: Annotated[str, typer.Option(help="only this system")] = "",
    notify: Annotated[
        bool, typer.Option("--notify", help=f"send new notices, as {NOTIFY} of the site directory says")
    ] = False,
) -> None:
    """Show the state of each system and class in one line.

    The exit code is the worst of all lines: 0 within budget, 3 undecided,
    1 over budget, 4 refused, 5 broken or no session when one was expected.
    """
    console = verbatim()
    settings, now = read_site_notify(sends=notify), datetime.now(UTC)
    if notify and settings is None:
        file = paths.site() / NOTIFY
        raise UsageError(f"{file}: does not exist; write it, it names the channels (docs/nights.md)")
    # The id of a session that cannot be read still tells its system.
    found = [
        (session.system if isinstance(session, Summary) else system_of(directory.name), session)
        for directory, session in verified_summaries(paths.sessions())
    ]
    of_systems = [(name, session) for name, session in found if system in ("", name)]
    sessions = [session for _, session in of_systems]
    readable = select_sessions(sessions, system)
    expected = settings.expected if settings else None
    codes = []
    for _, nights in group_by_place(readable):
        code, line = describe_state(nights, now, expected)
        console.print(Text(line, style=STYLES.get(code, "bold red")), soft_wrap=True)
        codes.append(code)
    for session in sessions:
        if isinstance(session, VirtqualError):
            console.print(Text(f"left out: {session}", style="yellow"), soft_wrap=True)
    # The newest session of a system may have any outcome, or its conclusion is not believed.
    newest = [
        session for session in dict(reversed(of_systems)).values() if isinstance(session, VirtqualError)
    ]
    codes += [error.exit_code if isinstance(error, RefusedError) else UNDECIDED_CODE for error in newest]
    if notify and settings:
        _send_notices(readable, settings, now)
    raise typer.Exit(max(codes, key=CODE_ORDER.index))


def _send_notices(sessions: Sequence[Summary], settings: Notify, now: datetime) -> None:
    notices = find_notices(sessions, expected=settings.expected, now=now)
    # A place is followed from its first night to the last that has an answer.
    spans = {
        place: (nights[0].created, ([n for n in nights if n.answered] or nights)[-1].created)
        for place, nights in group_by_place(sessions)
    }
    sent, failures = outbox.deliver(notices, paths.state() / "outbox", settings.senders(), spans)
    verbatim().print(f"{pluralize(sent, 'notice')} sent")
    if failures:
        raise InfrastructureError(f"notices were not delivered: {'; '.join(failures)}")


def describe_state(nights: Sequence[Summary], now: datetime, expected: timedelta | None) -> tuple[int, str]:
    """Return the exit code of one system and class, and its line; `nights` in the order of time."""
    newest = nights[-1]
    # A session that still runs or may go on has no answer: the session before it counts.
    answered = [night for night in nights if night.answered]
    if not answered:
        return BROKEN_CODE, f"{newest.system} {newest.hypervisor_class}: no session has come to an end yet"
    stands = find_standings(answered)
    outcomes = ["OVER" if over and night.exit_code in ANSWERS else night.outcome for night, over in stands]
    last, over = stands[-1]
    count = len(list(takewhile(lambda outcome: outcome == outcomes[-1], reversed(outcomes))))
    codes = [OVER_CODE if over and last.exit_code in ANSWERS else last.exit_code]
    line = f"{last.system} {last.hypervisor_class}: {outcomes[-1]} since {answered[-count].created:%Y-%m-%d} "
    line += f"({count} in a row), {last.hypervisor}"
    if over:
        line += f"; OVER: {list_names(sorted(over), 3)}"
    if newest is not last:
        line += f"; one of {newest.created:%Y-%m-%d %H:%M} has not come to an end"
    if expected and (since := find_gap(nights, expected, now)):
        codes.append(BROKEN_CODE)
        line += f"; NO SESSION that came to an end since {since:%Y-%m-%d %H:%M}"
    return max(codes, key=CODE_ORDER.index), line
