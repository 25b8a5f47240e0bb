"""The runs, the duration and the cost of a session, before anything runs (``--plan``).

Neither a stack nor Slurm is needed: without them the programs of the Spack stack, and the nodes that the
system file states, are assumed to be there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from virtqual import paths
from virtqual.errors import UsageError
from virtqual.files.wording import Range, suggest
from virtqual.harness import catalogue
from virtqual.qualify import opening, plan
from virtqual.qualify.allocations import can_rotate, choose_rotated_nodes
from virtqual.qualify.plan import PlannedCase, estimate_turns
from virtqual.qualify.requirements import foresee_answer
from virtqual.session.session import Request
from virtqual.site.configuration import load_system
from virtqual.site.held import Nodes, count_places
from virtqual.site.options import parse_minutes, parse_options
from virtqual.site.partitions import select_nodes
from virtqual.site.slurm import SilentError, list_node_states
from virtqual.site.systems import System
from virtqual.stack import manifest, registry, spack
from virtqual.verdict.pairs import SIDES


@dataclass(frozen=True)
class Forecast:
    """The runs of a session, with their duration and cost."""

    cases: Sequence[PlannedCase]
    #: The checks that cannot run, by reason.
    not_run: Sequence[str]
    #: Turns of the first round, and of all pairs that are allowed, with their warm-ups.
    turns: int
    max_turns: int
    #: The nodes among which runs rotate, by partition.
    rotated: Nodes
    #: Time limit of the job that holds the nodes; infinity if none is stated, or each round has a job.
    job_limit_s: float
    #: Nodes of both sides that are held for the session; 0 if each run is a job.
    held_nodes: int
    #: Why Slurm could not say which nodes there are; None if it could, or was not asked.
    silence: str | None
    #: The stack whose programs are assumed to be there; None if a stack is set up.
    assumed_stack: str | None
    #: The sentence that says whether the session could be called qualified.
    answer: str

    def count_runs(self, case: PlannedCase) -> int:
        """Return how many runs of a case the first round has."""
        return 2 * self.turns * count_places(self.rotated, case.nodes)

    @property
    def runs(self) -> int:
        """How many runs the first round has."""
        return sum(map(self.count_runs, self.cases))

    @property
    def first_round_s(self) -> Range:
        """Seconds of the first round."""
        return estimate_turns(self.cases, self.turns, self.rotated)

    @property
    def all_rounds_s(self) -> Range:
        """Seconds of all pairs that are allowed."""
        return estimate_turns(self.cases, self.max_turns, self.rotated)

    @property
    def node_seconds(self) -> Range:
        """The node-seconds of the first round, as Slurm accounts them."""
        if self.held_nodes:
            return Range(*(self.held_nodes * seconds for seconds in self.first_round_s))
        runs = [(self.count_runs(case) / 2 * case.nodes, case, side) for case in self.cases for side in SIDES]
        return Range(
            sum(nodes * case.seconds.get(side, case.assumed_s.low) for nodes, case, side in runs),
            sum(nodes * case.seconds.get(side, case.assumed_s.high) for nodes, case, side in runs),
        )


def forecast(request: Request) -> Forecast:
    """Return what `virtqual qualify` would run; Slurm is asked only which nodes there are."""
    system = load_system(request.system)
    stack = opening.find_any_stack(request.stack, system)
    features = set(stack.features) if stack else _assume_features(request.stack or spack.NAME)
    chosen, _, request, entries = opening.settle(request, system, features)
    system = system.use_nodes(request.nodes)
    selected = catalogue.select(entries, request.names, request.tags)
    capacity = features, system.nodes
    planned = [entry for entry in selected if entry.paired and not entry.explain_unfit(*capacity)]
    rotated, silence = _choose_nodes(system)
    looks, first_pairs = plan.look_schedule(request, chosen)
    total_nodes = sum(map(len, rotated.values())) or system.native_extras.nodes + system.virtual_extras.nodes
    return Forecast(
        cases=plan.plan_cases(planned, system),
        not_run=catalogue.group_missing(selected, *capacity),
        turns=first_pairs + 1,
        # New VMs come with each look, about.
        max_turns=looks[-1] + (1 + len(looks) if system.virtual_extras.recreate_vms else 1),
        rotated=rotated,
        job_limit_s=_find_job_limit(system),
        held_nodes=total_nodes if system.native_extras.session_access else 0,
        silence=silence,
        assumed_stack=None if stack else request.stack or spack.NAME,
        answer=foresee_answer(request, system, chosen, entries, planned, features, rotates=bool(rotated)),
    )


def _assume_features(stack: str) -> set[str]:
    """Return the features of a stack that is to be set up."""
    recipes = {spack.NAME: spack.FILE, registry.NAME: registry.FILE}
    if stack not in recipes:
        names = {*manifest.find_stacks(paths.stacks()), *recipes}
        raise UsageError(
            f"no stack {stack!r} is set up: {suggest(stack, names)} Another one: {manifest.name_setup(stack)}"
        )
    programs = manifest.load_recipe(recipes[stack])["programs"].values()
    return {feature for program in programs if not program.get("extra") for feature in program["features"]}


def _find_job_limit(system: System) -> float:
    """Return the least ``--time`` of `extras.session_access`, s; infinity if none bounds a session."""
    if system.virtual_extras.recreate_vms:
        # Each round has a job of its own.
        return math.inf
    options = (parse_options(system.partition(side).extras.session_access) for side in SIDES)
    return min(60 * parse_minutes(of_side.get("--time", "infinite")) for of_side in options)


def _choose_nodes(system: System) -> tuple[dict[str, list[str]], str | None]:
    """Return the nodes among which runs would rotate, and why Slurm does not know them.

    If Slurm does not answer, they are those that the system file states.
    """
    if not can_rotate(system):
        return {}, None
    nodes, silence = {}, None
    for partition in map(system.partition, SIDES):
        try:
            listed = list(list_node_states(partition.slurm_name))
            allowed = select_nodes(partition, listed)
        except SilentError as error:
            silence = str(error)
            stated = [node for names in partition.extras.nodes_of_hosts.values() for node in names]
            listed = stated or [f"{partition.name} {number}" for number in range(partition.extras.nodes)]
            allowed = set(listed)
        nodes[partition.name] = [node for node in listed if node in allowed]
    return choose_rotated_nodes(nodes, system), silence
