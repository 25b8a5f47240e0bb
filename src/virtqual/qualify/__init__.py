"""The main job: run looks until every metric is decided, and conclude."""

from __future__ import annotations

import signal

from virtqual.qualify import plan
from virtqual.qualify.job import Qualification, Request, Screen
from virtqual.qualify.look import one_look
from virtqual.qualify.plan import FIRST_PAIRS
from virtqual.qualify.prepare import prepare, refused_beforehand
from virtqual.session import conclusion, judging
from virtqual.session.store import Session
from virtqual.site import placement


def qualify(request: Request, screen: Screen) -> Session:
    """Run a session to its end.

    Returns
    -------
    Session
        Written to ``sessions/<id>/session.json``; its ``exit_code`` is the command's.

    Raises
    ------
    UsageError, RefusedError, InfrastructureError
        Before anything was run: what was asked for makes no sense, must not be judged, or cannot run.
    """
    job = prepare(request, screen)
    if refused_beforehand(job):
        screen.end(job.session, None, job.directory)
        return job.session
    thread = job.watch.follow()
    # A scheduler that ends this job at its time limit is like a person with Ctrl-C.
    # (A shell starts what it puts into the background with SIGINT ignored.)
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        _run_looks(job)
    except KeyboardInterrupt:
        _conclude(job, interrupted=True)
    else:
        _conclude(job)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        job.watch.end()
        thread.join()
    screen.end(job.session, job.verdict, job.directory)
    return job.session


def _run_looks(job: Qualification) -> None:
    request = job.request
    pairs = request.pairs or FIRST_PAIRS
    todo: list[tuple[int, int, tuple[str, ...]]] = [(0, pairs - 1, ())]
    while todo:
        for first, last, checks in todo:
            one_look(job, first, last, checks)
            if job.watch.stop.is_set() or job.broken:
                return
        todo = plan.following(job)


def _conclude(job: Qualification, *, interrupted: bool = False) -> None:
    conclusion.conclude(
        job.session,
        job.verdict,
        interrupted=interrupted,
        broken=job.lost or job.broken,
        unmeasured=len(job.refused.keys() - {run.check for run in job.session.runs if not run.instead}),
        qualifies=judging.references().hypervisor_class(job.session.hypervisor_class).qualifies,
        build=f"{job.system.virtual.hypervisor.vendor} {job.system.virtual.hypervisor.build}",
        studied="NUMA nodes hidden on purpose" if placement.of(job.system).get("numa_hidden") else "",
    )
    job.session.write(job.directory)


__all__ = ["Qualification", "Request", "Screen", "qualify"]
