"""`virtqual judge`: runs that any harness measured, judged by the code that judges sessions."""

from __future__ import annotations

import gc
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer
from rich.text import Text

from virtqual.commands.answers import parse_percent, print_lines
from virtqual.commands.options import check_against
from virtqual.errors import UsageError
from virtqual.files.wording import list_names
from virtqual.formats.found import Wanted
from virtqual.formats.load import Loaded, load_file, load_two
from virtqual.references import project_references
from virtqual.report.console import verbatim
from virtqual.report.judged import JudgedFile, check_name, write_report
from virtqual.report.terminal import Terminal
from virtqual.session.conclusion import EXIT_CODES
from virtqual.session.held_back import ADVICE, UNKNOWN_HOSTS, estimate, hold_back, state_same_host
from virtqual.session.judge import choose_min_pairs
from virtqual.session.measured import FileSeries
from virtqual.session.measured_cases import CaseMaker
from virtqual.verdict import Case, SessionVerdict, first_of, judge_sessions
from virtqual.verdict.budget import Budget, BudgetError, Gate
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.pairs import Series
from virtqual.verdict.verdict import Verdict

Judged = list[tuple[str, SessionVerdict]]
_NOT_QUALIFIED = "not qualified: a file of pairs is not the checks that a class asks for"
_MAX_NOTES = 10
_NO_FILE = (
    "name a file, or both sides: virtqual judge FILE, or virtqual judge --reference PATH --candidate "
    "PATH (files or "
    "directories of outputs); docs/judge-your-own.md has an example for each format"
)


def _percent_option(text: str) -> Any:
    return typer.Option(parser=parse_percent, metavar="PERCENT", help=text)


def _name_option(text: str, metavar: str = "NAME") -> Any:
    return typer.Option(metavar=metavar, help=text)


def command(
    file: Annotated[
        Path | None, typer.Argument(help="file with both sides, of any known format; - for standard input")
    ] = None,
    reference: Annotated[
        str, _name_option("reference side: its name in FILE; without FILE its file or directory")
    ] = "",
    candidate: Annotated[str, _name_option("candidate side, in the same way")] = "",
    hypervisor_class: Annotated[
        str, typer.Option("--class", help="class of budgets, for metrics that the reviewed files know")
    ] = "",
    budget: Annotated[
        float | None, _percent_option("of all other metrics: how much slower than the reference, such as 5%")
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
    same_host: Annotated[
        bool,
        typer.Option("--same-host", help="both sides ran on one machine, though the file does not say so"),
    ] = False,
    paired: Annotated[
        bool, typer.Option("--paired", help="row k of both sides ran next to each other, in turns")
    ] = False,
    metric: Annotated[str, _name_option("what the values are, or which of several the file has")] = "",
    unit: Annotated[str, _name_option("the unit of values that have none", "UNIT")] = "",
    better: Annotated[
        Literal["lower", "higher"] | None, typer.Option(help="lower for a time, higher for a rate")
    ] = None,
    reader: Annotated[
        str, _name_option("program that printed the outputs, such as osu (default: look)")
    ] = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="write a report as well: FILE.html or FILE.md")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON lines (virtqual-verdict/3)")] = False,
) -> None:
    """Judge runs that any harness measured.

    Reads hyperfine, Google Benchmark, ReFrame, outputs of known programs and
    CSV (docs/judge-your-own.md). Each session of a file is judged for itself.

    Exit code: of the worst session, 4 refused, 1 over budget, 3 undecided or
    no verdict, else 0; 2 usage.
    """
    if (budget is None) != (margin is None):
        raise UsageError("--budget and --margin belong together, such as --budget 5% --margin 3%")
    if margin == 0:
        raise UsageError("--margin 0 would take infinitely many pairs: state one such as 3%")
    if output:
        check_name(output)
    stated: dict[Gate, Budget] = {}
    if budget is not None and margin is not None:
        stated = {gate: Budget.build(budget, margin=margin, gate=gate) for gate in get_args(Gate)}
    wanted = Wanted(metric, unit, better or "")
    # The samples of a large file stay alive: the collector would visit all of them again and again, in vain.
    gc.disable()
    try:
        # It is shown on a terminal only.
        with verbatim(stderr=True).status(Text("reading")) as status:

            def show_rows(rows: int) -> None:
                status.update(Text(f"reading {file}: {rows:,} rows"))

            loaded = _load(
                file, (reference, candidate), wanted, reader, paired=paired, report_progress=show_rows
            )
            if same_host:
                for series in loaded.sessions.values():
                    state_same_host(loaded.name, series)
            status.update(Text("judging"))
            judged, cases = _judge(loaded, hypervisor_class, stated, against or "")
    finally:
        gc.enable()
    stated_facts = _describe_stated(paired=paired, same_host=same_host)
    remarks = [*stated_facts, *([_NOT_QUALIFIED] if hypervisor_class else [])]
    (_print_lines if as_json else _print_tables)(judged, loaded, remarks)
    if output:
        write_report(_make_report(judged, loaded, cases, stated_facts), output)
        print(f"wrote {output}", file=sys.stderr)
    raise typer.Exit(EXIT_CODES[first_of(answer.outcome for _, answer in judged)])


def _load(
    file: Path | None,
    sides: tuple[str, str],
    wanted: Wanted,
    reader: str,
    *,
    paired: bool,
    report_progress: Any,
) -> Loaded:
    if file is None:
        if not all(sides):
            raise UsageError(_NO_FILE)
        return load_two(Path(sides[0]), Path(sides[1]), wanted, reader=reader, paired=paired)
    path = Path("/dev/stdin") if str(file) == "-" else file
    try:
        return load_file(path, sides, wanted, reader=reader, paired=paired, report_progress=report_progress)
    except UsageError as error:
        if all(sides) and all(Path(side).exists() for side in sides):
            raise UsageError(
                f"{error}\n{' and '.join(sides)} are files or directories, too: to judge those, leave {file} "
                "out"
            ) from error
        raise


def _judge(
    loaded: Loaded, class_name: str, stated: Mapping[Gate, Budget], against: str
) -> tuple[Judged, dict[str, list[Case]]]:
    """Return the sessions by name with the verdict of each, and the cases that have a verdict."""
    if against and [*loaded.sessions] == [against]:
        raise UsageError(
            f"{loaded.name}: has no session but {against!r} (--against): nothing is compared with it; "
            "leave the "
            "option out, or put the rows of both sessions into one file"
        )
    references = project_references()
    chosen = references.hypervisor_class(class_name) if class_name else None
    try:
        maker = CaseMaker(loaded.name, references, class_name, stated)
        estimates = {
            name: [estimate(one, maker.find_stated_budget(one)) for one in series if one.not_in_turns]
            for name, series in loaded.sessions.items()
        }
        cases = dict(zip(loaded.sessions, maker.make_all(loaded.sessions, against), strict=True))
        answers = judge_sessions(cases.values(), hypervisor_class=chosen, min_pairs=choose_min_pairs(chosen))
    except BudgetError as error:
        raise UsageError(f"{loaded.name}: {error}") from error
    judged = []
    for (name, own), answer in zip(cases.items(), answers, strict=True):
        held = hold_back(answer, own)
        judged.append((name, replace(held, verdicts=(*held.verdicts, *estimates[name]))))
    return judged, cases


def _advise(loaded: Loaded) -> str:
    """Return what would be needed for a verdict."""
    commands = [shlex.quote(name) for name in loaded.commands or ("COMMAND", "COMMAND")]
    whys = [one.not_in_turns for series in loaded.sessions.values() for one in series]
    # Where it is known that they took no turns, nobody can state it.
    is_known = loaded.are_blocks or any(why.startswith("not in turns") for why in whys)
    paired = (
        "" if is_known else " (--paired states that row k of both sides ran next to each other, in turns)"
    )
    return (
        "a machine that changes between the runs of both sides looks like a difference; for a verdict: "
        f"virtqual pair {' '.join(commands)} --budget 5% --margin 3%, or data that say when each run began "
        f"and ended{paired}"
    )


def _describe_stated(*, paired: bool, same_host: bool) -> list[str]:
    """Return what only the options say, as a sentence; empty if they say nothing."""
    stated = [*(["runs in turns"] if paired else []), *(["one host"] if same_host else [])]
    return [f"as you state: {', '.join(stated)}"] if stated else []


def _list_reasons(answer: SessionVerdict, loaded: Loaded, remarks: Sequence[str]) -> list[str]:
    """Return what is to be known about all series of a session, and what would help."""
    reasons = [_advise(loaded)] if any(ADVICE in verdict.reasons for verdict in answer.verdicts) else []
    reasons += remarks
    reasons += [reason for reason in (answer.without_hosts, answer.confounded) if reason]
    if answer.slow_runs.found:
        reasons.append(f"slow runs: {answer.slow_runs.text}")
    if answer.slow_runs.more_runs:
        reasons.append(f"lost runs: {answer.slow_runs.lost_text}")
    return reasons


def _print_lines(judged: Judged, loaded: Loaded, remarks: Sequence[str]) -> None:
    for note in loaded.notes:
        print(f"note: {note}", file=sys.stderr)
    print_lines((name, answer, _list_reasons(answer, loaded, remarks)) for name, answer in judged)


def _print_tables(judged: Judged, loaded: Loaded, remarks: Sequence[str]) -> None:
    terminal = Terminal()
    for name, answer in judged:
        terminal.console.print(Text("session ").append(name, "bold"))
        verdicts, common = _find_common_reasons(answer.verdicts)
        terminal.verdicts(verdicts, answer.slow_runs)
        terminal.hosts(answer.verdicts, answer.outliers)
        reasons = [*common, *_list_reasons(answer, loaded, remarks)]
        terminal.console.print(Text("; ".join([answer.outcome.value, *reasons]) + "\n"))
    for note in _shorten(loaded.notes):
        terminal.console.print(Text(f"note: {note}"))


def _find_common_reasons(verdicts: Sequence[Verdict]) -> tuple[list[Verdict], list[str]]:
    """Return verdicts without the reasons that several have in common for no verdict, and those reasons."""
    undecided = [verdict for verdict in verdicts if verdict.outcome is Outcome.UNDECIDED]
    if len(undecided) < 2:
        return list(verdicts), []
    common = [
        reason
        for reason in undecided[0].reasons
        if (ADVICE in undecided[0].reasons or reason.startswith("no verdict"))
        and all(reason in verdict.reasons for verdict in undecided)
    ]
    return [_drop_reasons(verdict, common) for verdict in verdicts], common


def _drop_reasons(verdict: Verdict, common: Sequence[str]) -> Verdict:
    own = [reason for reason in verdict.reasons if reason not in common]
    head, separator, _ = verdict.message.partition("\n")
    if not separator or len(own) == len(verdict.reasons):
        return verdict
    message = "\n".join([head, *(["; ".join(own)] if own else [])])
    return verdict.model_copy(update={"reasons": tuple(own), "message": message})


def _shorten(notes: Sequence[str]) -> list[str]:
    more = len(notes) - _MAX_NOTES
    return [*notes[:_MAX_NOTES], *([f"{more} more notes like these (-o lists them)"] if more > 0 else [])]


def _make_report(
    judged: Judged, loaded: Loaded, cases: Mapping[str, Sequence[Case]], stated_facts: Sequence[str]
) -> JudgedFile:
    series = {name: _choose_plotted(loaded.sessions[name], own) for name, own in cases.items()}
    runs = [sum(_count_runs(one) for one in own) for own in loaded.sessions.values()]
    return JudgedFile(
        title=loaded.name,
        judged=judged,
        labels=loaded.labels,
        series=series,
        facts=loaded.facts,
        about={"file": loaded.name, "format": loaded.kind, "judged on": f"{date.today()}"}
        | ({"runs": str(sum(runs))} if sum(runs) else {}),
        caveats=[
            *_list_caveats(judged),
            *(f"what was done, and what is stated ({it})" for it in stated_facts),
        ],
        not_measured=[note for note in loaded.notes if "left out" in note or "lost run" in note],
        again=f"virtqual judge {list_names([shlex.quote(arg) for arg in sys.argv[2:]], 40, ' ')}",
    )


def _choose_plotted(all_series: Sequence[FileSeries], cases: Sequence[Case]) -> dict[str, Series]:
    """Return the series whose runs have times: without them a plot would show times and an order as facts."""
    made = {(one.metric.name, one.setting) for one in all_series if one.has_made_times}
    series = [case.series for case in cases]
    return {one.id: one for one in series if (one.metric.name, one.setting) not in made}


def _count_runs(series: FileSeries) -> int:
    return len(series.runs)


def _list_caveats(judged: Judged) -> list[str]:
    """Return what the data cannot tell apart."""
    caveats = []
    verdicts = [verdict for _, answer in judged for verdict in answer.verdicts]
    if any(ADVICE in verdict.reasons for verdict in verdicts):
        caveats.append("a difference of the two sides, and a machine that changed between their runs")
    if any(UNKNOWN_HOSTS in verdict.reasons or verdict.confounded for verdict in verdicts):
        caveats.append("a slow build, and a slow host")
    return caveats
