"""The verdict on a measurement: its samples from both partitions, paired and judged."""

import math
import statistics

import reframe as rfm
import reframe.core.builtins as builtins
import reframe.utility.sanity as sn
from reframe.core.exceptions import SanityError
from reframe.core.logging import getlogger
from reframe.core.meta import make_test

from virtqual.errors import VirtqualError
from virtqual.harness.kinds import VERDICT, Judging
from virtqual.identity import seen
from virtqual.qualify import plain
from virtqual.site import held
from virtqual.verdict import Outcome
from virtqual.verdict.pairs import PairingError

from .guarded import Guarded
from .selection import Scoped, case_of, same_environment, slots


def set_to(check, name, default):
    """Return the value that a class gives a variable of ReFrame's, or `default` if it gives none."""
    variable = check.var_space[name]
    return variable.default_value if variable.is_defined() else default


def simple_test(measured):
    """Register a measurement with ReFrame, and with it the verdict ``NAME_overhead`` on its samples.

    ReFrame reads only files that import it, or have a decorator of this name: use it as
    ``@overhead.simple_test``.

    The verdict has the measurement's parameters but ``sample``, its description, and its tags with
    ``verdict`` and ``overhead``.

    Parameters
    ----------
    measured
        The measurement's class; this is a decorator of it, in the place of ``rfm.simple_test``.
    """
    rfm.simple_test(measured)
    body = {
        name: builtins.parameter(known.values, fmt=known.format, loggable=known.is_loggable())
        for name, known in measured.raw_params.items()
        if name != "sample"
    }
    name = measured.__name__
    body |= {"measured": measured, "descr": f"{set_to(measured, 'descr', name)}: virtual against native"}
    rfm.simple_test(make_test(f"{name}_overhead", (Overhead,), body, module=measured.__module__))
    return measured


class Overhead(rfm.RunOnlyRegressionTest, Guarded, Scoped, Judging):
    """The verdict on one measurement.

    It runs after all measurements, and says what the one judgement of the whole ReFrame run says of its own.

    `simple_test` makes it: ``measured`` is the measurement, whose parameters (but ``sample``) it repeats.
    """

    #: The check whose samples are judged.
    measured = None
    #: One line a metric: the verdict as people read it.
    verdict = variable(str, value="", loggable=True)
    valid_systems = ["+virtual"]
    valid_prog_environs = ["*"]
    local = True
    executable = "true"
    sourcesdir = None
    maintainers = ["virtqual"]

    @run_after("init")
    def collect_from_both_sides(self):
        """Depend on every sample of this run of ReFrame, wherever it runs."""
        self.tags = self.measured.tags_of(self) | {VERDICT, "overhead"}
        self.valid_prog_environs = self.measured.environments()
        # A session of `virtqual qualify` is judged by that, in all its rounds.
        if held.system() or self.measured.lacking(self):
            self.valid_systems = []
            return
        self.valid_systems = self.measured.systems("virtual")
        own = {name: getattr(self, name) for name in type(self).raw_params}
        selectors = {name: lambda value, wanted=want: value == wanted for name, want in own.items()}
        runs = list(map(str, slots()))
        chosen = self.measured.get_variant_nums(**selectors, sample=lambda sample: sample in runs)
        for number in chosen:
            self.depends_on(self.measured.variant_name(number), same_environment)

    @run_after("init")
    def judge_nothing_in_a_dry_run(self):
        """There are no samples to fetch."""
        if self.is_dry_run():
            self.leave_out(type(self).pipeline_hooks())

    @property
    def case(self):
        """The check and its parameters, as its runs name it."""
        return case_of(self.measured, self)

    @sanity_function
    def judge(self):
        """Say the verdicts; only WITHIN passes, and a baseline is skipped with its reason."""
        try:
            session = plain.find_session(self.current_environ.name)
        except (VirtqualError, PairingError) as error:
            raise SanityError(str(error)) from error
        self.verdicts = session.verdicts_of(self.case)
        messages = [verdict.message for verdict in self.verdicts]
        self.verdict = "\n".join(messages)
        for message in messages:
            getlogger().info(f"    {message.splitlines()[0]}")
        self.say_communication(session)
        failed = [v.message for v in self.verdicts if not v.passes and v.outcome is not Outcome.BASELINE]
        refused = [] if self.verdicts else session.refused.get(self.case, ("nothing was measured",))
        if failed or refused:
            raise SanityError("\n".join([*failed, *refused]))
        if any(verdict.outcome is Outcome.BASELINE for verdict in self.verdicts):
            self.skip("baseline recorded, to be compared with by -S against=SESSION")
        return True

    def say_communication(self, session):
        """Say the share of communication, which measures what the case can show, and is not judged."""
        for side in ("native", "virtual"):
            runs = [run for run in session.runs if (run.check, run.side) == (self.case, side)]
            said = [run.communication for run in runs if run.communication is not None]
            if shares := [share for share in said if seen(share)]:
                share = statistics.median(shares)
                getlogger().info(f"    {share:.1%} of the time in communication ({side})")
            elif said:
                getlogger().info(f"    share of communication {said[0]} ({side})")

    @run_before("performance")
    def report_overheads(self):
        """Report virtual against native by metric: the geometric mean over a curve.

        Where native cannot be observed it is against the earlier session; without one, the virtual value.
        """
        self.reported = {f"{v.metric} {v.setting}": _reported(v) for v in self.verdicts}
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(value), unit)
            for name, (value, unit) in self.reported.items()
        }

    def expected_values(self):
        """Every judged metric has an overhead, or what stands for it."""
        return self.reported


def _reported(verdict):
    if verdict.overhead:
        return math.exp(verdict.overhead.log), "x native"
    if verdict.change:
        return math.exp(verdict.change.log), "x earlier"
    return verdict.virtual, verdict.unit
