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


def _report_broken_installation(*error: Any) -> None:
    """Exit as infrastructure does: Python's own exit code would say OVER."""
    sys.__excepthook__(*error)
    sys.stderr.flush()
    os._exit(5)


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
sys.excepthook = _report_broken_installation

# ruff: noqa: E402
from importlib import import_module, metadata
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from virtqual import paths
from virtqual.commands.messages import report_errors
from virtqual.errors import UsageError
from virtqual.files.wording import suggest

#: Commands in modules of `virtqual.commands`, by their heading in the help.  They are imported on demand,
#: since code that judges takes a second to import.
HEADINGS = {
    "Measure and judge": "qualify pair judge preflight sweep",
    "Look at sessions": "list show report compare history status",
    "Describe a system": "site system stack setup inputs propose identity host",
    "Records": "check schema",
}
#: Commands that start with the checks of a checkout.
_OF_CHECKOUT = {"qualify", "setup", "sweep"}
COMMANDS = {name: heading for heading, names in HEADINGS.items() for name in names.split()}


class _OnDemand(TyperGroup):
    """The group of all commands; every error of a command becomes one message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        # Files of the state directory name commands: a group may write them only if it shares the directory.
        before = os.umask(0o022)
        os.umask(before & ~0o070 if paths.is_state_shared() else before | 0o022)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                # A character that the locale cannot print must not end a session.
                stream.reconfigure(errors="replace")
        with report_errors():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # `check` names all files that others can change, and its help promises 4; of one session it refuses.
        if args[:1] != ["check"] and "--help" not in args:
            paths.check_directories()
            if args and args[0] in _OF_CHECKOUT:
                paths.root()
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            raise UsageError(f"there is no command {cmd_name!r}: {suggest(cmd_name, COMMANDS)}")
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


def _print_version(value: bool) -> None:
    if value:
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
