"""Which runs there are: on which side, in which order, of which scope, and why one cannot be."""

import reframe.core.runtime as rt

from virtqual.harness import order as looks
from virtqual.harness.kinds import Measuring
from virtqual.inputs import kept, known

from . import counts


class Selection(Measuring):
    """The place of a run in the session.

    A check is one run on one side; :mod:`virtqual.harness.order` says how many there are, and a chain of
    dependencies
    keeps them in turn with the other side.
    """

    #: The slots of this look, in the order in which they run: every second pair is reversed.
    sample = parameter([str(slot) for slot in looks.order(*looks.pairs())], loggable=True)
    #: What the stack must provide.
    feature = variable(str)
    #: Nodes that the tasks are spread over.
    nodes = variable(int, value=1)
    #: A feature that both partitions must have, such as ``rdma``.
    needs = ""
    #: Features that the stack may have, each with what cannot be observed without it.
    optional = {}
    #: Whether native runs take a yardstick (``checks/yardstick.py``) where native alone lacks that feature.
    yardstick = False
    #: The values of parameters that the quick scope has; a case with another one is of the full scope alone.
    quick = {}
    #: Inputs that must have been fetched beforehand, by their names in ``references/inputs/``.
    inputs = ()
    #: The only scale that it is for; empty for every one.
    scale = ""

    @property
    def slot(self):
        """This run's place in the order of runs."""
        return looks.slot(self.sample)

    @property
    def case(self):
        """The check and its parameters without the sample."""
        return case_of(type(self), self)

    @property
    def run_group(self):
        """Runs of one group follow each other (see ``virtqual.harness.guards``)."""
        return self.case

    @property
    def instead(self):
        """Why this native run takes a yardstick; empty for one that runs the program."""
        if self.slot.side != "native" or not self.yardstick or self.needs in features("native"):
            return ""
        return f"the native partition has no {self.needs!r}"

    @classmethod
    def systems(cls, side, *, instead=False):
        """Return what a side must have to run it, as ReFrame's ``valid_systems``."""
        wanted = [
            side,
            *(["multinode"] if cls.nodes > 1 else []),
            *([cls.needs] if cls.needs and not instead else []),
        ]
        return [" ".join(f"+{one}" for one in wanted)]

    @classmethod
    def _parameters(cls):
        return set(cls.param_space.params)

    @classmethod
    def tags_of(cls, case):
        """Return the tags of a case, of this class or of its verdict's."""
        quick = all(getattr(case, name) in values for name, values in cls.quick.items())
        return set(cls.tags) - (set() if quick else {"quick"})

    @classmethod
    def lacking(cls, case):
        """Return why a case cannot run on the selected system as it is set up; empty if it can.

        The case is of this class or of its verdict's.
        """
        scales = {partition.extras["scale"] for partition in counts.compared()}
        if cls.scale and scales - {cls.scale}:
            return f"for partitions of scale {cls.scale!r}"
        if cls.nodes > counts.nodes():
            return f"needs {cls.nodes} nodes on each side"
        for side in ["virtual"] if cls.yardstick else ["native", "virtual"]:
            if cls.needs and cls.needs not in features(side):
                return f"needs a {side} partition with the feature {cls.needs!r}"
        if missing := [why for name in cls.inputs if (why := kept.missing(known.named(name)))]:
            return "; ".join(missing)
        # Last: what the other reasons want takes longer.
        if looks.scope() == "quick" and "quick" not in cls.tags:
            return "in the full scope only (--full, or VIRTQUAL_SCOPE=full)"
        return ""

    @run_after("init")
    def run_on_one_side(self):
        """Even pairs run native first, odd pairs virtual first; a chain of dependencies keeps the order."""
        self.lacks = self.lacking(self)
        self.valid_systems = [] if self.lacks else self.systems(self.slot.side, instead=bool(self.instead))
        self.valid_prog_environs = [f"+{self.feature}"]
        self.tags = self.tags_of(self)
        order = slots()
        if self.sample in order[1:]:
            self.depends_on(self._variant(order[order.index(self.sample) - 1]), same_environment)

    def _variant(self, sample):
        wanted = {name: getattr(self, name) for name in self._parameters()} | {"sample": sample}
        selectors = {name: lambda value, wanted=want: value == wanted for name, want in wanted.items()}
        (number,) = type(self).get_variant_nums(**selectors)
        return type(self).variant_name(number)


def features(side):
    """Return the features of a side's partition, none where it is not selected."""
    return {f for p in rt.runtime().system.partitions if side in p.features for f in p.features}


def slots():
    """Return the slots of this look, in order, of the sides that the selected partitions have."""
    return [str(slot) for slot in looks.order(*looks.pairs()) if features(slot.side)]


def case_of(check, test):
    """Return the name of a measuring check with the parameters that a test has in common with it."""
    names = sorted(set(check.param_space.params) - {"sample"})
    return " ".join([check.__name__, *(f"%{name}={getattr(test, name)}" for name in names)])


def same_environment(source, target):
    """Depend on the runs of the same stack only."""
    return source[1] == target[1]
