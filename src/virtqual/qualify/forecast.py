"""What a session would run, how long that takes, and what it costs, before anything runs (``--plan``)."""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from virtqual.files import execute
from virtqual.harness import catalogue, process
from virtqual.harness.catalogue import Entry
from virtqual.qualify import opening, plan
from virtqual.qualify.allocations import among, may_rotate
from virtqual.session.session import Request
from virtqual.site import held
from virtqual.site.configuration import load_system
from virtqual.site.slurm import chosen, environment, partition_option, states
from virtqual.site.systems import SIDES, System


@dataclass(frozen=True)
class Case:
    """A case that would run.

    Attributes
    ----------
    name
        As sessions name it.
    nodes
        How many nodes of a side a run takes.
    runs
        Its runs in the first round, warm-ups included.
    seconds
        How long a run natively and one in VMs took when it was last run; None where it never was.
    """

    name: str
    nodes: int
    runs: int
    seconds: tuple[float | None, float | None]


@dataclass(frozen=True)
class Forecast:
    """What a session would run.

    Attributes
    ----------
    cases
        What runs, and how long it takes as far as that is known.
    not_run
        What does not run, with the reason.
    least, most
        Seconds of the first round, after which most metrics are decided, and of all pairs that may be asked
        for; None where nothing was ever run.
    jobs
        How many jobs Slurm is asked for, in the first round.
    nodes
        Of both sides, as far as they are held for a session; 0 where each run is a job.
    node_seconds
        Of the first round: what Slurm would account.
    rotated
        On how many nodes of a side at once checks of one node run.
    """

    cases: tuple[Case, ...]
    not_run: tuple[str, ...]
    least: float | None
    most: float | None
    jobs: int
    nodes: int
    node_seconds: float | None
    rotated: int


def forecast(request: Request) -> Forecast:
    """Return what `virtqual qualify` would run; only Slurm is asked which nodes there are.

    Raises
    ------
    UsageError, RefusedError, InfrastructureError
        As of `virtqual.qualify.opening.prepare`.
    """
    opening.check(request)
    looks = plan.affordable(request)
    system, stack = load_system(request.system), opening.stack_named(request.stack)
    entries = _listed(request)
    features = {feature for program in stack.programs for feature in program.features}
    nodes = min(system.native.nodes, system.virtual.nodes)
    asked = plan.asked(request, entries)
    here = [e for e in entries if e.paired and e.case in asked and e.can_run(features, nodes)]
    rotated = _rotated(system)
    turns = request.pairs or looks[0]
    known = plan.earlier(request, request.system)
    known = plan.Durations(known.times, {entry.case: entry.nodes for entry in entries})
    cases = tuple(_case(entry, turns, known, rotated) for entry in here)
    every = sum(map(len, rotated.values())) or system.native.nodes + system.virtual.nodes
    held_nodes = every if system.native.session_access else 0
    # A warm-up takes as long as a turn does.
    least, most = (known.of(count + 1, rotated) if known.times else None for count in (turns, looks[-1]))
    runs = sum(case.runs for case in cases)
    own = [case.runs / 2 * case.nodes * seconds for case in cases for seconds in case.seconds if seconds]
    return Forecast(
        cases=cases,
        not_run=tuple(catalogue.group_missing(catalogue.find_missing(entries, features, nodes))),
        least=least,
        most=most,
        jobs=2 if held_nodes else runs,
        nodes=held_nodes,
        node_seconds=(held_nodes * least if held_nodes else sum(own)) if least else None,
        rotated=held.places_among(rotated, 1),
    )


def _listed(request: Request) -> tuple[Entry, ...]:
    """Return all checks as ReFrame loads them for the system."""
    with tempfile.TemporaryDirectory() as directory:
        listed = Path(directory) / catalogue.FILE
        line = process.listing(request.system, "full" if request.full else "quick")
        done = execute.run(line, env={**environment(), "VIRTQUAL_CATALOGUE": str(listed)})
        if not listed.is_file():
            raise process.output_error(done.stdout + done.stderr)
        return catalogue.read(listed)


def _rotated(system: System) -> dict[str, list[str]]:
    """Return the nodes among which runs would rotate, if Slurm gave the first ones."""
    if not may_rotate(system):
        return {}
    kept = {}
    for partition in map(system.partition, SIDES):
        known = states(partition_option(partition) or partition.name)
        allowed = chosen(partition, known)
        kept[partition.name] = [node for node in known if node in allowed]
    return among(kept, system)


def _case(entry: Entry, turns: int, known: plan.Durations, rotated: held.Nodes) -> Case:

    def took(side: str) -> float | None:
        times = known.times.get((entry.case, side))
        return statistics.median(times) if times else None

    return Case(
        name=entry.name,
        nodes=entry.nodes,
        runs=2 * (turns + 1) * held.places_among(rotated, entry.nodes),
        seconds=(took("native"), took("virtual")),
    )
