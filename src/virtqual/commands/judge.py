"""`virtqual judge`: pairs of any harness, judged by the code that judges sessions."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.text import Text

from virtqual.commands.options import check_against
from virtqual.errors import UsageError
from virtqual.references import project_references
from virtqual.report.console import verbatim
from virtqual.report.lines import SessionLine, VerdictLine
from virtqual.report.terminal import Terminal
from virtqual.session.conclusion import EXIT_CODES
from virtqual.session.judge import choose_min_pairs
from virtqual.session.measured import read_series
from virtqual.session.measured_cases import CaseMaker
from virtqual.verdict import SessionVerdict, first_of, judge_sessions
from virtqual.verdict.budget import Budget, BudgetError, Gate
from virtqual.verdict.notation import read_budget


def _parse_budget(text: str) -> float:
    try:
        return read_budget(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _percent_option(text: str) -> Any:
    return typer.Option(parser=_parse_budget, metavar="PERCENT", help=text)


def command(
    file: Annotated[Path, typer.Argument(help="CSV or JSON lines, one row a value; - for standard input")],
    hypervisor_class: Annotated[
        str, typer.Option("--class", help="class of budgets, for metrics that the reviewed files know")
    ] = "",
    budget: Annotated[
        float | None, _percent_option("of all other metrics: how much slower than native, such as 5%")
    ] = None,
    margin: Annotated[
        float | None, _percent_option("how far above its budget an overhead may hide, such as 3%")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="the session of the file that the others are held against",
            callback=check_against,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON lines (virtqual-verdict/3)")] = False,
) -> None:
    """Judge pairs of runs that any harness measured.

    Each session of the file is judged for itself (docs/judge-your-own.md).

    Exit code: of the worst session, 4 refused, 1 over budget, 3 undecided,
    else 0; 2 usage.
    """
    if (budget is None) != (margin is None):
        raise UsageError("--budget and --margin belong together, such as --budget 5% --margin 3%")
    if margin == 0:
        raise UsageError("--margin 0 would take infinitely many pairs: state one such as 3%")
    stated: dict[Gate, Budget] = {}
    if budget is not None and margin is not None:
        stated = {gate: Budget.build(budget, margin=margin, gate=gate) for gate in get_args(Gate)}
    judged = _judge_file(file, hypervisor_class, stated, against or "")
    (_print_lines if as_json else _print_tables)(judged)
    raise typer.Exit(EXIT_CODES[first_of(answer.outcome for _, answer in judged)])


def _judge_file(
    file: Path, class_name: str, stated: Mapping[Gate, Budget], against: str
) -> list[tuple[str, SessionVerdict]]:
    """Return the sessions of a file by name, and the verdict of each."""
    references = project_references()
    chosen = references.hypervisor_class(class_name) if class_name else None
    file = Path("/dev/stdin") if str(file) == "-" else file
    # The samples of a large file stay alive: the collector would visit all of them again and again, in vain.
    gc.disable()
    try:
        # It is shown on a terminal only.
        with verbatim(stderr=True).status(Text(f"reading {file}")) as status:
            series = read_series(file, lambda rows: status.update(Text(f"reading {file}: {rows:,} rows")))
            cases = CaseMaker(str(file), references, class_name, stated).make_all(series, against)
            status.update(Text(f"judging {sum(map(len, cases)):,} series"))
            answers = judge_sessions(cases, hypervisor_class=chosen, min_pairs=choose_min_pairs(chosen))
            return list(zip(series, answers, strict=True))
    except BudgetError as error:
        raise UsageError(f"{file}: {error}") from error
    finally:
        gc.enable()


def _list_reasons(answer: SessionVerdict) -> list[str]:
    """Return why a session is not called qualified, and what its series do not say."""
    reasons = ["not qualified: a file of pairs is not the checks that a class asks for"]
    reasons += [reason for reason in (answer.without_hosts, answer.confounded) if reason]
    if answer.slow_runs.found:
        reasons.append(f"slow runs: {answer.slow_runs.text}")
    if answer.slow_runs.more_runs:
        reasons.append(f"lost runs: {answer.slow_runs.lost_text}")
    return reasons


def _print_lines(judged: list[tuple[str, SessionVerdict]]) -> None:
    try:
        for name, answer in judged:
            for verdict in answer.verdicts:
                print(VerdictLine(session=name, **dict(verdict)).model_dump_json(by_alias=True))
            reasons, slow_runs = _list_reasons(answer), answer.slow_runs
            line = SessionLine(session=name, outcome=answer.outcome, slow_runs=slow_runs, reasons=reasons)
            print(line.model_dump_json(by_alias=True))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has ended: the exit code is the same.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_tables(judged: list[tuple[str, SessionVerdict]]) -> None:
    terminal = Terminal()
    for name, answer in judged:
        terminal.console.print(Text("session ").append(name, "bold"))
        terminal.verdicts(answer.verdicts, answer.slow_runs)
        terminal.hosts(answer.verdicts, answer.outliers)
        terminal.console.print(Text(f"{answer.outcome.value}; {'; '.join(_list_reasons(answer))}\n"))
