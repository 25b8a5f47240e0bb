"""Before anything runs: what was asked for makes sense, is allowed, and can run."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from virtqual import paths
from virtqual.errors import InfrastructureError, RefusedError, UsageError, VirtqualError
from virtqual.files.records import sync_directory
from virtqual.files.wording import printable
from virtqual.harness import repetitions
from virtqual.preflight.compare import compare
from virtqual.preflight.finding import refusals
from virtqual.qualify import concluding, plan
from virtqual.qualify.allocations import may_rotate, min_nodes
from virtqual.qualify.asking import with_hosts
from virtqual.qualify.between import check_command
from virtqual.qualify.checking import check_conclusion
from virtqual.qualify.leftovers import end_leftovers
from virtqual.qualify.state import Qualification, Screen
from virtqual.references import expiry_problems
from virtqual.references.budgets import HypervisorClass
from virtqual.references.load import known as references
from virtqual.session import conclusion, store
from virtqual.session.judge import admitted_of, policy
from virtqual.session.lock import measuring, name_holder
from virtqual.session.log import Begun, Log, Probed, Resumed
from virtqual.session.pairing import series_of
from virtqual.session.provenance import provenance
from virtqual.session.session import (
    MAX_LABEL_CHARS,
    BothPartitions,
    Head,
    Request,
    Resumption,
    Session,
    StackFacts,
)
from virtqual.session.summary import find_for, good
from virtqual.site import placement, probe, systems
from virtqual.site.configuration import load_system
from virtqual.site.nodes import GLANCE, OFTEN, Watch
from virtqual.site.slurm import cancel
from virtqual.site.systems import System
from virtqual.stack import manifest
from virtqual.stack.manifest import Manifest
from virtqual.verdict.pairs import SIDES

#: Names the last session that later ones may be held against (`Summary.good`); none where there is none.
GOOD = "good"


def prepare(request: Request, screen: Screen, held: ExitStack) -> Qualification:
    """Make a session of what was asked for, and tell the screen of it.

    Parameters
    ----------
    request, screen
        What was asked for, and who is told.
    held
        Keeps the lock of the system as long as the session measures.

    Raises
    ------
    UsageError, RefusedError, InfrastructureError
        What was asked for makes no sense, must not be judged, or cannot run.
    """
    looks = plan.affordable(request)
    system = with_hosts(load_system(request.system))
    check_command(system)
    if request.policy == "async" and system.native.session_access:
        raise UsageError(
            "--policy async is for busy queues, where runs wait as jobs: on this system a session holds its "
            "nodes (extras.session_access), and decides itself what runs when"
        )
    chosen = _class(request.hypervisor_class, system)
    earlier = _asked_for(request, system, chosen)
    stack = stack_named(request.stack)
    lock, watch = _alone(system, screen, held)
    head, log = _opened(system, chosen, _described(stack), earlier, request)
    notes = _notes(head, earlier, chosen, stack)
    if earlier and request.against == "last":
        notes.insert(0, f"The last session of {system.name} that measured something is {earlier.session}.")
    if request.against == GOOD:
        what = f"session of {system.name}, class {chosen.name}, in which all of this scope is WITHIN"
        notes.insert(0, f"The last {what} is {earlier.session}." if earlier else f"There is no {what} yet.")
    return _ready(Qualification(request, screen, system, log, head, earlier, looks, watch, lock), notes)


def resume(name: str, on: str, screen: Screen, held: ExitStack) -> Qualification:
    """Take up a session that has ended before it came to a conclusion, on the same system and build.

    Parameters
    ----------
    name
        Its id, or what `virtqual.session.store.find` knows.
    on
        Name of its system; empty for whichever it is.
    screen, held
        As of `prepare`.

    Raises
    ------
    UsageError
        There is no such session, or none that can go on.
    RefusedError
        Something is not any more as it was when the session began.
    InfrastructureError
        It cannot go on now.
    """
    log, request = _resumable(name, on)
    begun = log.session()
    system = with_hosts(load_system(begun.system))
    check_command(system)
    _class(begun.hypervisor_class, system)
    # What was found for the request: `last` may be another session by now.
    earlier = _earlier(begun.against or "", system)
    stack = stack_named(begun.stack["name"])
    if changed := _changed(begun, _identity(system), _described(stack)):
        raise RefusedError(
            f"session {begun.session} cannot go on: {'; '.join(changed)}. "
            "Runs of both would be no single session; begin a new one"
        )
    lock, watch = _alone(system, screen, held)
    # Whoever ran it is gone: nobody else holds the lock.
    cancel(log.unfinished())
    now = datetime.datetime.now(datetime.UTC).astimezone().isoformat(timespec="seconds")
    log.reopen()
    ended = begun.conclusion or "It ended before anything was concluded."
    log.append(Resumed(resumption=Resumption(time=now, ended=ended, node_lost=begun.node_lost)))
    head = Head.model_validate(begun.model_dump(by_alias=True, include=set(Head.model_fields)))
    notes = [f"It began at {head.created}, and {len(begun.runs)} runs of it count. {ended}"]
    looks = plan.affordable(request)
    return _ready(Qualification(request, screen, system, log, head, earlier, looks, watch, lock), notes)


def _alone(system: System, screen: Screen, held: ExitStack) -> tuple[int, Watch]:
    """Keep other sessions away, see that nodes can run jobs, and end what dead sessions have left running."""
    lock = held.enter_context(measuring(paths.make(paths.state()), system.name, "a session", screen.note))
    watch = Watch(system, interval=OFTEN if system.native.own_scheduler else GLANCE)
    # Where runs rotate, nodes that do not work are left out.
    if lacking := watch.begin(min_nodes(system) if may_rotate(system) else None):
        raise InfrastructureError("; ".join(lacking))
    for note in end_leftovers(system.name):
        screen.note(note)
    return lock, watch


def _ready(job: Qualification, notes: list[str]) -> Qualification:
    """Tell others who measures now, and the person what to know."""
    if job.watch.short:
        job.nodes = min(map(job.watch.working, systems.SIDES))
        notes += [f"{said}: the session uses {job.nodes} of each side." for said in job.watch.short]
    name_holder(job.lock, f"session {job.head.session}")
    job.screen.begin(job.head, notes)
    job.watch.jobs = job.log.unfinished
    return job


def _resumable(name: str, on: str) -> tuple[Log, Request]:
    """Return the log of a session that can go on, and what was asked for in it."""
    log = Log(find_for(name, paths.sessions(), on))
    session = log.session()
    if on not in ("", session.system):
        raise UsageError(f"session {session.session} is of system {session.system!r}, not of {on!r}")
    if not paths.is_trusted(log.path.lstat()):
        raise RefusedError(f"session {session.session} belongs to another user, and names jobs to cancel")
    if session.request is None:
        raise UsageError(
            f"session {session.session} was a plain ReFrame run: only those of `virtqual qualify` can go on"
        )
    if session.outcome not in ("UNFINISHED", "BROKEN", "INTERRUPTED"):
        raise UsageError(
            f"session {session.session} is concluded ({session.outcome}): there is nothing left of it to run"
        )
    return log, session.request


def _changed(begun: Session, identity: BothPartitions, stack: StackFacts) -> list[str]:
    """Return what is not any more as it was when a session began, in words."""
    changed = []
    if stack["hash"] != begun.stack["hash"]:
        changed.append(f"its stack {stack['name']!r} is another one")
    for side in SIDES:
        now: dict[str, Any] = {**identity[side]}
        then: dict[str, Any] = {**begun.identity[side]}
        others = sorted(key for key in now if json.loads(json.dumps(now[key])) != then.get(key))
        changed += [f"the system file states another {key} of the {side} partition" for key in others]
    return changed


def check(request: Request, resumed: str | None = None) -> None:
    """Refuse what makes no sense, as far as that can be known before the system is up and set up.

    Raises
    ------
    UsageError, RefusedError
        What was asked for makes no sense, or must not be judged.
    """
    if resumed is not None:
        _resumable(resumed, request.system)
        return
    plan.affordable(request)
    if request.hypervisor_class:
        _known_class(request.hypervisor_class)
    try:
        system = load_system(request.system)
    except InfrastructureError:
        # It is not there at the moment: what depends on it is checked when the session begins.
        if request.against and request.against != GOOD:
            store.load_earlier(find_for(request.against, paths.sessions(), request.system))
        return
    chosen = _class(request.hypervisor_class, system)
    _asked_for(request, system, chosen)


@dataclass(frozen=True)
class Opened:
    """The sessions of a plain ReFrame run: their logs by name of the stack, and the earlier session."""

    logs: dict[str, Log]
    earlier: Session | None


def plain(
    system: str,
    stacks: Sequence[str],
    *,
    against: str,
    hypervisor_class: str,
    held: ExitStack | None,
    say: Callable[[str], None],
) -> Opened:
    """Open the sessions of a plain ReFrame run, one for each stack that it runs.

    Parameters
    ----------
    system
        Name of the system.
    stacks
        Names of the stacks.
    against, hypervisor_class
        The earlier session, and the class; empty for none, and for the system file's.
    held
        Keeps the lock of the system; None where nothing is measured.
    say
        Is told what a person should know.

    Raises
    ------
    UsageError, RefusedError, InfrastructureError
        As `prepare`.
    """
    found = load_system(system)
    # A dry run has no lock, and asks nobody.
    found = with_hosts(found) if held is not None else found
    chosen, earlier = _class(hypervisor_class, found), _earlier(against, found)
    if held is not None:
        held.enter_context(measuring(paths.make(paths.state()), found.name, "a plain ReFrame run", say))
        for note in end_leftovers(found.name):
            say(note)
    known = {stack.name for stack in manifest.load_all(paths.stacks())}
    # A site's own check may run in an environment that is none of our stacks: of that nothing is known.
    logs = {}
    for name in stacks:
        stack = (
            _described(stack_named(name)) if name in known else {"name": name, "hash": "none", "programs": []}
        )
        logs[name] = _opened(found, chosen, stack, earlier, None)[1]
    return Opened(logs, earlier)


def _opened(
    system: System,
    chosen: HypervisorClass,
    stack: StackFacts,
    earlier: Session | None,
    request: Request | None,
) -> tuple[Head, Log]:
    """Make the session's directory and begin its log."""
    now = datetime.datetime.now(datetime.UTC)
    directory = _directory(now, system.name)
    label = _shown(request.label) if request else "reframe"
    head = Head(
        session=directory.name,
        label=label,
        created=now.astimezone().isoformat(timespec="seconds"),
        system=system.name,
        hypervisor_class=chosen.name,
        identity=_identity(system),
        stack=stack,
        against=earlier.session if earlier else None,
        repetitions=repetitions.of(earlier) if earlier else {},
        request=request and request.model_copy(update={"label": label}),
        provenance=provenance(),
    )
    log = Log(directory)
    log.append(Begun(head=head))
    return head, log


def _described(stack: Manifest) -> StackFacts:
    facts = {"name", "version", "origin", "features", "sha256"}
    programs = [program.model_dump(mode="json", include=facts) for program in stack.programs]
    described = {"name": stack.name, "hash": stack.hash, "programs": programs}
    return TypeAdapter(StackFacts).validate_python(described)


def _shown(label: str) -> str:
    """Return a label as it can be shown: text of bounded length, without control characters."""
    # Where the locale is ASCII, arguments are bytes in disguise.
    text = label[: 4 * MAX_LABEL_CHARS].encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return printable(" ".join(text.split()), MAX_LABEL_CHARS)


def _directory(now: datetime.datetime, system: str) -> Path:
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


def _class(name: str, system: System) -> HypervisorClass:
    """Return the class of budgets, which must be one that these VMs may be judged as."""
    hypervisor = system.virtual.hypervisor
    stated = _known_class(system.virtual.hypervisor_class)
    chosen = _known_class(name) if name else stated
    if hypervisor.accelerator not in chosen.accelerators:
        raise RefusedError(
            f"class {chosen.name!r} is for {' or '.join(chosen.accelerators)}, but these VMs run under "
            f"{hypervisor.vendor} with the accelerator {hypervisor.accelerator!r}: "
            "what was measured here may not be judged as something else"
        )
    if not chosen.fits(stated):
        raise RefusedError(
            f"the system file states class {stated.name!r}, not {chosen.name!r}, and a class that qualifies "
            "no build stands for no other: what was measured here may not be judged as something else"
        )
    if expired := [str(problem) for problem in expiry_problems(references(), datetime.date.today())]:
        raise UsageError("; ".join(expired))
    return chosen


def _known_class(name: str) -> HypervisorClass:
    try:
        return references().hypervisor_class(name)
    except LookupError as error:
        raise UsageError(str(error)) from error


def _asked_for(request: Request, system: System, chosen: HypervisorClass) -> Session | None:
    """Return the session to compare with: `GOOD` is the last good one that can be compared with, if any."""
    if request.against != GOOD:
        return _earlier(request.against, system)
    for directory in good(paths.sessions(), system.name, chosen.name, full=request.full):
        # From before the VMs were placed otherwise, or a metric was renamed: such a one is good no longer.
        with suppress(VirtqualError):
            session = _earlier(str(directory), system)
            # Its conclusion is believed only if its runs say the same.
            if session and not check_conclusion(session, directory).doubts:
                return session
    return None


def _earlier(against: str, system: System) -> Session | None:
    """Return the session to compare with, which must be of the same system with its VMs placed alike."""
    if not against:
        return None
    directory = find_for(against, paths.sessions(), system.name)
    earlier = store.load_earlier(directory)
    if earlier.system != system.name:
        raise RefusedError(f"session {earlier.session} was measured on system {earlier.system!r}")
    if others := placement.differences(earlier.placement, placement.of(system)):
        raise RefusedError(
            f"session {earlier.session} was measured with the VMs placed otherwise ({', '.join(others)}): "
            "what changes would not be the hypervisor's; record a baseline with this placement"
        )
    # Now, and not after hours of measuring: is there anything in it to compare with?
    try:
        series = series_of(admitted_of(earlier).runs, references())
    except ValueError as error:
        raise UsageError(f"{directory}: {error}") from error
    if not any(one.valid for one in series.values()):
        left_out = [why for one in series.values() for pair in one.pairs for why in pair.invalid]
        raise UsageError(
            f"{directory}: session {earlier.session} has no pair that counts "
            f"({'; '.join(dict.fromkeys(left_out[:3])) or 'no series'}): nothing can be compared with it"
        )
    return earlier


def stack_named(name: str) -> Manifest:
    """Return the software stack: the one asked for, or the first that is set up, as it was recorded."""
    stacks = {stack.name: stack for stack in manifest.load_all(paths.stacks())}
    if not stacks:
        raise InfrastructureError(manifest.NO_STACK_MESSAGE)
    if name and name not in stacks:
        raise UsageError(f"no stack {name!r}; set up are: {', '.join(stacks)}")
    stack = stacks[name] if name else next(iter(stacks.values()))
    if changed := list(stack.changed()):
        again = manifest.name_setup(stack.name)
        raise InfrastructureError(f"stack {stack.name!r}: {'; '.join(changed)}; {again} sets it up again")
    return stack


def refused_beforehand(job: Qualification) -> Session | None:
    """Probe a node of each partition; where they may not be compared, return the session that ends here."""
    names = {side: job.system.partition(side).name for side in systems.SIDES}
    if not (job.held or job.system.native.own_scheduler):
        job.screen.note("looking at a node of each partition first, by a job of a moment")
    nodes = {
        side: probe.probe_node(job.system, side, job.held.get(names[side], "")) for side in systems.SIDES
    }
    native, virtual = nodes["native"], nodes["virtual"]
    job.log.append(Probed(nodes={"native": native, "virtual": virtual}))
    findings = compare(native, virtual, policy(), job.head.hypervisor_class)
    if reasons := refusals(findings):
        session = job.log.session()
        session.preflight = findings
        conclusion.refuse(session, len(reasons))
        concluding.write(job.log, session)
        return session
    return None


def _identity(system: System) -> BothPartitions:
    virtual, sides = system.virtual, {}
    for side in systems.SIDES:
        partition = system.partition(side)
        sides[side] = {
            "partition": partition.name,
            "processor": partition.processor,
            "features": systems.offers(partition.features, partition.extras),
        }
    sides["virtual"] |= {
        "hypervisor": virtual.hypervisor.model_dump(),
        "guest": virtual.guest,
        "placement": placement.of(system),
    }
    return TypeAdapter(BothPartitions).validate_python(sides)


def _notes(head: Head, earlier: Session | None, chosen: HypervisorClass, stack: Manifest) -> list[str]:
    notes = []
    if chosen.unqualified:
        notes.append(f"Under class {chosen.name} no build is qualified for production. {chosen.reason}")
    if earlier is None and chosen.gate == "change":
        notes.append(
            "No earlier session was named: this one records the baseline. "
            f"Compare a later build with: --against {head.session}"
        )
    if earlier and earlier.stack["hash"] != stack.hash:
        notes.append(
            f"The stack differs from that of {earlier.session}: what changes may not be the hypervisor."
        )
    return notes
