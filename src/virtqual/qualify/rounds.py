"""One round: one ReFrame run over some pairs of some checks."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from virtqual.errors import InfrastructureError
from virtqual.files.wording import pluralize
from virtqual.harness import order, process
from virtqual.harness.kinds import VERDICT
from virtqual.harness.progress import CaseEvent, ErrorEvent
from virtqual.qualify import plan
from virtqual.qualify.allocations import hold_allocation
from virtqual.qualify.plain import SESSION_VARIABLE
from virtqual.qualify.state import Qualification
from virtqual.session.judge import find_refusals
from virtqual.session.log import RoundBegun
from virtqual.session.session import NODE_STATES, Request, Round, Session
from virtqual.site import held, slurm
from virtqual.verdict.alternation import describe_order


def run_round(job: Qualification, session: Session, part: Round) -> None:
    """Run the pairs of a round; each run is in the log as soon as it has finished."""
    hold_allocation(job)
    begun = time.monotonic()
    job.log.append(RoundBegun(round=part))
    base = job.log.directory / f"round-{part.number}"
    output = base.with_suffix(".log")
    # Nodes that were booted since are as cold as those of the first round.
    is_cold = part.recreated is not None or bool(session.lost or session.resumed)
    turns = part.first, part.last, is_cold, part.order
    nodes = held.SessionNodes(
        system=job.head.system, round=part.number, jobs=job.held, rotated=job.rotated, of=job.system.nodes
    )
    env = {
        "VIRTQUAL_PAIRS": order.format_pairs(*turns),
        SESSION_VARIABLE: str(job.log.directory),
        **nodes.environment(),
    }
    seconds = plan.estimate_round(job, session, part.checks, len(order.order_slots(*turns)) // 2)
    job.screen.round_begins(part.number, _describe_round(part, job.request, job.rotation(1).places), seconds)
    line = _compose_command(job, part, base)
    try:
        code, error = process.run(line, env, output, _follow(job), job.watch.stop, keep=(job.lock,))
    finally:
        job.screen.round_ends()
    job.log.append(RoundBegun(round=part.model_copy(update={"seconds": round(time.monotonic() - begun, 1)})))
    text = output.read_text(encoding="utf-8", errors="replace")
    if note := process.database_note(text):
        job.screen.note(note)
    _note_end(job, code, error)
    if not (code < 0 or job.broken or job.watch.stop.is_set() or base.with_suffix(".json").is_file()):
        raise process.output_error(text)


def _follow(job: Qualification) -> Callable[[CaseEvent], None]:
    """Return a function that shows the events of a round, and ends the round if preflight refuses all.

    Preflight is asked after as many runs as a turn has, since it names nodes only beside others, and again
    after 2, 4, 8 ... times as many.
    """
    runs, runs_of_turn = count(1), 2 * job.rotation(1).places

    def follow(event: CaseEvent) -> None:
        job.screen.event(event)
        if event.kind != "ok" or event.side is None or event.warm_up:
            return
        turns, rest = divmod(next(runs), runs_of_turn)
        if rest or turns.bit_count() != 1 or job.watch.stop.is_set():
            return
        if reasons := find_refusals(job.log.session()):
            job.screen.note(f"The session ends, since none of its runs may be judged: {reasons[0]}")
            job.watch.stop.set()

    return follow


def _compose_command(job: Qualification, part: Round, base: Path) -> list[str]:
    """Return the ``reframe`` command of a round; `base` is the path of its reports, without a suffix."""
    names = [process.pattern(check) for check in part.checks] or list(job.request.names)
    extras = {
        "virtqual_session": job.head.session,
        "hypervisor_class": job.head.hypervisor_class,
        "hypervisor_build": re.sub(r"[^\w.+:-]+", "_", job.head.build),
    }
    return [
        *process.reframe_command(job.head.system),
        "-r",
        f"--exec-policy={'async' if job.rotated else job.request.policy}",
        f"--report-file={base.with_suffix('.json')}",
        f"--report-junit={base.with_suffix('.junit.xml')}",
        *(["-n", "|".join(names)] if names else []),
        *(f"--tag={tag}" for tag in job.request.tags),
        f"--exclude-tag=^{VERDICT}$",
        f"--prgenv=^{job.head.stack['name']}$",
        "-S",
        f"scope={job.request.scope}",
        f"--session-extras={','.join(f'{key}={value}' for key, value in extras.items())}",
    ]


def _note_end(job: Qualification, code: int, error: ErrorEvent | None) -> None:
    """Note what ended ReFrame, if it did not come to its own end; raise the error if it did not begin."""
    if code != 0:
        # The state of a node that failed a job shows after some seconds.
        job.watch.settle()
    if job.watch.stop.is_set():
        return
    if code != 0:
        # A run whose allocation has ended fails in many ways.
        try:
            slurm.list_waiting_jobs(job.held.values())
        except InfrastructureError as gone:
            job.broken.append(str(gone))
            job.node_lost |= isinstance(gone, slurm.EndedError) and gone.state in NODE_STATES
    if code < 0:
        job.broken.append(f"ReFrame was killed ({signal.Signals(-code).name})")
    elif error and error.cause == "run":
        job.broken.append(str(error.exception))
    elif error:
        raise error.exception


def _describe_round(part: Round, request: Request, places: int) -> str:
    """Return the checks and the pairs of a round in words."""
    named = [f"named {' or '.join(map(repr, request.names))}"] if request.names else []
    selection = named + [f"tagged {tag!r}" for tag in request.tags]
    checks = f"checks {' and '.join(selection)}" if selection else "every check"
    if part.checks:
        checks = ", ".join(part.checks)
    turns = part.last - part.first + 1
    if places > 1:
        # The progress counts the pairs of all nodes.
        return (
            f"{checks}: {pluralize(turns, 'more pair' if part.first else 'pair')} on each of {places} nodes"
        )
    if part.order:
        return f"{checks}: {describe_order(part.first, part.order)}"
    pairs = f"pairs {part.first} {'and' if turns == 2 else 'to'} {part.last}"
    return f"{checks}: {pairs if turns > 1 else f'pair {part.first}'}"
