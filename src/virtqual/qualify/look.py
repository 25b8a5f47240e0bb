"""One look: one ReFrame run over some pairs of some checks, and what it brought."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from virtqual.harness import catalogue
from virtqual.harness import process as reframe_run
from virtqual.harness.process import Files
from virtqual.qualify import plan
from virtqual.qualify.job import Qualification, Request
from virtqual.session import judging, store
from virtqual.session.store import Failure, Look


def one_look(job: Qualification, first: int, last: int, checks: tuple[str, ...]) -> None:
    """Run the pairs `first` to `last` of some checks (all that were asked for, if empty), and judge anew."""
    request, session = job.request, job.session
    number = len(session.looks) + 1
    base = job.directory / f"look-{number}"
    files = Files(base.with_suffix(".json"), base.with_suffix(".junit.xml"), base.with_suffix(".log"))
    names = [_pattern(check) for check in checks] or list(request.names)
    line = reframe_run.command(
        session.system,
        files,
        names=["|".join(names)] if names else [],
        tags=request.tags,
        environment=session.stack["name"],
        policy=request.policy,
        settings={
            "against": request.against,
            "hypervisor_class": session.hypervisor_class,
            "scope": "full" if request.full else "quick",
        },
        extras={
            "virtqual_session": session.session,
            "hypervisor_class": session.hypervisor_class,
            "hypervisor_build": re.sub(r"[^\w.+:-]+", "_", job.system.virtual.hypervisor.build),
        },
    )
    listed = job.directory / "catalogue.json"
    env = {
        "VIRTQUAL_PAIRS": f"{first}:{last}",
        "VIRTQUAL_CATALOGUE": str(listed),
    }
    if number > 1:
        env["VIRTQUAL_SESSION"] = str(session.write(job.directory))
    what = ", ".join(checks) or _selection(request)
    pairs = f"pairs {first} and {last}" if last == first + 1 else f"pairs {first} to {last}"
    pairs = f"pair {first}" if first == last else pairs
    job.screen.look_begins(number, f"{what}: {pairs}", plan.expected(job, checks, last - first + 1))
    begun = time.time()
    try:
        reframe_run.run(line, env, files.log, job.screen.event, job.watch.stop)
    finally:
        job.screen.look_ends()
        if not (request.names or request.tags):
            session.not_run = _not_run(job, catalogue.read(listed))
        job.watch.look()
        _take_in(job, files, first, last, time.time() - begun)


def _not_run(job: Qualification, every: Sequence[catalogue.Entry]) -> list[str]:
    """Return which checks cannot run here, and why: what was not measured must not be taken for passed."""
    features = {f for program in job.session.stack["programs"] for f in program["features"]}
    nodes = min(job.system.native.nodes, job.system.virtual.nodes)
    return catalogue.missing(every, features, nodes)


def _selection(request: Request) -> str:
    chosen = [f"named {name!r}" for name in request.names] + [f"tagged {tag!r}" for tag in request.tags]
    return f"checks {' and '.join(chosen)}" if chosen else "every check"


def _pattern(check: str) -> str:
    # All samples of a check, and its verdict.  ReFrame matches names without their blanks, such as
    # "lammps%sample=0N%problem=lj" and "lammps_overhead%problem=lj".
    name, *parameters = check.split(" ")
    rest = "".join(f"(?=.*{re.escape(parameter)}(%|$))" for parameter in parameters)
    return f"^(?={re.escape(name)}(_overhead)?(%|$)){rest}"


def _take_in(job: Qualification, files: Files, first: int, last: int, seconds: float) -> None:
    session = job.session
    if not files.report.is_file():
        if job.watch.stop.is_set():
            return
        raise reframe_run.error_in(files.log)
    runs, failures, info = store.runs_of_report(files.report)
    number = len(session.looks) + 1
    session.looks.append(
        Look(
            first=first,
            last=last,
            cases=info["num_cases"],
            failed=info["num_failures"],
            seconds=round(seconds, 1),
            uuid=info["uuid"],
            report=files.report,
            junit=files.junit,
            log=files.log,
        )
    )
    if why := reframe_run.stopped(files.log):
        job.broken.append(f"ReFrame gave up: {why}")
    session.runs += runs
    for failure in failures:
        if "_overhead" not in failure.case.split(" ")[0] and failure.phase != "dependencies":
            session.failures.append(failure.model_copy(update={"look": number}))
            _classify(job, failure)
    # First of all: what cannot be judged has been measured all the same.
    session.write(job.directory)
    _judge(job)
    session.write(job.directory)


def _classify(job: Qualification, failure: Failure) -> None:
    """Tell what makes a series unjudgeable from what is broken."""
    native = job.system.partition("native").name
    missed = failure.phase == "performance" and failure.partition == native
    if not missed and (failure.phase != "sanity" or "job exited with exit code" in failure.reason):
        job.broken.append(f"{failure.case} on {failure.partition}: {failure.reason}")
    job.refused[failure.check] = (*job.refused.get(failure.check, ()), failure.why(native))


def _judge(job: Qualification) -> None:
    session = job.session
    if not session.runs:
        return
    job.verdict = judging.judge_runs(
        session.runs,
        session.hypervisor_class,
        system=session.system,
        against=job.request.against,
        refused=job.refused,
        build=job.system.virtual.hypervisor.build,
        design=plan.design(job.request.max_pairs),
    )
    session.judged = job.verdict.to_record()
    session.preflight = judging.preflight(session.runs, session.hypervisor_class).shown
    session.canaries = list(judging.canaries(session.runs, session.hypervisor_class))
