"""The selection of runs: sides, order and scope of the cases, and why a case cannot run."""

from functools import partial
from operator import eq

import reframe as rfm
import reframe.core.runtime as rt
from reframe.core.exceptions import ReframeError

from virtqual.harness import order
from virtqual.harness.kinds import Measuring
from virtqual.inputs import declarations, fetched
from virtqual.site import held

from . import counts

SCOPES = ("quick", "full")


class Scoped(rfm.RegressionTestPlugin):
    """A test that is told which cases a run of ReFrame is to have."""

    #: ``full`` also has the cases that take longer: ``-S scope=full``, or ``--mode=full``.
    scope = variable(str, value="quick")
    #: An earlier session (id or path) whose overhead this run's is compared with.
    against = variable(str, value="")
    #: Class of budgets; empty for what the system file says.
    hypervisor_class = variable(str, value="")

    @run_after("init")
    def refuse_unknown_scope(self):
        """A misspelt scope must not leave cases out."""
        if self.scope not in SCOPES:
            raise ReframeError(f"-S scope={self.scope}: expected {' or '.join(SCOPES)}")


class Selection(Scoped, Measuring):
    """The place of a run in the session.

    A check is one run on one side; :mod:`virtqual.harness.order` says how many there are, and dependencies
    keep them in turn with the other side.
    """

    #: The places of runs in this run of ReFrame, in their order: every second pair is reversed.
    sample = parameter(
        # A case of several nodes has fewer places than those of one, and so other numbers of pairs.
        list(
            dict.fromkeys(
                str(slot)
                for width in held.widths()
                for slot in order.order_slots(*order.parse_pairs(), rotation=held.Rotation(width, width))
            )
        ),
        loggable=True,
    )

    @property
    def slot(self):
        """This run's place in the order of runs."""
        return order.parse_slot(self.sample)

    @property
    def case(self):
        """The check and its parameters without the sample."""
        return case_of(type(self), self)

    @property
    def rotation(self):
        """Among how many places its runs rotate: one where it runs on no nodes that we know."""
        return held.Rotation()

    @property
    def run_group(self):
        """Runs of one group follow each other (see ``virtqual.harness.guards``)."""
        return self.case

    @classmethod
    def environments(cls):
        """Return the stacks that it runs with, as ReFrame's ``valid_prog_environs``."""
        raise NotImplementedError

    @classmethod
    def systems(cls, side):
        """Return what a partition must have to run it on a side, as ReFrame's ``valid_systems``."""
        return [f"+{side}"]

    @classmethod
    def tags_of(cls, case):
        """Return the tags of a case, which is of this class or of its verdict's."""
        return set(cls.tags)

    @classmethod
    def unfit(cls, case):
        """Return why a case cannot run on the selected system, in any scope; empty if it can.

        The case is of this class or of its verdict's.
        """
        return ""

    @classmethod
    def lacking(cls, case):
        """Return why a case does not run in this scope on the selected system; empty if it does."""
        # The scope comes last: what the other reasons want takes longer.
        if why := cls.unfit(case):
            return why
        if case.scope == "quick" and "quick" not in cls.tags_of(case):
            return "in the full scope only (reframe -S scope=full, virtqual qualify --full)"
        return ""

    def previous(self):
        """Return the tests of the runs that must have ended before this one, its own place's first."""
        return [self.getdep(name, part="*") for name in self.follows]

    @run_after("init")
    def run_on_one_side(self):
        """Every second pair runs virtual first; dependencies keep the order."""
        self.lacks = self.lacking(self)
        self.valid_prog_environs = self.environments()
        self.tags = self.tags_of(self)
        all_slots = slots(self.rotation, self.case)
        runs = self.slot in all_slots and not self.lacks
        self.valid_systems = self.systems(self.slot.side) if runs else []
        previous = order.find_previous(self.slot, all_slots, self.rotation) if runs else []
        self.follows = [_variant_name(self, str(slot)) for slot in previous]
        for name in self.follows:
            self.depends_on(name, same_environment)


class StackSelection(Selection):
    """The selection of checks whose program comes from a stack, and which have sizes and inputs."""

    #: The feature that the stack must provide.
    feature = variable(str)
    #: Nodes that the tasks are spread over.
    nodes = variable(int, value=1)
    #: A feature that both partitions must have, such as ``rdma``.
    needs = ""
    #: Physical cores that every node must have.
    least_cores = 1
    #: Features that the stack may have, each with what cannot be observed without it.
    optional = {}
    #: The values of parameters that the quick scope has; a case with another one is of the full scope alone.
    quick = {}
    #: Inputs that must have been fetched beforehand, by their names in ``references/inputs/``.
    inputs = ()
    #: The only scale that it is for; empty for every one.
    scale = ""

    @classmethod
    def nodes_of(cls, case):
        """Return over how many nodes the tasks of a case are spread, which its parameters may say."""
        return case.nodes

    @run_after("init")
    def take_nodes(self):
        """Take as many nodes as the case says."""
        self.nodes = self.nodes_of(self)

    @property
    def rotation(self):
        """Among how many places, of as many nodes as it takes, its runs rotate."""
        return held.rotation(self.nodes_of(self))

    @classmethod
    def environments(cls):
        """Return the stacks that provide the feature."""
        return [f"+{cls.feature}"]

    @classmethod
    def systems(cls, side):
        """Return what a partition must have: nodes enough, and the feature that the check needs."""
        features = [side, *(["multinode"] if cls.nodes > 1 else []), *([cls.needs] if cls.needs else [])]
        return [" ".join(f"+{feature}" for feature in features)]

    @classmethod
    def tags_of(cls, case):
        """Return the tags of a case: ``quick`` if its parameters are those of the quick scope."""
        quick = all(getattr(case, name) in values for name, values in cls.quick.items())
        return set(cls.tags) - (set() if quick else {"quick"})

    @classmethod
    def unfit(cls, case):
        """Return why a case cannot run: another scale, too few nodes or cores, no such feature, no input."""
        scales = {partition.extras["scale"] for partition in counts.compared()}
        if cls.scale and scales - {cls.scale}:
            return f"for partitions of scale {cls.scale!r}"
        if cls.nodes > counts.nodes():
            return f"needs {cls.nodes} nodes on each side"
        if cls.least_cores > counts.cores():
            return f"needs nodes of {cls.least_cores} cores"
        for side in ("native", "virtual"):
            if cls.needs and cls.needs not in features(side):
                return f"needs a {side} partition with the feature {cls.needs!r}"
        reasons = (fetched.explain_missing(declarations.find_input(name)) for name in cls.inputs)
        return "; ".join(filter(None, reasons))


def _variant_name(check, sample):
    """Return the name of the test that takes another sample of the same case."""
    parameters = {name: getattr(check, name) for name in type(check).raw_params} | {"sample": sample}
    selectors = {name: partial(eq, parameter) for name, parameter in parameters.items()}
    (number,) = type(check).get_variant_nums(**selectors)
    return type(check).variant_name(number)


def features(side):
    """Return the features of a side's partition; none if it is not selected."""
    return {f for p in rt.runtime().system.partitions if side in p.features for f in p.features}


def slots(rotation=order.ONE_PLACE, case=""):
    """Return a case's runs in this run of ReFrame, in order, on the sides that were selected."""
    all_slots = order.order_slots(*order.parse_pairs(), rotation=rotation, case=case)
    return [slot for slot in all_slots if features(slot.side)]


def case_of(check, test):
    """Return the name of a measuring check with the parameters that a test has in common with it."""
    names = sorted(set(check.raw_params) - {"sample"})
    return " ".join([check.__name__, *(f"%{name}={getattr(test, name)}" for name in names)])


def same_environment(source, target):
    """Depend on the runs of the same stack only."""
    return source[1] == target[1]
