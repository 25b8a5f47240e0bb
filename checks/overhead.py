"""The verdict on a measurement: its samples from both partitions, paired and judged."""

import math
import statistics
from functools import partial
from operator import eq

import reframe as rfm
import reframe.core.builtins as builtins
import reframe.utility.sanity as sn
import reframe.utility.udeps as udeps
from reframe.core.exceptions import SanityError
from reframe.core.logging import getlogger
from reframe.core.meta import make_test

from virtqual.errors import VirtqualError
from virtqual.harness.kinds import VERDICT, Judging
from virtqual.identity import seen
from virtqual.qualify import plain
from virtqual.site import held
from virtqual.verdict import Outcome
from virtqual.verdict.pairs import SIDES

from .guarded import Guarded
from .selection import find_slots, format_case


def get_class_value(check, name, default):
    """Return the value that a class gives a variable of ReFrame's, or `default` if it gives none."""
    variable = check.var_space[name]
    return variable.default_value if variable.is_defined() else default


def simple_test(measured):
    """Register a measurement with ReFrame, and with it the verdict ``NAME_overhead`` on its samples.

    A decorator, in the place of ``rfm.simple_test``.  ReFrame reads only files that import it, or have a
    decorator of this name: use it as ``@overhead.simple_test``.  The verdict has the measurement's parameters
    but ``sample``, its description, and its tags with ``verdict`` and ``overhead``.
    """
    rfm.simple_test(measured)
    name = measured.__name__
    body = {
        name: builtins.parameter(parameter.values, fmt=parameter.format, loggable=parameter.is_loggable())
        for name, parameter in measured.raw_params.items()
        if name != "sample"
    }
    description = f"{get_class_value(measured, 'descr', name)}: virtual against native"
    body |= {"measured": measured, "descr": description}
    rfm.simple_test(make_test(f"{name}_overhead", (Overhead,), body, module=measured.__module__))
    return measured


class Overhead(rfm.RunOnlyRegressionTest, Guarded, Judging):
    """The verdict on one measurement, from the one judgement of the whole ReFrame run.

    It runs after all measurements.  `simple_test` makes it.
    """

    #: The check whose samples are judged, and whose parameters (but ``sample``) it has.
    measured = None
    #: One line a metric: the verdict as people read it.
    verdict = variable(str, value="", loggable=True)
    local = True
    executable = "true"
    sourcesdir = None
    maintainers = ["virtqual"]

    @run_after("init")
    def collect_from_both_sides(self):
        """Depend on every sample of this run of ReFrame, on both sides."""
        self.tags = self.measured.tags_of(self) | {VERDICT, "overhead"}
        self.valid_prog_environs = self.measured.environments()
        # A session of `virtqual qualify` is judged by that, in all its rounds.
        if held.read().system or self.measured.explain_absence(self):
            self.valid_systems = []
            return
        self.valid_systems = self.measured.systems("virtual")
        samples = set(map(str, find_slots()))
        selectors = {name: partial(eq, getattr(self, name)) for name in type(self).raw_params}
        for number in self.measured.get_variant_nums(**selectors, sample=lambda sample: sample in samples):
            self.depends_on(self.measured.variant_name(number), udeps.by_env)

    @property
    def case(self):
        """The check and its parameters, as its runs name it."""
        return format_case(self.measured, self)

    @sanity_function
    def judge(self):
        """Report the verdicts; only WITHIN passes, and a baseline is skipped with its reason."""
        try:
            session = plain.find_session(self.current_environ.name)
        except VirtqualError as error:
            raise SanityError(str(error)) from error
        self.verdicts = session.find_verdicts(self.case)
        messages = [verdict.message for verdict in self.verdicts]
        self.verdict = "\n".join(messages)
        for message in messages:
            getlogger().info(f"    {message.splitlines()[0]}")
        self.report_communication(session)
        failed = [v.message for v in self.verdicts if not v.passes and v.outcome is not Outcome.BASELINE]
        if not self.verdicts:
            failed.extend(session.refused.get(self.case, ("nothing was measured",)))
        if failed:
            raise SanityError("\n".join(failed))
        if any(verdict.outcome is Outcome.BASELINE for verdict in self.verdicts):
            self.skip("baseline recorded, to be compared with by -S against=SESSION")
        return True

    def report_communication(self, session):
        """Report the share of communication, which is not judged: it shows how much the network counts."""
        for side in SIDES:
            runs = [run for run in session.runs if (run.check, run.side) == (self.case, side)]
            noted = [run.communication for run in runs if run.communication is not None]
            if shares := [share for share in noted if seen(share)]:
                share = statistics.median(shares)
                getlogger().info(f"    {share:.1%} of the time in communication ({side})")
            elif noted:
                getlogger().info(f"    share of communication {noted[0]} ({side})")

    @run_before("performance")
    def report_overheads(self):
        """Report virtual against native by metric: the geometric mean over a curve.

        A metric that native does not show is compared with the earlier session; without one, the virtual
        value is reported.
        """
        self.perf_variables = {}
        for verdict in self.verdicts:
            value, unit = verdict.virtual, verdict.unit
            if verdict.overhead:
                value, unit = math.exp(verdict.overhead.log), "x native"
            elif verdict.change:
                value, unit = math.exp(verdict.change.log), "x earlier"
            function = sn.make_performance_function(sn.defer(value), unit)
            self.perf_variables[verdict.name] = function
