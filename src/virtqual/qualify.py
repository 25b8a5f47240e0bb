"""The main job: run looks until every metric is decided, and conclude."""

from __future__ import annotations

import datetime
import re
import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from virtqual import catalogue, conclusion, judging, paths, placement, reframe_run, site, store, systems
from virtqual.errors import InfrastructureError, RefusedError, UsageError
from virtqual.nodes import Watch
from virtqual.preflight import partitions
from virtqual.preflight.compare import compare
from virtqual.preflight.finding import refusals
from virtqual.references import expiry_problems
from virtqual.reframe_run import Event, Files
from virtqual.runs import Run
from virtqual.stack import manifest
from virtqual.store import Failure, Look, Session
from virtqual.systems import System
from virtqual.verdict import Design, Outcome, SessionVerdict

# Pairs of the first look: the verdict's screen, and more where later sessions will be held against them.
SCREEN_PAIRS, BASELINE_PAIRS = 2, 4


@dataclass(frozen=True)
class Request:
    """What a person asked for; see ``virtqual qualify --help``."""

    system: str
    hypervisor_class: str = ""
    against: str = ""
    full: bool = False
    names: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    stack: str = ""
    label: str = ""
    max_pairs: int = 18
    pairs: int | None = None
    policy: str = "serial"


class Screen(Protocol):
    """Shows a session to a person while it runs."""

    def begin(self, session: Session, system: System, notes: Sequence[str]) -> None:
        """Say what will be qualified, how it is judged, and what to know."""

    def look_begins(self, number: int, what: str, seconds: float | None) -> None:
        """Say what this look runs and how long that should take (None: nothing is known)."""

    def event(self, event: Event) -> None:
        """Show progress."""

    def look_ends(self) -> None:
        """Close the progress display."""

    def end(self, session: Session, verdict: SessionVerdict | None, directory: Path) -> None:
        """Show the table, the conclusion and where the results are."""


@dataclass
class Qualification:
    """One session as it goes on."""

    request: Request
    screen: Screen
    system: System
    session: Session
    directory: Path
    watch: Watch
    verdict: SessionVerdict | None = None
    refused: dict[str, tuple[str, ...]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)


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
    job = _prepare(request, screen)
    if _refused_beforehand(job):
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


def _prepare(request: Request, screen: Screen) -> Qualification:
    system = load_system(request.system)
    known = judging.references()
    hypervisor = system.virtual.hypervisor
    name = request.hypervisor_class or system.virtual.hypervisor_class
    try:
        chosen = known.hypervisor_class(name)
    except LookupError as error:
        raise UsageError(str(error)) from error
    if hypervisor.accelerator not in chosen.accelerators:
        raise RefusedError(
            f"class {name!r} is for {' or '.join(chosen.accelerators)}, but these VMs run under "
            f"{hypervisor.vendor} with the accelerator {hypervisor.accelerator!r}: "
            "what was measured here may not be judged as something else"
        )
    if expired := [str(problem) for problem in expiry_problems(known, datetime.date.today())]:
        raise UsageError("; ".join(expired))
    if request.against:
        # Once, before this session is itself the last one.
        request = replace(request, against=str(store.find(request.against, paths.sessions())))
    against = store.load(Path(request.against)) if request.against else None
    if against and against.system != system.name:
        raise RefusedError(f"session {against.session} was measured on system {against.system!r}")
    if against and (others := placement.differences(_placed(against), placement.of(system))):
        raise RefusedError(
            f"session {against.session} was measured with the VMs placed otherwise ({', '.join(others)}): "
            "what changes would not be the hypervisor's; record a baseline with this placement"
        )
    stacks = {stack.name: stack for stack in manifest.installed(paths.stacks())}
    if not stacks:
        raise InfrastructureError("no software stack is set up; run ci/setup")
    if request.stack and request.stack not in stacks:
        raise UsageError(f"no stack {request.stack!r}; set up are: {', '.join(stacks)}")
    stack = stacks[request.stack] if request.stack else next(iter(stacks.values()))
    if changed := list(stack.changed()):
        command = "ci/build-stack" if stack.name == "spack" else "ci/setup"
        raise InfrastructureError(f"stack {stack.name!r}: {'; '.join(changed)}; run {command} again")
    watch = Watch(system)
    if lacking := watch.begin():
        raise InfrastructureError("; ".join(lacking))
    now = datetime.datetime.now(datetime.UTC).astimezone()
    session = Session(
        session=f"{now:%Y%m%d-%H%M%S}-{system.name}",
        label=request.label,
        created=now.isoformat(timespec="seconds"),
        system=system.name,
        hypervisor_class=name,
        identity=_identity(system),
        stack={
            "name": stack.name,
            "hash": stack.hash,
            "programs": [p.model_dump(mode="json") for p in stack.programs],
        },
        against=against.session if against else None,
    )
    directory = paths.sessions() / session.session
    directory.mkdir(parents=True)
    notes = _notes(session, against, chosen.gate, stack)
    screen.begin(session, system, notes)
    return Qualification(request, screen, system, session, directory, watch)


def _refused_beforehand(job: Qualification) -> bool:
    """Look at a node of each partition, and stop here where they may not be compared."""
    session = job.session
    nodes = {side: partitions.look_at(job.system, side) for side in systems.SIDES}
    native, virtual = nodes["native"], nodes["virtual"]
    if native is None or virtual is None:
        return False
    for side, identity in (("native", native), ("virtual", virtual)):
        session.identity[side]["node"] = identity.plain()
    session.preflight = compare(native, virtual, judging.policy(), session.hypervisor_class)
    reasons = refusals(session.preflight)
    if reasons:
        session.outcome, session.exit_code = Outcome.INVALID.value, RefusedError.exit_code
        session.qualified = "no (refused by preflight)"
        session.conclusion = (
            f"Refused before anything was measured: {len(reasons)} items of preflight say that these "
            "partitions may not be compared."
        )
    session.write(job.directory)
    return bool(reasons)


def load_system(name: str) -> System:
    """Return a system by name.

    Raises
    ------
    UsageError
        No file defines it; those that are there are named.
    InfrastructureError
        It is not there at the moment, and why.
    """
    known = {}
    for file in site.system_files(paths.root() / "reframe/systems"):
        raw = systems.read(file)
        known[raw["name"]] = (raw, file)
    if name not in known:
        raise UsageError(f"no system {name!r} (there are: {', '.join(known)}); see docs/add-a-system.md")
    raw, file = known[name]
    if not any("extras" in partition for partition in raw["partitions"]):
        raise InfrastructureError(f"system {name!r}: {raw['descr']}")
    return systems.check(raw, str(file))


def _identity(system: System) -> dict[str, object]:
    virtual = system.virtual
    sides = {
        side: {"partition": system.partition(side).name, "processor": system.partition(side).processor}
        for side in systems.SIDES
    }
    sides["virtual"] |= {"hypervisor": virtual.hypervisor.model_dump(), "guest": virtual.guest}
    sides["virtual"]["placement"] = placement.of(system)
    return dict(sides)


def _placed(session: Session) -> placement.Placement:
    told: placement.Placement = session.identity.get("virtual", {}).get("placement", {})
    return told


def _notes(session: Session, against: Session | None, gate: str, stack: manifest.Manifest) -> list[str]:
    notes = []
    if against is None and gate == "change":
        notes.append(
            "No earlier session was named: this one records the baseline. "
            f"Compare a later build with: --against {session.session}"
        )
    if against and against.stack["hash"] != stack.hash:
        notes.append(
            f"The stack differs from that of {against.session}: what changes may not be the hypervisor."
        )
    return notes


def _run_looks(job: Qualification) -> None:
    request = job.request
    records_baseline = not request.against and _gate(job.session) == "change"
    pairs = request.pairs or (BASELINE_PAIRS if records_baseline else SCREEN_PAIRS)
    todo: list[tuple[int, int, tuple[str, ...]]] = [(0, pairs - 1, ())]
    while todo:
        for first, last, checks in todo:
            _one_look(job, first, last, checks)
            if job.watch.lost or job.broken:
                return
        todo = _next(job)


def _gate(session: Session) -> str:
    return judging.references().hypervisor_class(session.hypervisor_class).gate


def _one_look(job: Qualification, first: int, last: int, checks: tuple[str, ...]) -> None:
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
        settings={"against": request.against, "hypervisor_class": session.hypervisor_class},
        extras={
            "virtqual_session": session.session,
            "hypervisor_class": session.hypervisor_class,
            "hypervisor_build": re.sub(r"[^\w.+:-]+", "_", job.system.virtual.hypervisor.build),
        },
    )
    listed = job.directory / "catalogue.json"
    env = {
        "VIRTQUAL_PAIRS": f"{first}:{last}",
        "VIRTQUAL_SCOPE": "full" if request.full else "quick",
        "VIRTQUAL_CATALOGUE": str(listed),
    }
    if number > 1:
        env["VIRTQUAL_SESSION"] = str(session.write(job.directory))
    what = ", ".join(checks) or _selection(request)
    pairs = f"pairs {first} and {last}" if last == first + 1 else f"pairs {first} to {last}"
    pairs = f"pair {first}" if first == last else pairs
    job.screen.look_begins(number, f"{what}: {pairs}", _expected(job, checks, last - first + 1))
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
        if job.watch.lost:
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
    _judge(job)
    session.write(job.directory)


def _classify(job: Qualification, failure: Failure) -> None:
    """Tell what makes a series unjudgeable from what is broken."""
    check = " ".join(part for part in failure.case.split(" ") if not part.startswith("%sample="))
    why = f"{failure.partition}: {failure.reason}"
    if failure.phase == "performance" and failure.partition == job.system.partition("native").name:
        why = f"native misses its absolute reference ({failure.reason})"
    elif failure.phase != "sanity" or "job exited with exit code" in failure.reason:
        job.broken.append(f"{failure.case} on {failure.partition}: {failure.reason}")
    job.refused[check] = (*job.refused.get(check, ()), why)


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
        design=design(job.request.max_pairs),
    )
    session.judged = job.verdict.to_record()
    session.preflight = judging.preflight(session.runs, session.hypervisor_class).shown
    session.canaries = list(judging.canaries(session.runs, session.hypervisor_class))


def design(max_pairs: int) -> Design:
    """Return the decision's design with fewer looks.

    Raises
    ------
    UsageError
        Fewer pairs than the first looks need.
    """
    try:
        return Design().up_to(max_pairs)
    except ValueError as error:
        raise UsageError(f"--max-pairs {max_pairs}: {error}") from error


def _next(job: Qualification) -> list[tuple[int, int, tuple[str, ...]]]:
    """Group the checks that need more pairs by the pair numbers that they need."""
    if job.verdict is None:
        return []
    by_series = {result.series: run.check for run in job.session.runs for result in run.results}
    ranges: dict[str, tuple[int, int]] = {}
    for need in job.verdict.plan.needs:
        check = by_series[need.series]
        # A check that failed outright would fail again, and what it has can be judged no further.
        if check in job.refused or need.last >= job.request.max_pairs * 2:
            continue
        first, last = ranges.get(check, (need.first, need.last))
        ranges[check] = (min(first, need.first), max(last, need.last))
    groups: dict[tuple[int, int], list[str]] = defaultdict(list)
    for check, span in ranges.items():
        groups[span].append(check)
    return [(first, last, tuple(checks)) for (first, last), checks in sorted(groups.items())]


def _expected(job: Qualification, checks: Sequence[str], pairs: int) -> float | None:
    """Return how long a look should take, seconds, from runs that there were; None if there were none."""
    history = [run for run in _history(job) if not checks or run.check in checks]
    by_case: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in history:
        by_case[run.check, run.side].append(run.end - run.start)
    if not by_case:
        return None
    # ReFrame's start, and a second around each job.
    return 5 + pairs * sum(statistics.median(times) + 1 for times in by_case.values())


def _history(job: Qualification) -> Sequence[Run]:
    if job.session.runs:
        return job.session.runs
    for file in sorted(paths.sessions().glob(f"*-{job.session.system}/{store.FILE}"), reverse=True):
        try:
            earlier = store.load(file)
        except UsageError:
            continue  # of another version: it only tells how long a run may take
        if earlier.runs:
            return earlier.runs
    return ()


def _conclude(job: Qualification, *, interrupted: bool = False) -> None:
    conclusion.conclude(
        job.session,
        job.verdict,
        interrupted=interrupted,
        broken=list(job.watch.lost.values()) or job.broken,
        unmeasured=len(job.refused.keys() - {run.check for run in job.session.runs if not run.instead}),
        qualifies=judging.references().hypervisor_class(job.session.hypervisor_class).qualifies,
        build=f"{job.system.virtual.hypervisor.vendor} {job.system.virtual.hypervisor.build}",
    )
    job.session.write(job.directory)


__all__ = ["Qualification", "Request", "Screen", "design", "load_system", "qualify"]
