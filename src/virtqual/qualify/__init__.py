"""The main job: run rounds until every metric is decided, and conclude."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from virtqual.errors import InfrastructureError, UsageError, VirtqualError
from virtqual.qualify import opening, plan
from virtqual.qualify.allocations import give_signs_of_life, hold, release
from virtqual.qualify.between import recreate, set_lost_nodes_aside
from virtqual.qualify.concluding import concluded, ended_by
from virtqual.qualify.opening import check, prepare, refused_beforehand
from virtqual.qualify.rounds import run_round
from virtqual.qualify.state import Qualification, Screen
from virtqual.session.judge import judge
from virtqual.session.session import Request, Round, Session
from virtqual.site.slurm import cancel, patiently

#: Seconds for which a silent Slurm is asked at the end to cancel what is left: one of our own, and a site's.
OWN, SITES = 2.0, 20.0


def qualify(request: Request, screen: Screen) -> Session:
    """Run a session from its begin to its end; see `_ended`."""
    with ExitStack() as held:
        return _ended(prepare(request, screen, held))


def resume(name: str, on: str, screen: Screen) -> Session:
    """Run a session that has ended too early to its end; see `_ended`.

    Parameters
    ----------
    name
        Its id, the beginning of it, a path, or ``last``.
    on
        Name of its system; empty for whichever it is.
    screen
        Who is shown it.
    """
    with ExitStack() as held:
        return _ended(opening.resume(name, on, screen, held))


def _ended(job: Qualification) -> Session:
    """Run a session to its end.

    Returns
    -------
    Session
        As ``session.json`` has it; its ``exit_code`` is the command's.

    Raises
    ------
    UsageError, RefusedError, InfrastructureError
        Before anything was run: what was asked for makes no sense, must not be judged, or cannot run.
    KeyboardInterrupt
        A person ended it before there was a session.
    """
    try:
        session = _measured(job)
    except UsageError:
        # What was asked for makes no sense: where nothing was measured, no session is left of it.
        if not job.log.session().runs:
            shutil.rmtree(job.log.directory, ignore_errors=True)
        raise
    job.screen.end(session, str(job.log.directory))
    return session


def _measured(job: Qualification) -> Session:
    """Run the session's rounds, and return what it comes to."""
    interrupted = False
    end_of_signs = give_signs_of_life(job)
    thread = job.watch.follow()
    try:
        hold(job)
        if refused := refused_beforehand(job):
            return refused
        _run_rounds(job)
    except KeyboardInterrupt:
        interrupted = True
    except Exception as error:
        with _undisturbed():
            ended_by(job.log, error)
        raise
    finally:
        with _undisturbed():
            job.watch.end()
            _cancel_what_is_left(job)
            end_of_signs()
            thread.join()
    with _undisturbed():
        lost = job.watch.lost if job.watch.stop.is_set() or job.broken else {}
        return concluded(
            job.log,
            job.earlier,
            looks=job.looks,
            interrupted=interrupted,
            broken=[*lost.values(), *job.broken],
            node_lost=job.node_lost or bool(lost.keys() & job.watch.lost_nodes),
            not_run=job.not_run,
        )


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let no signal stop what ends a session: it was asked to end, and does."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _cancel_what_is_left(job: Qualification) -> None:
    """Cancel the jobs that ReFrame has not: it may have been killed before it could."""

    def end() -> list[str]:
        release(job)
        return cancel(job.log.unfinished())

    # Its controller may start again just now.
    seconds = OWN if job.system.native.own_scheduler else SITES
    try:
        left = patiently(end, seconds, seconds / 2)
    except VirtqualError as error:
        numbers = " ".join(job.log.unfinished())
        ends = f"; this ends them: scancel {numbers}" if numbers else ""
        job.screen.note(f"whether a job of this session still runs is not known: {error}{ends}")
    else:
        if left:
            job.screen.note(f"cancelled what still ran: {', '.join(left)}")


def _run_rounds(job: Qualification) -> None:
    first, session = Round(number=1, first=0, last=(job.request.pairs or job.looks[0]) - 1), job.log.session()
    todo = [first]
    if session.runs:
        # It is resumed.
        todo = plan.cut_off(job, session, first) or _following(job, session)
    while todo:
        session = job.log.session()
        try:
            number = len(session.rounds) + 1
            changes = {"number": number, "recreated": recreate(job, number)}
        except InfrastructureError as error:
            job.broken.append(f"extras.recreate_vms: {error}")
            job.node_lost = True
            return
        part = todo.pop(0).model_copy(update=changes)
        run_round(job, session, part)
        session = job.log.session()
        stuck = any(failure.kind == "infrastructure" for failure in session.failures)
        if job.watch.stop.is_set() or job.broken or stuck:
            if not set_lost_nodes_aside(job, part, session):
                return
            session = job.log.session()
            todo = [*plan.cut_off(job, session, part), *todo]
        todo = todo or _following(job, session)


def _following(job: Qualification, session: Session) -> list[Round]:
    return plan.following(job, session, judge(session, earlier=job.earlier, looks=job.looks))


__all__ = ["Qualification", "Request", "Screen", "check", "qualify", "resume"]
