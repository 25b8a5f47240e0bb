"""Before anything runs: the request is checked, and the session is opened."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from virtqual import paths
from virtqual.errors import InfrastructureError, RefusedError, UsageError, VirtqualError
from virtqual.files.records import sync_directory
from virtqual.files.wording import list_names, printable, suggest
from virtqual.harness import catalogue, repetitions
from virtqual.harness.catalogue import Entry
from virtqual.preflight.compare import compare
from virtqual.preflight.finding import refusals
from virtqual.qualify import concluding, plan, requested
from virtqual.qualify.allocations import can_rotate, min_nodes
from virtqual.qualify.asking import ask_hosts
from virtqual.qualify.between import check_command
from virtqual.qualify.checking import check_conclusion, find_doubts
from virtqual.qualify.leftovers import end_leftovers
from virtqual.qualify.state import Qualification
from virtqual.references import NoReferenceError, project_references
from virtqual.report.terminal import Terminal
from virtqual.session import conclusion, store
from virtqual.session.judge import admitted_of, policy
from virtqual.session.lock import measuring, name_holder
from virtqual.session.log import Begun, Log, Probed, Resumed
from virtqual.session.pairing import series_of
from virtqual.session.provenance import provenance
from virtqual.session.session import (
    MAX_LABEL_CHARS,
    OPEN_OUTCOMES,
    BothPartitions,
    Head,
    Request,
    Resumption,
    Session,
    StackFacts,
)
from virtqual.session.summary import find_for, find_good
from virtqual.site import placement, probe
from virtqual.site.configuration import load_system
from virtqual.site.held import DEFAULT_NODES
from virtqual.site.hosts import find_hosts
from virtqual.site.nodes import Watch
from virtqual.site.slurm import cancel_jobs
from virtqual.site.systems import System
from virtqual.stack import manifest
from virtqual.stack.manifest import Manifest
from virtqual.verdict.budget import HypervisorClass
from virtqual.verdict.pairs import SIDES, PairingError
from virtqual.verdict.rule import MIN_PAIRS_TO_QUALIFY

#: The name of the last session that is `Summary.good`, after ``--against``.
GOOD_NAME = "good"
_STATED_NOTE = (
    "so the system file states, and no host was asked. If another build runs now, state it there first."
)


def prepare(request: Request, screen: Terminal, locks: ExitStack) -> Qualification:
    """Open the session of a request, and show its begin; `locks` keeps the lock of the system."""
    system = load_system(request.system)
    check_command(system)
    # Hosts that are asked have other work than the runs of another session.
    lock = _lock_system(system.name, screen, locks)
    system = ask_hosts(system)
    stack = find_any_stack(request.stack, system)
    chosen, earlier, request, entries = settle(
        request, system, stack.features if stack else None, stack.name if stack else ""
    )
    # A misspelt name is told before the stack is built, which takes hours.
    if stack is None:
        raise InfrastructureError(manifest.NO_STACK_MESSAGE)
    stated_nodes, system = system.native_extras.nodes, system.use_nodes(request.nodes)
    watch = _begin_watch(system, screen)
    head, log = begin_log(system, chosen, describe_stack(stack), earlier, request)
    notes = _make_notes(head, request, earlier, chosen)
    if system.native_extras.nodes < stated_nodes:
        notes.append(f"It uses {system.native_extras.nodes} of {stated_nodes} nodes of each side (--nodes).")
    looks, first_pairs = plan.look_schedule(request, chosen)
    job = Qualification(
        request, screen, system, log, head, earlier, entries, looks, first_pairs, watch=watch, lock=lock
    )
    return _begin_session(job, notes)


def resume(name: str, resumed_by: Request, screen: Terminal, locks: ExitStack) -> Qualification:
    """Take up a session that has ended too early, on the same system (empty for any) and build."""
    log, request = _find_resumable(name, resumed_by.system)
    request = request.model_copy(update={"wait_hours": resumed_by.wait_hours or request.wait_hours})
    system = load_system(request.system)
    check_command(system)
    lock = _lock_system(system.name, screen, locks)
    # It may have gone on until now.
    _find_resumable(str(log.directory), system.name)
    begun = log.session()
    system = ask_hosts(system).use_nodes(request.nodes)
    chosen = choose_class(begun.hypervisor_class, system)
    # Not from the request: `last` may be another session by now.
    earlier = find_earlier(begun.against or "", system)
    stack = find_stack(begun.stack["name"], system)
    entries = requested.list_checks(request, system, stack.features, chosen)
    if changed := _find_changes(begun, _describe_partitions(system), describe_stack(stack)):
        raise RefusedError(
            f"session {begun.session} cannot go on: {'; '.join(changed)}. "
            "Runs of both would be no single session; begin a new one"
        )
    watch = _begin_watch(system, screen)
    # Its process is gone, since this one holds the lock.
    cancel_jobs(log.unfinished())
    now = datetime.datetime.now(datetime.UTC).astimezone().isoformat(timespec="seconds")
    log.reopen()
    ended = begun.conclusion or "It ended before anything was concluded."
    nodes = begun.basis.lost_nodes if begun.basis else {}
    number, node_lost = len(begun.rounds), begun.node_lost
    resumption = Resumption(time=now, ended=ended, node_lost=node_lost, round=number, nodes=nodes)
    log.append(Resumed(resumption=resumption))
    notes = [f"It began at {begun.created}. Runs of it that count: {len(begun.runs)}. {ended}"]
    if begun.build_is_stated:
        notes.append(f"The hypervisor is still the same: {_STATED_NOTE}")
    looks, first_pairs = plan.look_schedule(request, chosen)
    job = Qualification(
        request, screen, system, log, begun, earlier, entries, looks, first_pairs, watch=watch, lock=lock
    )
    return _begin_session(job, notes)


def _lock_system(system: str, screen: Terminal, locks: ExitStack) -> int:
    """Keep other sessions away from a system, and return the descriptor of the lock."""
    return locks.enter_context(measuring(paths.make(paths.state()), system, "a session", screen.note))


def _begin_watch(system: System, screen: Terminal) -> Watch:
    """Check that files can be staged and nodes can run jobs, and end jobs that dead sessions have left."""
    prefix = Path(system.prefix)
    for directory in (prefix, prefix / "stage", prefix / "output"):
        if directory.exists() and not os.access(directory, os.W_OK):
            raise InfrastructureError(
                f"{system.file}: system.prefix: {directory} cannot be written: name a directory of each "
                "user's own, such as /scratch/virtqual-$USER"
            )
    watch = Watch(system)
    # If runs rotate, nodes that do not work are left out.
    if lacking := watch.begin(min_nodes(system) if can_rotate(system) else None):
        raise InfrastructureError("; ".join(lacking))
    for note in end_leftovers(system.name):
        screen.note(note)
    return watch


def _begin_session(job: Qualification, notes: list[str]) -> Qualification:
    """Keep the list of checks, name the session in the lock, and show its begin."""
    catalogue.write(job.entries, job.log.directory / catalogue.FILE)
    job.nodes = min(map(job.watch.working, SIDES)) if job.watch.short else job.system.nodes
    notes += [f"{reason}: the session uses {job.nodes} of each side." for reason in job.watch.short]
    notes += _name_outliers(job)
    name_holder(job.lock, f"session {job.head.session}")
    job.screen.begin(job.head, notes)
    job.watch.jobs = job.log.unfinished
    job.watch.allocation = lambda: next(iter(job.held.values()), None)
    if not job.system.native_extras.session_access:
        job.watch.say = job.screen.note
    return job


def _name_outliers(job: Qualification) -> Iterator[str]:
    """Yield a note about each host that the earlier session set aside and this one may use."""
    hosts = set[str]()
    for side in SIDES:
        nodes_of_hosts = job.system.partition(side).extras.nodes_of_hosts
        hosts.update(find_hosts(nodes_of_hosts, job.watch.nodes(side), side).values())
    for outlier in job.earlier.outliers if job.earlier else ():
        if hosts.intersection(outlier.host.split("+")):
            yield (
                f"Session {job.head.against} set a host aside that this one may use again: {outlier}. "
                "Repair it, or leave it out (docs/add-a-system.md, step 5)."
            )


def _find_resumable(name: str, on: str) -> tuple[Log, Request]:
    """Return the log of a session that can go on, and its request."""
    log = Log(find_for(name, paths.sessions(), on))
    session = log.session()
    subject = f"session {session.session}"
    if on not in ("", session.system):
        raise UsageError(f"{subject} is of system {session.system!r}, not of {on!r}")
    if not paths.is_trusted(log.path.lstat()):
        raise RefusedError(f"{subject} belongs to another user, and names jobs to cancel")
    if session.is_empty:
        raise UsageError(f"{subject} has no run: there is nothing to go on with; begin a new one")
    if session.request is None:
        raise UsageError(f"{subject} was a plain ReFrame run: only those of `virtqual qualify` can go on")
    if session.outcome not in OPEN_OUTCOMES:
        raise UsageError(f"{subject} is concluded ({session.outcome}): there is nothing left of it to run")
    return log, session.request


def _find_changes(begun: Session, identity: BothPartitions, stack: StackFacts) -> list[str]:
    """Return what has changed since a session began, in words."""
    changed = []
    if stack["hash"] != begun.stack["hash"]:
        changed.append(f"its stack {stack['name']!r} is another one")
    for side in SIDES:
        now: dict[str, Any] = {**identity[side]}
        then: dict[str, Any] = {**begun.identity[side]}
        keys = sorted(key for key in now if json.loads(json.dumps(now[key])) != then.get(key))
        changed += [f"the system file states another {key} of the {side} partition" for key in keys]
    return changed


def check(request: Request, resumed: str | None = None) -> None:
    """Refuse a wrong request, as far as that can be known before the system is up and set up."""
    if resumed is not None:
        _find_resumable(resumed, request.system)
        return
    if request.hypervisor_class:
        project_references().hypervisor_class(request.hypervisor_class)
    try:
        system = load_system(request.system)
    except InfrastructureError:
        # It is not there at the moment: the rest is checked when the session begins.
        if request.against and request.against != GOOD_NAME:
            store.load_earlier(find_for(request.against, paths.sessions(), request.system, request))
        requested.check_words(request)
        return
    # The stack may not be set up yet.
    settle(request, system, None)


def settle(
    request: Request, system: System, features: Collection[str] | None, stack: str = ""
) -> tuple[HypervisorClass, Session | None, Request, tuple[Entry, ...]]:
    """Return the class, the session to compare with, the request as it is carried out, and all checks.

    A session with which later ones will be compared takes four pairs or more. `features` are those of the
    stack; None if every program is assumed to be there. `stack` is its name, if one is set up.

    Raises
    ------
    UsageError, RefusedError
        The request asks for what the system, its checks, or the earlier session cannot give.
    """
    if request.policy == "async" and system.native_extras.session_access:
        raise UsageError(
            "--policy async is for busy queues, where runs wait as jobs: on this system a session holds its "
            "nodes (extras.session_access), and decides itself what runs when"
        )
    if request.nodes and request.nodes > max(DEFAULT_NODES, system.nodes):
        raise UsageError(
            f"--nodes {request.nodes}: system {system.name!r} states {system.nodes} nodes of each side "
            "(extras.nodes)"
        )
    chosen = choose_class(request.hypervisor_class, system)
    entries = requested.list_checks(request, system, features, chosen)
    earlier = _find_earlier_or_good(request, system, chosen, stack or request.stack)
    if earlier is None and (chosen.gate == "change" or request.against == GOOD_NAME):
        pairs = request.pairs or MIN_PAIRS_TO_QUALIFY
        request = request.model_copy(update={"fast": False, "pairs": pairs})
    return chosen, earlier, request, entries


def begin_log(
    system: System,
    chosen: HypervisorClass,
    stack: StackFacts,
    earlier: Session | None,
    request: Request | None,
) -> tuple[Head, Log]:
    """Make the session's directory and begin its log."""
    now = datetime.datetime.now(datetime.UTC)
    directory = _make_directory(now, system.name)
    label = "reframe"
    if request:
        # In an ASCII locale, arguments are bytes in disguise.
        text = request.label[: 4 * MAX_LABEL_CHARS].encode("utf-8", "surrogateescape")
        label = printable(" ".join(text.decode("utf-8", "replace").split()), MAX_LABEL_CHARS)
        request = request.model_copy(update={"label": label})
    head = Head(
        session=directory.name,
        label=label,
        created=now.astimezone().isoformat(timespec="seconds"),
        system=system.name,
        hypervisor_class=chosen.name,
        identity=_describe_partitions(system),
        stack=stack,
        against=earlier.session if earlier else None,
        repetitions=repetitions.starts_of(earlier) if earlier else {},
        peaks=repetitions.peaks_of(earlier) if earlier else {},
        # A plain run has one round.
        recreates_vms=bool(request and system.virtual_extras.recreate_vms),
        build_is_stated=system.virtual_extras.is_build_stated,
        request=request,
        provenance=provenance(),
    )
    log = Log(directory)
    log.append(Begun(head=head))
    return head, log


def describe_stack(stack: Manifest) -> StackFacts:
    """Return the facts of a stack that a session keeps."""
    facts = {"name", "version", "origin", "features", "sha256"}
    programs = [program.model_dump(mode="json", include=facts) for program in stack.programs]
    described = {"name": stack.name, "hash": stack.hash, "programs": programs}
    return TypeAdapter(StackFacts).validate_python(described)


def _make_directory(now: datetime.datetime, system: str) -> Path:
    """Make the session's directory, whose name is its id, with the time in UTC.

    A second session of the same second takes the next second.
    """
    sessions = paths.make(paths.sessions())
    while True:
        directory = sessions / f"{now:%Y%m%d-%H%M%S}-{system}"
        try:
            directory.mkdir(mode=paths.directory_mode())
            sync_directory(sessions)
        except FileExistsError:
            now += datetime.timedelta(seconds=1)
        except OSError as error:
            raise InfrastructureError(f"{directory}: cannot be made: {error.strerror}") from error
        else:
            return directory


def find_stated_class(system: System) -> HypervisorClass:
    """Return the class that a system file states; an unknown one is a `UsageError` with file and key."""
    try:
        return project_references().hypervisor_class(system.virtual_extras.hypervisor_class)
    except NoReferenceError as error:
        key = system.name_key("virtual", "extras.hypervisor_class")
        raise UsageError(f"{system.file}: {key}: {error}") from None


def _list_classes(accelerator: str) -> str:
    """Return the classes of an accelerator, or all of them with theirs if none is for it."""
    classes = project_references().classes
    fitting = sorted(name for name, each in classes.items() if accelerator in each.accelerators)
    if fitting:
        return f"classes for this accelerator: {', '.join(fitting)}"
    known = [f"{name} ({' or '.join(each.accelerators)})" for name, each in sorted(classes.items())]
    return f"no class is for this accelerator; there are {', '.join(known)}"


def choose_class(name: str, system: System) -> HypervisorClass:
    """Return the class of budgets, which must be one that these VMs may be judged as."""
    hypervisor = system.virtual_extras.hypervisor
    stated = find_stated_class(system)
    chosen = project_references().hypervisor_class(name) if name else stated
    if hypervisor.accelerator not in chosen.accelerators:
        raise RefusedError(
            f"class {chosen.name!r} is for {' or '.join(chosen.accelerators)}, but by {system.file} these "
            f"VMs run under {hypervisor.vendor} with the accelerator {hypervisor.accelerator!r}; "
            f"{_list_classes(hypervisor.accelerator)}"
        )
    if not chosen.fits(stated):
        raise RefusedError(
            f"class {chosen.name!r} does not fit: the system file states class {stated.name!r}, and "
            "a class that qualifies no build stands for no other"
        )
    if expired := [str(problem) for problem in project_references().expired(datetime.date.today())]:
        raise UsageError("; ".join(expired))
    return chosen


def _find_earlier_or_good(
    request: Request, system: System, chosen: HypervisorClass, stack: str
) -> Session | None:
    """Return the session to compare with, if any; under `GOOD_NAME` the last good one."""
    if request.against != GOOD_NAME:
        return find_earlier(request.against, system, request)
    for directory in find_good(paths.sessions(), system.name, chosen.name, stack, full=request.full):
        # A session from before the VMs were placed otherwise, or a metric was renamed, is good no longer.
        with suppress(VirtqualError):
            session = find_earlier(str(directory), system)
            # Its conclusion is believed only if its runs say the same.
            checked = check_conclusion(session, directory) if session else None
            # A budget or a text that has changed since does not matter while the answers are the same.
            if checked and not (checked.problems or checked.is_judged_otherwise):
                return session
    return None


def find_earlier(against: str, system: System, request: Request | None = None) -> Session | None:
    """Return the session to compare with, which must be of the same system with its VMs placed alike."""
    if not against:
        return None
    directory = find_for(against, paths.sessions(), system.name, request)
    earlier = store.load_earlier(directory)
    if earlier.system != system.name:
        raise RefusedError(f"session {earlier.session} was measured on system {earlier.system!r}")
    if differences := placement.find_differences(earlier.placement, placement.read_placement(system)):
        raise RefusedError(
            f"session {earlier.session} was measured with the VMs placed otherwise "
            f"({', '.join(differences)}): changes would not be the hypervisor's; "
            "record a baseline with this placement"
        )
    # A session without a pair is refused now, and not after hours of measuring.
    try:
        series = series_of(admitted_of(earlier).runs, project_references())
    except PairingError as error:
        raise UsageError(f"{directory}: {error}") from error
    if not any(line.valid for line in series.values()):
        reasons = [why for line in series.values() for pair in line.pairs for why in pair.invalid]
        raise UsageError(
            f"{directory}: session {earlier.session} has no pair that counts "
            f"({'; '.join(dict.fromkeys(reasons[:3])) or 'no series'}): nothing can be compared with it"
        )
    if doubts := find_doubts(earlier, directory):
        raise RefusedError(f"session {earlier.session} cannot be compared with: {doubts[0]}")
    return earlier


def find_stack(name: str, system: System) -> Manifest:
    """Return the stack of a name for a system, or else the first that is set up, as it was recorded."""
    stacks = {stack.name: stack for stack in manifest.load_all(paths.stacks())}
    if not stacks:
        raise InfrastructureError(manifest.NO_STACK_MESSAGE)
    if name and name not in stacks:
        raise UsageError(f"no stack {name!r}: {suggest(name, stacks)}")
    stack = stacks[name] if name else next(iter(stacks.values()))
    if changed := list(stack.find_changes()):
        again = manifest.name_setup(stack.name, again=True)
        raise InfrastructureError(f"stack {stack.name!r}: {'; '.join(changed)}; {again} sets it up again")
    modules = sorted({module for program in stack.programs for module in program.modules})
    if modules and system.modules_system == "nomod":
        raise UsageError(
            f"stack {stack.name!r} loads modules ({list_names(modules, 3)}), and the file of system "
            f"{system.name!r} states none that loads them: modules_system is 'lmod', or 'envmod' for "
            "Environment Modules"
        )
    return stack


def find_any_stack(name: str, system: System) -> Manifest | None:
    """Return the stack that `find_stack` returns; None if no stack is set up."""
    return find_stack(name, system) if manifest.find_stacks(paths.stacks()) else None


def probe_nodes(job: Qualification) -> Session | None:
    """Probe a node of each partition; return the session if it ends because they may not be compared."""
    if not (job.held or job.system.native_extras.own_scheduler):
        job.screen.note("a short job looks at a node of each partition first")
    look = partial(probe.probe_node, allocation=job.held, wait_hours=job.request.wait_hours)
    nodes = {side: look(job.system, side, job.screen.note) for side in SIDES}
    job.log.append(Probed(nodes=nodes))
    stack = manifest.load(paths.stacks() / job.head.stack["name"] / manifest.FILE)
    findings = compare(nodes["native"], nodes["virtual"], policy(), job.head.hypervisor_class, stack.targets)
    if refusals(findings):
        session = job.log.session()
        session.preflight = findings
        conclusion.refuse(session)
        concluding.write(job.log, session)
        return session
    return None


def _describe_partitions(system: System) -> BothPartitions:
    virtual, sides = system.virtual_extras, {}
    for side in SIDES:
        partition = system.partition(side)
        sides[side] = {
            "partition": partition.name,
            "processor": partition.processor,
            "features": partition.all_features,
        }
    sides["virtual"] |= {
        "hypervisor": virtual.hypervisor.model_dump(),
        "guest": virtual.guest,
        "placement": placement.read_placement(system),
    }
    return TypeAdapter(BothPartitions).validate_python(sides)


def _make_notes(head: Head, request: Request, earlier: Session | None, chosen: HypervisorClass) -> list[str]:
    notes, against = [], request.against
    stack = head.stack["name"]
    other_stacks = [name for name in manifest.find_stacks(paths.stacks()) if name != stack]
    if other_stacks and not request.stack:
        shown = list_names(other_stacks, 3)
        notes.append(f"Stack {stack} has the most features; --stack names another: {shown}.")
    if request.fast:
        notes.append("A metric can pass after two pairs (--fast), and no build is called qualified.")
    if earlier and against == "last":
        notes.append(f"The last session of {head.system} that measured these checks is {earlier.session}.")
    if against == GOOD_NAME:
        kind = f"session of {head.system}, class {chosen.name}, without --fast"
        good = f"{kind}, in which all of this scope is WITHIN"
        first = f"this one takes {request.pairs} pairs first, and later ones are compared with it"
        notes.append(
            f"The last {good} is {earlier.session}." if earlier else f"There is no {good} yet: {first}."
        )
    if chosen.unqualified:
        notes.append(f"Under class {chosen.name} no build is qualified for production. {chosen.reason}")
    if earlier is None and chosen.gate == "change":
        notes.append(
            "No earlier session was named: this one records the baseline. "
            f"Compare a later build with: --against {head.session}"
        )
    if earlier and earlier.stack["hash"] != head.stack["hash"]:
        notes.append(
            f"The stack differs from that of {earlier.session}: what changes may not be the hypervisor."
        )
    if earlier and head.build_is_stated and head.hypervisor == earlier.hypervisor:
        notes.append(f"The hypervisor is the one of {earlier.session}: {_STATED_NOTE}")
    return notes
