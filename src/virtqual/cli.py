"""The command ``virtqual``."""

from __future__ import annotations

import os
import signal
import sys


def _end(*_: object) -> None:
    """End at once: an exception would come to light in whatever is imported just now."""
    sys.stderr.write("virtqual: interrupted before anything was measured\n")
    sys.stderr.flush()
    os._exit(130)


def _on_signals(handler: Any) -> None:
    """Say what ends this command: a scheduler at its time limit is like a person with Ctrl-C.

    A shell starts what it puts into the background with SIGINT ignored.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Under nohup nobody is there who could hang up.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


# From the first moment on, and until all that a command needs is imported.
_on_signals(_end)

# ruff: noqa: E402
import re
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from virtqual import paths
from virtqual.commands.speaking import speaking
from virtqual.errors import UsageError

#: Commands in modules of their own (``virtqual.commands``), imported when asked for: what judges takes a
#: second to import, and a node says what it is without that.
COMMANDS = (
    "check",
    "convert",
    "repair",
    "show",
    "list",
    "compare",
    "history",
    "identity",
    "host",
    "inputs",
    "judge",
    "preflight",
    "record",
    "replay",
    "report",
    "setup",
    "stack",
    "status",
    "sweep",
)


class _OnDemand(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        if not paths.is_state_shared():
            # Files of the state directory name commands: no group may write them.
            os.umask(os.umask(0o022) | 0o022)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                # What the locale cannot print is no reason to lose a session.
                stream.reconfigure(errors="replace")
        with speaking():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        command = typer.main.get_command(import_module(f"virtqual.commands.{cmd_name}").app)
        command.name = cmd_name
        _on_signals(signal.default_int_handler)
        return command


app = typer.Typer(
    cls=_OnDemand,
    help="Qualify hypervisor builds for HPC: native against virtual, judged with stated uncertainty.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _group() -> None:
    """Without a callback Typer makes no group of one command."""


@app.command()
def qualify(
    system: Annotated[str, typer.Option(help="system to run on: a file of reframe/systems/")] = "",
    resume: Annotated[
        str | None,
        typer.Option(metavar="SESSION", help="go on with a session that was interrupted or broke off"),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="SESSION", help="judge the change since an earlier session (id, 'last', 'good')"
        ),
    ] = None,
    hypervisor_class: Annotated[
        str, typer.Option("--class", help="class of budgets (default: what the system file says)")
    ] = "",
    full: Annotated[bool, typer.Option("--full", help="also the longer cases")] = False,
    name: Annotated[
        list[str] | None, typer.Option("-n", "--name", help="only checks whose name matches")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option("-t", "--tag", help="only checks with this tag")] = None,
    stack: Annotated[str, typer.Option(help="software stack (default: spack, else the first by name)")] = "",
    label: Annotated[str, typer.Option(help="a name for the session")] = "",
    pairs: Annotated[int | None, typer.Option(min=2, help="pairs of the first round (default: 4)")] = None,
    max_pairs: Annotated[int, typer.Option(min=4, help="pairs at most for one metric")] = 18,
    policy: Annotated[
        Literal["serial", "async"],
        typer.Option(help="async: where each run is a job, queue several at once"),
    ] = "serial",
    plan: Annotated[
        bool, typer.Option("--plan", help="say what would run, how long and at what cost, and stop")
    ] = False,
    only_check: Annotated[bool, typer.Option("--only-check", hidden=True)] = False,
) -> None:
    """Run the checks on both partitions until every metric is decided, and say the verdict.

    Exit code: 0 within budget or a baseline recorded; 1 over budget; 2 usage;
    3 undecided; 4 refused; 5 infrastructure; 130 interrupted.
    """
    from virtqual import qualify as main_job
    from virtqual.report.terminal import Terminal

    if plan:
        from virtqual.commands import planned

    _on_signals(signal.default_int_handler)
    with speaking():
        if against == "":
            raise UsageError("--against names no session; leave it out to compare with none")
        for option, patterns in (("--name", name), ("--tag", tag)):
            for pattern in patterns or ():
                try:
                    re.compile(pattern)
                except re.error as error:
                    raise UsageError(f"{option} {pattern!r} is no regular expression: {error}") from None
        request = main_job.Request(
            system=system,
            hypervisor_class=hypervisor_class,
            against=against or "",
            full=full,
            names=tuple(name or ()),
            tags=tuple(tag or ()),
            stack=stack,
            label=label,
            pairs=pairs,
            max_pairs=max_pairs,
            policy=policy,
        )
        if resume is not None and (plan or request != main_job.Request(system=system)):
            raise UsageError("--resume: the session says what was asked for; only --system goes with it")
        if not (system or resume):
            raise UsageError("no system is named: --system NAME, a file of reframe/systems/")
        if only_check:
            main_job.check(request, resume)
            return
        if plan:
            planned.show(request)
            return
        if resume:
            session = main_job.resume(resume, system, Terminal())
        else:
            session = main_job.qualify(request, Terminal())
    raise typer.Exit(session.exit_code)
