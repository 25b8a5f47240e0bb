"""Before anything runs: what was asked for makes sense, is allowed, and can run."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

from virtqual import paths
from virtqual.admission.compare import compare
from virtqual.admission.finding import refusals
from virtqual.errors import InfrastructureError, RefusedError, UsageError
from virtqual.qualify import plan
from virtqual.qualify.job import Qualification, Request, Screen
from virtqual.references import expiry_problems
from virtqual.references.budgets import HypervisorClass
from virtqual.session import conclusion, earlier, judging
from virtqual.session.store import Session
from virtqual.site import configuration as site
from virtqual.site import placement, systems
from virtqual.site import probe as partitions
from virtqual.site.nodes import Watch
from virtqual.site.systems import System
from virtqual.stack import manifest


def prepare(request: Request, screen: Screen) -> Qualification:
    """Make a session of what was asked for, and tell the screen of it.

    Raises
    ------
    UsageError, RefusedError, InfrastructureError
        What was asked for makes no sense, must not be judged, or cannot run.
    """
    plan.affordable(request)
    system = site.load_system(request.system)
    chosen, asked = _class(request, system), request.against
    if request.against:
        # Once, before this session is itself the last one.
        request = replace(request, against=str(earlier.find(request.against, system.name)))
    against = _earlier(request, system)
    stack = _stack(request)
    watch = Watch(system)
    if lacking := watch.begin():
        raise InfrastructureError("; ".join(lacking))
    now = datetime.datetime.now(datetime.UTC).astimezone()
    directory = _directory(now, system.name)
    session = Session(
        session=directory.name,
        # Where the locale is ASCII, arguments are bytes in disguise.
        label=request.label.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
        created=now.isoformat(timespec="seconds"),
        system=system.name,
        hypervisor_class=chosen.name,
        identity=_identity(system),
        stack={
            "name": stack.name,
            "hash": stack.hash,
            "programs": [p.model_dump(mode="json") for p in stack.programs],
        },
        against=against.session if against else None,
    )
    notes = _notes(session, against, chosen.gate, stack)
    if against and asked == "last":
        notes.insert(0, f"The last session of {system.name} that measured something is {against.session}.")
    screen.begin(session, system, notes)
    return Qualification(request, screen, system, session, directory, watch)


def _directory(now: datetime.datetime, system: str) -> Path:
    """Make the session's directory, whose name is its id: of two in one second, one takes the next second."""
    while True:
        directory = paths.sessions() / f"{now:%Y%m%d-%H%M%S}-{system}"
        try:
            directory.mkdir(parents=True)
        except FileExistsError:
            now += datetime.timedelta(seconds=1)
        else:
            return directory


def _class(request: Request, system: System) -> HypervisorClass:
    """Return the class of budgets, which must be one that these VMs may be judged as."""
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
    return chosen


def _earlier(request: Request, system: System) -> Session | None:
    """Return the session to compare with, which must be of the same system with its VMs placed alike."""
    if not request.against:
        return None
    against = earlier.load(Path(request.against))
    if against.system != system.name:
        raise RefusedError(f"session {against.session} was measured on system {against.system!r}")
    if others := placement.differences(_placed(against), placement.of(system)):
        raise RefusedError(
            f"session {against.session} was measured with the VMs placed otherwise ({', '.join(others)}): "
            "what changes would not be the hypervisor's; record a baseline with this placement"
        )
    return against


def _stack(request: Request) -> manifest.Manifest:
    """Return the software stack: the one asked for, or the first that is set up, as it was recorded."""
    stacks = {stack.name: stack for stack in manifest.installed(paths.stacks())}
    if not stacks:
        raise InfrastructureError(manifest.NONE)
    if request.stack and request.stack not in stacks:
        raise UsageError(f"no stack {request.stack!r}; set up are: {', '.join(stacks)}")
    stack = stacks[request.stack] if request.stack else next(iter(stacks.values()))
    if changed := list(stack.changed()):
        again = manifest.set_up_by(stack.name)
        raise InfrastructureError(f"stack {stack.name!r}: {'; '.join(changed)}; {again} sets it up again")
    return stack


def refused_beforehand(job: Qualification) -> bool:
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
        conclusion.refuse(session, len(reasons))
    session.write(job.directory)
    return bool(reasons)


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
