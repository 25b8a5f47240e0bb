"""The runs, the duration and the cost of a session, before anything runs (``--plan``)."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from virtqual.files import execute
from virtqual.harness import catalogue, process
from virtqual.harness.catalogue import Entry
from virtqual.qualify import opening, plan
from virtqual.qualify.allocations import can_rotate, choose_rotated_nodes
from virtqual.session.session import Request
from virtqual.site import held
from virtqual.site.configuration import load_system
from virtqual.site.slurm import environment, find_partition_name, list_node_states, select_nodes
from virtqual.site.systems import SIDES, System


@dataclass(frozen=True)
class PlannedCase:
    """A case that would run: nodes of a side, runs in the first round, seconds of the last runs by side."""

    name: str
    nodes: int
    runs: int
    seconds: tuple[float | None, float | None]


@dataclass(frozen=True)
class Forecast:
    """The runs of a session, with their duration and cost."""

    cases: tuple[PlannedCase, ...]
    #: The checks that cannot run, by reason.
    not_run: tuple[str, ...]
    #: Seconds of the first round, and of all pairs that are allowed; None if no case was ever run.
    first_round_s: float | None
    all_rounds_s: float | None
    #: Nodes of both sides that are held for the session; 0 if each run is a job.
    held_nodes: int
    #: On how many nodes of a side at once checks of one node run.
    places: int

    @property
    def runs(self) -> int:
        """How many runs the first round has."""
        return sum(case.runs for case in self.cases)

    @property
    def node_seconds(self) -> float:
        """The node-seconds of the first round, as Slurm accounts them."""
        if self.held_nodes:
            return self.held_nodes * (self.first_round_s or 0)
        return sum(case.runs / 2 * case.nodes * took for case in self.cases for took in case.seconds if took)


def forecast(request: Request) -> Forecast:
    """Return what `virtqual qualify` would run; only Slurm is asked which nodes there are."""
    plan.check_pairs(request)
    system = load_system(request.system)
    stack = opening.find_stack(request.stack, system)
    chosen, _, request = opening.settle(request, system)
    system = system.use_nodes(request.nodes)
    looks, turns = plan.look_schedule(request, chosen)
    entries = _list_checks(request)
    features = {feature for program in stack.programs for feature in program.features}
    nodes = min(system.native.nodes, system.virtual.nodes)
    selected = plan.select_cases(request, entries)
    rotated = _rotated_nodes(system)
    seconds = plan.recall_durations(request, request.system).seconds
    durations = plan.Durations(seconds, {entry.case: entry.nodes for entry in entries})
    # VMs that were created anew are warmed up, about once for each look.
    warm_ups = 1 + len(looks) if system.virtual.recreate_vms else 1
    cases = []
    for entry in entries:
        if entry.paired and entry.case in selected and not entry.explain_unfit(features, nodes):
            # A warm-up takes as long as a turn does.
            runs = 2 * (turns + 1) * held.count_places(rotated, entry.nodes)
            took = seconds.get(entry.case, {})
            case = PlannedCase(entry.name, entry.nodes, runs, (took.get("native"), took.get("virtual")))
            cases.append(case)
    total_nodes = sum(map(len, rotated.values())) or system.native.nodes + system.virtual.nodes
    return Forecast(
        cases=tuple(cases),
        not_run=tuple(catalogue.group_missing(catalogue.find_missing(entries, features, nodes))),
        first_round_s=durations.estimate(turns + 1, rotated),
        all_rounds_s=durations.estimate(looks[-1] + warm_ups, rotated),
        held_nodes=total_nodes if system.native.session_access else 0,
        places=held.count_places(rotated, 1),
    )


def _list_checks(request: Request) -> tuple[Entry, ...]:
    """Return all checks as ReFrame loads them for the system."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / catalogue.FILE
        scope = "full" if request.full else "quick"
        line = [*process.reframe_command(request.system), "-l", "-S", f"scope={scope}"]
        nodes = held.environment(request.system, {}, 0, of=request.nodes)
        done = execute.run(line, env={**environment(), **nodes, "VIRTQUAL_CATALOGUE": str(file)})
        if not file.is_file():
            raise process.output_error(done.stdout + done.stderr)
        return catalogue.read(file)


def _rotated_nodes(system: System) -> dict[str, list[str]]:
    """Return the nodes among which runs would rotate, if Slurm gave the first ones."""
    if not can_rotate(system):
        return {}
    nodes = {}
    for partition in map(system.partition, SIDES):
        listed = list_node_states(find_partition_name(partition) or partition.name)
        allowed = select_nodes(partition, listed)
        nodes[partition.name] = [node for node in listed if node in allowed]
    return choose_rotated_nodes(nodes, system)
