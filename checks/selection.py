"""The selection of runs: sides and order of the cases, and the reason why a case cannot run."""

from functools import partial
from operator import eq

import reframe.utility.udeps as udeps

from virtqual.harness import order
from virtqual.harness.kinds import Measuring
from virtqual.site import held

from . import counts
from .guarded import Guarded


class Selection(Guarded, Measuring):
    """The place of a run in the session.

    A check is one run on one side.  :mod:`virtqual.harness.order` makes the list of runs; dependencies keep
    them in turn with the other side.  The class methods serve a check and its verdict, which has the
    same parameters: `case` is a test of either.
    """

    #: The places of runs in this run of ReFrame, in their order: every second pair is reversed.
    sample = parameter(
        # A case of several nodes has fewer places than a case of one, and so other numbers of pairs.
        list(
            dict.fromkeys(
                str(slot)
                for width in held.read().list_widths()
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
        return format_case(type(self), self)

    def count_nodes(self):
        """Return the number of nodes that the case takes, which may be a parameter."""
        return self.nodes

    @property
    def rotation(self):
        """The places, of as many nodes as it takes, among which its runs rotate."""
        return held.read().rotation(self.count_nodes())

    @classmethod
    def environments(cls):
        """Return the stacks that it runs with, as ReFrame's ``valid_prog_environs``."""
        raise NotImplementedError

    @classmethod
    def systems(cls, side):
        """Return the features of a partition that it runs on, as ReFrame's ``valid_systems``."""
        return [f"+{side}"]

    @classmethod
    def tags_of(cls, case):
        """Return the tags of a case, with those that it gives itself."""
        return set(cls.tags) | set(case.tags)

    @classmethod
    def explain_unfit(cls, case):
        """Return why a case cannot run on the selected system, in any scope; empty if it can."""
        return ""

    @classmethod
    def explain_absence(cls, case):
        """Return why a case does not run on the selected system and in this scope; empty if it does."""
        # The scope comes last: a case that cannot run at all needs no longer scope.
        if reason := cls.explain_unfit(case):
            return reason
        if case.scope == "quick" and "quick" not in cls.tags_of(case):
            return "only with --full (reframe --mode=full)"
        return ""

    def previous_tests(self):
        """Return the tests of the runs that must have ended before this one, its own place's first."""
        return [self.getdep(name, part="*") for name in self.previous_names]

    @run_after("init")
    def run_on_one_side(self):
        """Run on the side of the slot, after the runs that precede it."""
        self.lacks = self.explain_absence(self)
        self.valid_prog_environs = self.environments()
        self.tags = self.tags_of(self)
        slots = find_slots(self.rotation, self.case)
        runs = self.slot in slots and not self.lacks
        self.valid_systems = self.systems(self.slot.side) if runs else []
        previous = order.find_previous(self.slot, slots, self.rotation) if runs else []
        parameters = {name: partial(eq, getattr(self, name)) for name in type(self).raw_params}
        self.previous_names = []
        for slot in previous:
            (number,) = type(self).get_variant_nums(**parameters | {"sample": partial(eq, str(slot))})
            self.previous_names.append(type(self).variant_name(number))
            self.depends_on(self.previous_names[-1], udeps.by_env)


def find_slots(rotation=order.ONE_PLACE, case=""):
    """Return a case's runs in this run of ReFrame, in order, on the selected sides."""
    slots = order.order_slots(*order.parse_pairs(), rotation=rotation, case=case)
    return [slot for slot in slots if counts.find_partition(slot.side)]


def format_case(check, test):
    """Return the name of a measuring check with the parameters that a test has in common with it."""
    values = {
        name: parameter.format(getattr(test, name))
        for name, parameter in sorted(check.raw_params.items())
        if name != "sample"
    }
    return " ".join([check.__name__, *(f"%{name}={value}" for name, value in values.items())])
