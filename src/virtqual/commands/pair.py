"""`virtqual pair`: any two commands, run in turns and judged."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from virtqual.commands.answers import parse_percent, print_lines
from virtqual.errors import INTERRUPTED, UsageError, exit_code_of
from virtqual.pair.measure import Limits, Measurement
from virtqual.pair.metrics import check_readers, parse_metrics
from virtqual.pair.notes import list_differences
from virtqual.pair.plan import Files, Plan, read_seconds
from virtqual.pair.progress import Progress
from virtqual.pair.report import describe, describe_next, list_caveats
from virtqual.report.console import verbatim
from virtqual.report.judged import check_name, write_report
from virtqual.report.summary import describe_answer, sort_lines
from virtqual.report.terminal import Terminal
from virtqual.session.conclusion import EXIT_CODES
from virtqual.verdict.labels import REFERENCE_AND_CANDIDATE

#: Longer names would leave no room in the table of verdicts.
MAX_NAME_CHARS = 16
_MEASURED = "What is measured"
_DECIDED = "What is allowed, and when it ends"
_KEPT = "What is kept and shown"


def _percent(text: str) -> Any:
    return typer.Option(parser=parse_percent, metavar="PERCENT", help=text, rich_help_panel=_DECIDED)


def _measured(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_MEASURED, **more)


def _decided(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_DECIDED, **more)


def _kept(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_KEPT, **more)


def command(
    reference: Annotated[str | None, typer.Argument(help="command of the reference side, for sh -c")] = None,
    candidate: Annotated[str | None, typer.Argument(help="command that is compared with it")] = None,
    budget: Annotated[float | None, _percent("how much slower the candidate may be, such as 5%")] = None,
    margin: Annotated[
        float | None, _percent("how far above the budget a slowdown may hide, such as 3%")
    ] = None,
    metric: Annotated[
        list[str] | None,
        _measured(
            "--metric",
            metavar="[NAME=]REGEX",
            help="pattern with ( ) around the number in the output; repeat it for more (default: wall time)",
        ),
    ] = None,
    unit: Annotated[
        list[str] | None,
        _measured("--unit", help="unit of that number: one for all metrics, or one for each"),
    ] = None,
    better: Annotated[
        list[str] | None,
        _measured("--better", metavar="lower|higher", help="which way is better; known for s, ms, GB/s, ..."),
    ] = None,
    reader: Annotated[
        list[str] | None,
        _measured("--reader", metavar="PROGRAM", help="take the metrics of a program: osu, stream, hpl, ..."),
    ] = None,
    warmup: Annotated[
        int, _measured("--warmup", "-w", min=0, metavar="N", help="runs of each side before the first pair")
    ] = 1,
    prepare: Annotated[
        list[str] | None,
        _measured(
            "--prepare", "-p", metavar="CMD", help="run before each run: one for both, or one for each"
        ),
    ] = None,
    ignore_failure: Annotated[
        bool, _measured("--ignore-failure", "-i", help="take runs with another exit code than 0, too")
    ] = False,
    timeout: Annotated[
        str | None,
        _measured(
            "--timeout",
            metavar="TIME",
            help="a run that takes longer is lost: 90, 5m, 2h (default: 10 times the longest run, 10 min at "
            "least)",
        ),
    ] = None,
    min_runs: Annotated[
        int, _decided("--min-runs", "-m", min=0, metavar="N", help="pairs at least (the rule: 4 to pass)")
    ] = 0,
    max_runs: Annotated[
        int | None, _decided("--max-runs", "-M", min=2, metavar="N", help="pairs at most (the rule: 18)")
    ] = None,
    names: Annotated[
        tuple[str, str] | None,
        _kept("--names", metavar="A B", help="words for the sides (default: reference candidate)"),
    ] = None,
    note: Annotated[
        tuple[str, str] | None,
        _kept(
            "--note",
            metavar="A B",
            help="prefixes that run a script on each side, such as 'ssh bm1' 'ssh vm1': host, boot, CPU, "
            "virtualisation",
        ),
    ] = None,
    csv: Annotated[
        Path | None, _kept("--csv", metavar="FILE", help="the pairs, as virtqual judge reads them")
    ] = None,
    resume: Annotated[
        Path | None, _kept("--resume", metavar="FILE", help="go on with the pairs of this CSV file")
    ] = None,
    output: Annotated[
        Path | None, _kept("--output", "-o", metavar="FILE", help="write a report: .html or .md")
    ] = None,
    as_json: Annotated[bool, _kept("--json", help="print JSON lines (virtqual-verdict/3)")] = False,
) -> None:
    """Run two commands in turns, and judge how much slower the second one is.

    It stops after 4, 8, 12 or 18 pairs, as soon as the answer is sure
    (docs/pair.md).

    Exit code: 0 within the budget, 1 over it, 3 undecided, 4 refused, 2 usage,
    5 a command cannot be run, 130 interrupted.
    """
    if output is not None:
        _check_output(output)
    asked = {
        "commands": (reference, candidate),
        "names": names,
        "metrics": parse_metrics(metric or (), unit or (), better or ()),
        "readers": tuple(reader or ()),
        "budget": budget,
        "margin": margin,
        "prepare": _spread_prepare(prepare or ()),
        "warmup": warmup,
        "ignore_failure": ignore_failure,
        "note": tuple(note or ()),
        "directory": str(Path.cwd()),
        "output": str(output or ""),
    }
    limits = Limits(read_seconds(timeout) if timeout is not None else None, min_runs, max_runs)
    if max_runs is not None and min_runs > max_runs:
        raise UsageError(f"--min-runs {min_runs} is more than --max-runs {max_runs}")
    if resume is not None:
        files, plan = Files(resume), _resume_plan(Files(resume), asked, csv)
    else:
        files, plan = _begin_plan(asked, csv)
    descriptor = files.lock()
    try:
        plan = _keep_output(plan, files, output)
        _measure(plan, files, limits, as_json=as_json)
    finally:
        os.close(descriptor)


def _check_output(file: Path) -> None:
    """Raise a `UsageError` if a report cannot have this name, before anything is measured."""
    check_name(file)
    directory = file.parent
    if not directory.is_dir():
        raise UsageError(f"-o {file}: there is no directory {directory}")
    if file.is_dir() or not os.access(file if file.exists() else directory, os.W_OK):
        raise UsageError(f"-o {file}: this file cannot be written")


def _keep_output(plan: Plan, files: Files, output: Path | None) -> Plan:
    """Return the plan with the file of the report, so that --resume writes it again."""
    if output is None or plan.output == str(output):
        if plan.output:
            _check_output(Path(plan.output))
        return plan
    plan = plan.model_copy(update={"output": str(output)})
    files.save_plan(plan)
    return plan


def _spread_prepare(commands: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    if len(commands) > 2:
        raise UsageError(f"{len(commands)} times --prepare: state it once for both sides, or once for each")
    return tuple(commands) * (2 if len(commands) == 1 else 1)


def _begin_plan(asked: dict[str, Any], csv: Path | None) -> tuple[Files, Plan]:
    """Return the files and the plan of a new measurement, after all of it was checked."""
    reference, candidate = asked["commands"]
    if not reference or not candidate:
        raise UsageError(
            "name two commands, each in quotes: virtqual pair 'ssh bm1 ./app' 'ssh vm1 ./app' --budget 5% "
            "--margin 3%"
        )
    budget, margin = asked["budget"], asked["margin"]
    if budget is None or margin is None:
        lacking = "--budget" if budget is None else "--margin"
        raise UsageError(
            f"{lacking} is missing: how much slower may the candidate be? With --budget 5% --margin 3% it "
            "passes if it is up to 5 % slower, and does not at 8 %; a smaller margin takes more pairs"
        )
    if margin == 0:
        raise UsageError("--margin 0 would take infinitely many pairs: state one such as 3%")
    check_readers(asked["readers"])
    names = _check_names(asked["names"]) if asked["names"] else REFERENCE_AND_CANDIDATE
    files = Files(csv or Path(f"pair-{datetime.now():%Y%m%d-%H%M%S}.csv"))
    files.check_new()
    plan = Plan(**asked | {"names": names})
    files.save_plan(plan)
    return files, plan


def _check_names(names: tuple[str, str]) -> tuple[str, str]:
    for name in names:
        if not 0 < len(name.strip()) <= MAX_NAME_CHARS or not name.isprintable():
            raise UsageError(f"--names {name!r}: write a word of at most {MAX_NAME_CHARS} characters")
    if names[0] == names[1]:
        raise UsageError(f"--names {names[0]} {names[1]}: write two different words")
    return names


def _resume_plan(files: Files, asked: dict[str, Any], csv: Path | None) -> Plan:
    """Return the plan of a measurement that goes on; what the command line states, too, must be the same."""
    if csv is not None and csv != files.table:
        raise UsageError(f"--csv {csv} does not go with --resume {files.table}, which names the file already")
    plan = files.load_plan()
    stated = {key: value for key, value in asked.items() if value not in (None, (), (None, None))}
    if asked["commands"] != (None, None) and None in asked["commands"]:
        raise UsageError("--resume FILE needs no commands; if you name them, name both")
    for key, default in (("warmup", 1), ("ignore_failure", False)):
        if stated[key] == default:
            del stated[key]
    differing = plan.list_differences(plan.model_copy(update=stated))
    if "the working directory" in differing:
        raise UsageError(f"--resume {files.table}: its commands were run in {plan.directory}: go there first")
    if differing:
        values = [
            f"{name}: {mine} in {files.plan}, and {stated} here" for name, (mine, stated) in differing.items()
        ]
        listed, it = "; ".join(values), "it" if len(values) == 1 else "them"
        raise UsageError(
            f"--resume {files.table}: {listed}; leave {it} out to go on with what was begun, or begin again "
            "with another --csv FILE"
        )
    return plan


def _measure(plan: Plan, files: Files, limits: Limits, *, as_json: bool) -> None:
    """Measure, show the verdict on what there is, and end with its exit code."""
    progress = Progress(verbatim(stderr=True), plan.names)
    measurement = Measurement(plan, files, limits, progress)
    is_interrupted, failure = False, None
    with progress:
        try:
            measurement.run()
        except KeyboardInterrupt:
            is_interrupted = True
        except Exception as error:
            failure = error
    if failure is not None or is_interrupted:
        measurement.judge()
    if measurement.answer is None or (failure and not measurement.answer.attempted):
        # Nothing can be gone on with: the next attempt finds no files in its way.
        files.remove()
        raise failure or KeyboardInterrupt
    if as_json:
        _print_lines(measurement)
    else:
        _print_answer(measurement, is_interrupted=is_interrupted)
    if plan.output:
        ended = exit_code_of(failure) if failure else INTERRUPTED if is_interrupted else None
        write_report(describe(measurement, ended), Path(plan.output))
        verbatim(soft_wrap=True, stderr=as_json).print(f"report: {plan.output}")
    if failure is not None:
        raise failure
    code = INTERRUPTED if is_interrupted else EXIT_CODES[measurement.answer.verdict.outcome]
    raise typer.Exit(code)


def _print_lines(measurement: Measurement) -> None:
    """Print the lines of `virtqual judge --json`."""
    assert measurement.answer is not None  # it was judged
    answer = measurement.answer.verdict
    reasons = [answer.slow_runs.text, answer.slow_runs.lost_text, *list_caveats(measurement)]
    print_lines([(measurement.table.session, answer, [*filter(None, reasons)])])


def _print_answer(measurement: Measurement, *, is_interrupted: bool) -> None:
    """Print the verdict, what differs between the sides, and what cannot be told apart."""
    assert measurement.answer is not None  # it was judged
    terminal, answer = Terminal(), measurement.answer.verdict
    console = terminal.console
    console.print()
    terminal.verdicts(answer.verdicts, answer.slow_runs)
    if measurement.notes:
        _print_differences(measurement)
    for caveat in list_caveats(measurement):
        console.print(Text(caveat, style="dim"))
    lines = sort_lines(answer.verdicts)
    sentence = describe_answer(answer.outcome, lines, measurement.plan.names[1])
    what = "Interrupted. So far: " if is_interrupted else ""
    console.print(Text(f"\n{what}{answer.outcome.value}: {sentence}", style="bold"))
    if next_step := describe_next(measurement):
        console.print(Text(next_step), soft_wrap=True)
    table = measurement.table.file
    console.print(f"pairs: {table}; outputs: {measurement.files.outputs}", soft_wrap=True)


def _print_differences(measurement: Measurement) -> None:
    """Print the notes of both sides where they differ."""
    rows = list_differences(measurement.notes[0])
    if rows:
        Terminal().console.print()
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("differs", no_wrap=True)
        for name in measurement.plan.names:
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*row)
        Terminal().console.print(table)
        Terminal().console.print()
