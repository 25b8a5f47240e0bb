"""`virtqual qualify`: run the checks on both partitions, and judge them."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from virtqual import qualify as main_job
from virtqual.commands import planned
from virtqual.commands.options import (
    NODES_HELP,
    Names,
    Stack,
    System,
    WaitHours,
    check_against,
    check_patterns,
)
from virtqual.errors import UsageError
from virtqual.session.session import Request
from virtqual.site.held import DEFAULT_NODES

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
Tags = Annotated[
    list[str] | None,
    typer.Option("-t", "--tag", metavar="REGEX", help="only checks with this tag", callback=check_patterns),
]
Pairs = Annotated[
    int | None,
    typer.Option(min=2, help="pairs of the first round (default: 4, or 2 if no build can be qualified)"),
]
MaxPairs = Annotated[
    int, typer.Option(min=4, help="pairs at most for one metric, of each node if all nodes work at once")
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
    if not (system or resume):
        raise UsageError("no system is named: --system NAME, a file of systems/ in the site directory")
    if only_check:
        main_job.check(request, resume)
    elif plan:
        planned.show(request)
    else:
        session = main_job.qualify(request) if resume is None else main_job.resume(resume, request)
        raise typer.Exit(session.exit_code)
