"""The main job: run rounds until every metric is decided, and conclude."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from virtqual.errors import InfrastructureError, VirtqualError
from virtqual.qualify import opening, plan
from virtqual.qualify.allocations import hold_allocation, release_allocation
from virtqual.qualify.between import recreate_vms, set_lost_nodes_aside
from virtqual.qualify.concluding import (
    add_slow_runs,
    conclude_failed,
    conclude_session,
    count_attempts,
    find_earlier_sessions,
    remove_if_empty,
)
from virtqual.qualify.opening import check, prepare, probe_nodes
from virtqual.qualify.rounds import run_round
from virtqual.qualify.state import Qualification
from virtqual.report.terminal import Terminal
from virtqual.session.judge import find_refusals, judge
from virtqual.session.session import Request, Round, Session
from virtqual.site.slurm import cancel_jobs, retry_while_silent

#: Time for a silent Slurm to answer when jobs that are left are cancelled: one of our own, and a site's.
CANCEL_WAIT_OWN_SLURM_S, CANCEL_WAIT_SITE_SLURM_S = 2.0, 20.0


def qualify(request: Request) -> Session:
    """Run the session of a request to its end, and return it with the exit code of the command."""
    with ExitStack() as locks:
        return _run(prepare(request, Terminal(), locks))


def resume(name: str, request: Request) -> Session:
    """Run a session that has ended too early to its end, by a request of a system (or none) and a wait."""
    with ExitStack() as locks:
        return _run(opening.resume(name, request, Terminal(), locks))


def _run(job: Qualification) -> Session:
    try:
        session = _measure(job)
    except Exception:
        with suppress(VirtqualError):
            remove_if_empty(job.log)
        raise
    if remove_if_empty(job.log):
        why = "No run had ended after the warm-ups: the session does not count, and is removed."
        job.screen.note(f"{session.conclusion} {why}")
    else:
        job.screen.end(session, str(job.log.directory))
    return session


def _measure(job: Qualification) -> Session:
    """Run the session's rounds, and return the session with its conclusion."""
    interrupted = False
    thread = job.watch.follow()
    try:
        hold_allocation(job)
        if refused := probe_nodes(job):
            return refused
        _run_rounds(job)
    except (KeyboardInterrupt, SystemExit):
        # The output in a pipe was closed, or somebody ended the session.
        interrupted = True
    except Exception as error:
        with _signals_ignored():
            conclude_failed(job.log, error)
        raise
    finally:
        with _signals_ignored():
            job.watch.end()
            _cancel_jobs(job)
            thread.join()
    with _signals_ignored():
        # Preflight may have ended the round.
        is_stopped = job.watch.stop.is_set() and not find_refusals(job.log.session())
        lost = job.watch.lost if is_stopped or job.broken else {}
        # A check that was not measured must not be taken for passed.
        not_run, too_large = plan.list_not_run(job)
        return conclude_session(
            job.log,
            job.earlier,
            looks=job.looks,
            interrupted=interrupted,
            broken=[*lost.values(), *job.broken],
            node_lost=job.node_lost or bool(lost.keys() & job.watch.lost_nodes),
            lost_nodes={name: why for name, why in lost.items() if name in job.watch.lost_nodes},
            not_run=not_run,
            too_large=too_large,
        )


@contextmanager
def _signals_ignored() -> Iterator[None]:
    """Let no signal stop the code that ends a session."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _cancel_jobs(job: Qualification) -> None:
    """Cancel the jobs that ReFrame has not cancelled: it may have been killed before it could."""

    def end() -> list[str]:
        release_allocation(job)
        return cancel_jobs(job.log.unfinished())

    # Its controller may be starting again.
    is_own = job.system.native_extras.own_scheduler
    seconds = CANCEL_WAIT_OWN_SLURM_S if is_own else CANCEL_WAIT_SITE_SLURM_S
    try:
        cancelled = retry_while_silent(end, seconds, seconds / 2)
    except VirtqualError as error:
        numbers = " ".join(job.log.unfinished())
        command = f"; this ends them: scancel {numbers}" if numbers else ""
        job.screen.note(f"jobs of this session may still run: {error}{command}")
    else:
        if cancelled:
            job.screen.note(f"cancelled what still ran: {', '.join(cancelled)}")


def _run_rounds(job: Qualification) -> None:
    session = job.log.session()
    before = find_earlier_sessions(session)
    slow_before, attempts = add_slow_runs(before), count_attempts(session, before)

    def plan_next_rounds(session: Session) -> list[Round]:
        judged = judge(
            session, earlier=job.earlier, looks=job.looks, slow_before=slow_before, attempts=attempts
        )
        return plan.repeat_warm_ups(job, session) or plan.plan_next_rounds(job, session, judged)

    first = Round(number=1, first=0, last=job.first_pairs - 1)
    rounds = plan.divide_among_boots(job, session, [first])
    if session.runs:
        # It is resumed.
        rounds = plan.repeat_unfinished(job, session, first) or plan_next_rounds(session)
    while rounds:
        session = job.log.session()
        try:
            number = len(session.rounds) + 1
            changes = {"number": number, "recreated": recreate_vms(job, number)}
        except InfrastructureError as error:
            job.broken.append(f"extras.recreate_vms: {error}")
            job.node_lost = True
            return
        part = rounds.pop(0).model_copy(update=changes)
        run_round(job, session, part)
        session = job.log.session()
        if find_refusals(session):
            return
        has_failed = any(failure.kind == "infrastructure" for failure in session.failures)
        if job.watch.stop.is_set() or job.broken or has_failed:
            if not set_lost_nodes_aside(job, part, session):
                return
            rounds = _repeat_cut_off(job, part, rounds)
        # Not `session`: failures that a lost node caused do not count any more.
        rounds = rounds or plan_next_rounds(job.log.session())


def _repeat_cut_off(job: Qualification, part: Round, rounds: Sequence[Round]) -> list[Round]:
    """Return the rounds that follow one that was cut off: further pairs of its checks get other numbers."""
    of_checks = [part, *(later for later in rounds if later.checks == part.checks)]
    order = "".join(each.order for each in of_checks)
    cut_off = part.model_copy(update={"last": of_checks[-1].last, "order": order})
    other_rounds = [later for later in rounds if later.checks != part.checks]
    return [*plan.repeat_unfinished(job, job.log.session(), cut_off), *other_rounds]


__all__ = ["check", "qualify", "resume"]
