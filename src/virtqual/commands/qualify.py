"""`virtqual qualify`: run the checks on both partitions, and judge them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from virtqual import qualify as main_job
from virtqual.commands.options import NODES_HELP, Names, Stack, System, Tags, WaitHours, check_against
from virtqual.errors import UsageError
from virtqual.files.wording import Range, format_range, format_time, pluralize
from virtqual.qualify.forecast import Forecast, forecast
from virtqual.qualify.plan import check_pairs
from virtqual.report.console import verbatim
from virtqual.session.session import Request
from virtqual.site.held import DEFAULT_NODES, count_places
from virtqual.verdict.pairs import SIDES

Resume = Annotated[
    str | None,
    typer.Option(metavar="SESSION", help="go on with a session that was interrupted or broke off"),
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="SESSION",
        help="judge the change since an earlier session (id, 'last', 'good')",
        callback=check_against,
    ),
]
HypervisorClass = Annotated[
    str, typer.Option("--class", help="class of budgets (default: what the system file says)")
]
Full = Annotated[
    bool, typer.Option("--full", help="also the longer cases, without which no build is qualified")
]
Pairs = Annotated[
    int | None,
    typer.Option(min=2, help="pairs of the first round (default: 4, or 2 if no build can be qualified)"),
]
MaxPairs = Annotated[
    int, typer.Option(help="pairs at most for one metric, 4 or more; of each node if all nodes work at once")
]
Fast = Annotated[
    bool, typer.Option("--fast", help="2 pairs first, which can pass; the build is not called qualified")
]
Policy = Annotated[
    Literal["serial", "async"],
    typer.Option(help="async: where each run is a job, queue several at once"),
]
Plan = Annotated[
    bool, typer.Option("--plan", help="say what would run, how long and at how many node-hours, and stop")
]


def command(
    context: typer.Context,
    system: System = "",
    resume: Resume = None,
    against: Against = None,
    hypervisor_class: HypervisorClass = "",
    full: Full = False,
    names: Names = None,
    tags: Tags = None,
    stack: Stack = "",
    label: Annotated[str, typer.Option(help="a name for the session")] = "",
    pairs: Pairs = None,
    max_pairs: MaxPairs = 18,
    fast: Fast = False,
    policy: Policy = "serial",
    nodes: Annotated[int, typer.Option(min=1, help=NODES_HELP)] = DEFAULT_NODES,
    wait_hours: WaitHours = None,
    plan: Plan = False,
    only_check: Annotated[bool, typer.Option("--only-check", hidden=True)] = False,
) -> None:
    """Run the checks on both partitions until every metric is decided, and say the verdict.

    Exit code: 0 within budget or a baseline recorded; 1 over budget; 2 usage;
    3 undecided; 4 refused; 5 infrastructure; 130 interrupted.
    """
    # All other options are fields of the request.
    values = {name: value for name, value in context.params.items() if value is not None}
    request = Request(**{name: values[name] for name in values.keys() - {"resume", "plan", "only_check"}})
    resumed_by = Request(system=system, wait_hours=wait_hours, nodes=DEFAULT_NODES)
    if resume is not None and (plan or request != resumed_by):
        raise UsageError("--resume takes no option but --system and --wait: the session has its own")
    check_pairs(request)
    if not (system or resume):
        raise UsageError("no system is named: --system NAME, a file of systems/ in the site directory")
    if only_check:
        main_job.check(request, resume)
    elif plan:
        _show_plan(request)
    else:
        session = main_job.qualify(request) if resume is None else main_job.resume(resume, request)
        raise typer.Exit(session.exit_code)


def _show_plan(request: Request) -> None:
    """Print the runs of a session, how long they take, and what they cost."""
    console, planned = verbatim(), forecast(request)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("case", overflow="fold")
    # The times of runs have columns if there are any.
    sides = SIDES if any(case.seconds for case in planned.cases) else ()
    for title in ("nodes", "runs", *(f"{side}, s" for side in sides)):
        table.add_column(title, justify="right", no_wrap=True)
    for case in planned.cases:
        seconds = (f"{case.seconds[side]:.1f}" if side in case.seconds else "-" for side in sides)
        table.add_row(case.name, str(case.nodes), str(planned.count_runs(case)), *seconds)
    console.print(table)
    for sentence in _describe_costs(planned):
        console.print(sentence)
    for sentence in _describe_assumptions(planned):
        console.print(Text(sentence, style="yellow"))
    if planned.not_run:
        console.print(Text("Not run here:", style="dim"))
    for line in planned.not_run:
        console.print(Padding.indent(Text(line, style="dim"), 2))
    console.print(Text(planned.answer, style="bold"))


def _describe_costs(planned: Forecast) -> Iterator[str]:
    """Yield sentences about all cases: runs, jobs, time and nodes."""
    jobs = "1 job, held for the whole session" if planned.held_nodes else f"{planned.runs} jobs, one a run"
    cases = pluralize(len(planned.cases), "case")
    yield f"{cases}, {planned.runs} runs in the first round with its warm-ups: {jobs}."
    if (places := count_places(planned.rotated, 1)) > 1:
        yield f"Checks of one node go over {places} nodes a side, all of them at work at once."
    waits = "" if planned.held_nodes else ", and what the jobs wait in the queue"
    yield (
        f"About {format_time(planned.first_round_s)} if every metric is decided by the first round, "
        f"{format_time(planned.all_rounds_s)} if none is before the last{waits}; "
        f"the first round costs {format_range(planned.node_seconds, 3600)} node-hours."
    )


def _describe_assumptions(planned: Forecast) -> Iterator[str]:
    """Yield sentences about a job that ends too early, and what was assumed in place of what is not known."""
    if planned.all_rounds_s.high > (limit := planned.job_limit_s):
        cuts = "cuts" if planned.first_round_s.low > limit else "may cut"
        yield (
            f"--time in extras.session_access is {format_time(Range(limit, limit))}: it {cuts} the session "
            "off, and `virtqual qualify --resume last` goes on."
        )
    if unmeasured := [case.assumed_s for case in planned.cases if len(case.seconds) < len(SIDES)]:
        count = len(unmeasured)
        low, high = min(s.low for s in unmeasured), max(s.high for s in unmeasured)
        seconds = f"{low:g} to {high:g} s a run, and a few to start it, are assumed" if high else ""
        cases = "1 case was" if count == 1 else f"{count} cases were"
        yield (
            f"{cases} never run here: {seconds or 'a few seconds a run are assumed'} (docs/running.md, "
            "Repetitions). Long applications take longer."
        )
    if planned.assumed_stack:
        yield (
            f"No stack is set up: all programs of the {planned.assumed_stack} stack are assumed "
            "(docs/stack.md)."
        )
    if planned.silence:
        yield (
            f"Slurm does not say which nodes there are ({planned.silence}): those that the system file "
            "states are assumed, and that no native node carries a VM."
        )
