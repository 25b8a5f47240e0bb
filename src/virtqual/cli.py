"""The command ``virtqual``."""

from __future__ import annotations

import os
import signal
import sys


def _end(*_: object) -> None:
    """End at once: an exception would surface in the module that is being imported."""
    sys.stderr.write("virtqual: interrupted before anything was measured\n")
    sys.stderr.flush()
    os._exit(130)


def _handle_signals(handler: Any) -> None:
    """Set the handler of the signals that end a command: a scheduler's time limit is like a Ctrl-C.

    SIGINT, too: a shell starts background commands with SIGINT ignored.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Under nohup there is no terminal that could hang up.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


# Until all modules of a command are imported.
_handle_signals(_end)

# ruff: noqa: E402
from importlib import import_module, metadata
from io import TextIOWrapper
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from virtqual import paths
from virtqual.commands.messages import report_errors
from virtqual.commands.options import NODES_HELP, STACK_HELP, Names, WaitHours, check_against, check_patterns
from virtqual.errors import UsageError
from virtqual.site.held import DEFAULT_NODES

#: Commands in modules of `virtqual.commands`, by their heading in the help.  They are imported on demand,
#: since code that judges takes a second to import.
HEADINGS = {
    "Measure and judge": "preflight sweep judge",
    "Look at sessions": "list show report compare history status",
    "Describe a system": "site system stack setup inputs propose identity host",
    "Records": "check schema",
}
COMMANDS = {name: heading for heading, names in HEADINGS.items() for name in names.split()}


class _OnDemand(TyperGroup):
    """The group of all commands; every error of a command becomes one message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        if not paths.is_state_shared():
            # Files of the state directory name commands: no group may write them.
            os.umask(os.umask(0o022) | 0o022)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                # A character that the locale cannot print must not end a session.
                stream.reconfigure(errors="replace")
        with report_errors():
            paths.check_state()
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module = import_module(f"virtqual.commands.{cmd_name}")
        command_app = getattr(module, "app", None)
        if command_app is None:
            command_app = typer.Typer(add_completion=False)
            command_app.command()(module.command)
        command: Any = typer.main.get_command(command_app)
        command.name, command.rich_help_panel = cmd_name, COMMANDS[cmd_name]
        _handle_signals(signal.default_int_handler)
        return command


app = typer.Typer(
    cls=_OnDemand,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"virtqual {metadata.version('virtqual')}")
        raise typer.Exit


@app.callback()
def _add_options(
    version: Annotated[
        bool,
        typer.Option("--version", help="show the version", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Qualify hypervisor builds for HPC: native against virtual, judged with stated uncertainty."""


@app.command(rich_help_panel="Measure and judge")
def qualify(
    system: Annotated[str, typer.Option(help="system to run on: the name of its system file")] = "",
    resume: Annotated[
        str | None,
        typer.Option(metavar="SESSION", help="go on with a session that was interrupted or broke off"),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="SESSION",
            help="judge the change since an earlier session (id, 'last', 'good')",
            callback=check_against,
        ),
    ] = None,
    hypervisor_class: Annotated[
        str, typer.Option("--class", help="class of budgets (default: what the system file says)")
    ] = "",
    full: Annotated[
        bool, typer.Option("--full", help="also the longer cases, without which no build is qualified")
    ] = False,
    names: Names = None,
    tags: Annotated[
        list[str] | None,
        typer.Option(
            "-t", "--tag", metavar="REGEX", help="only checks with this tag", callback=check_patterns
        ),
    ] = None,
    stack: Annotated[str, typer.Option(help=STACK_HELP)] = "",
    label: Annotated[str, typer.Option(help="a name for the session")] = "",
    pairs: Annotated[
        int | None,
        typer.Option(min=2, help="pairs of the first round (default: 4, or 2 if no build can be qualified)"),
    ] = None,
    max_pairs: Annotated[
        int,
        typer.Option(min=4, help="pairs at most for one metric, of each node if all nodes work at once"),
    ] = 18,
    fast: Annotated[
        bool, typer.Option("--fast", help="2 pairs first, which can pass; the build is not called qualified")
    ] = False,
    policy: Annotated[
        Literal["serial", "async"],
        typer.Option(help="async: where each run is a job, queue several at once"),
    ] = "serial",
    nodes: Annotated[int, typer.Option(min=1, help=NODES_HELP)] = DEFAULT_NODES,
    wait: WaitHours = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="say what would run, how long and at how many node-hours, and stop")
    ] = False,
    only_check: Annotated[bool, typer.Option("--only-check", hidden=True)] = False,
) -> None:
    """Run the checks on both partitions until every metric is decided, and say the verdict.

    Exit code: 0 within budget or a baseline recorded; 1 over budget; 2 usage;
    3 undecided; 4 refused; 5 infrastructure; 130 interrupted.
    """
    from virtqual import qualify as main_job
    from virtqual.commands import planned

    _handle_signals(signal.default_int_handler)
    request = main_job.Request(
        system=system,
        hypervisor_class=hypervisor_class,
        against=against or "",
        full=full,
        names=tuple(names or ()),
        tags=tuple(tags or ()),
        stack=stack,
        label=label,
        pairs=pairs,
        max_pairs=max_pairs,
        policy=policy,
        fast=fast,
        wait_hours=wait,
        nodes=nodes,
    )
    resumed_by = main_job.Request(system=system, wait_hours=wait, nodes=DEFAULT_NODES)
    if resume is not None and (plan or request != resumed_by):
        raise UsageError("--resume takes no option but --system and --wait: the session has its own")
    if not (system or resume):
        raise UsageError("no system is named: --system NAME, a file of systems/ in the site directory")
    if only_check:
        main_job.check(request, resume)
    elif plan:
        planned.show(request)
    else:
        session = main_job.qualify(request) if resume is None else main_job.resume(resume, request)
        raise typer.Exit(session.exit_code)
