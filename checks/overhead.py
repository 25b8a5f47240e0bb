"""The verdict on a measurement: its samples from both partitions, paired and judged."""

import math
import statistics

import reframe as rfm
import reframe.core.builtins as builtins
import reframe.core.runtime as rt
import reframe.utility.sanity as sn
from reframe.core.exceptions import DependencyError, SanityError
from reframe.core.logging import getlogger
from reframe.core.meta import make_test

from virtqual.errors import VirtqualError
from virtqual.identity import seen
from virtqual.runs import Run
from virtqual.session import judging
from virtqual.verdict.pairs import PairingError

from .guarded import Guarded
from .selection import Scoped, case_of, same_environment, slots

# Whoever judges a whole session leaves the verdicts of its runs out by this tag.
TAG = "verdict"


def set_to(check, name, default):
    """Return the value that a class gives a variable of ReFrame's, or `default` if it gives none."""
    variable = check.var_space[name]
    return variable.default_value if variable.is_defined() else default


def with_verdict(measured):
    """Register a measurement with ReFrame, and with it the verdict ``NAME_overhead`` on its samples.

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


class Overhead(rfm.RunOnlyRegressionTest, Guarded, Scoped):
    """The verdict on one measurement: its samples from both sides, paired and judged.

    `with_verdict` makes it: ``measured`` is the measurement, whose parameters (but ``sample``) it repeats.
    """

    #: The check whose samples are judged.
    measured = None
    #: An earlier session (id or path) whose overhead this one's is compared with.
    against = variable(str, value="")
    #: Class of budgets; empty for what the system file says.
    hypervisor_class = variable(str, value="")
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
        self.tags = self.measured.tags_of(self) | {TAG, "overhead"}
        self.valid_prog_environs = self.measured.environments()
        self.valid_systems = [] if self.measured.lacking(self) else self.measured.systems("virtual")
        own = {name: getattr(self, name) for name in type(self).raw_params}
        selectors = {name: lambda value, wanted=want: value == wanted for name, want in own.items()}
        order = slots()
        chosen = self.measured.get_variant_nums(**selectors, sample=lambda sample: sample in order)
        self.samples = [self.measured.variant_name(number) for number in chosen]
        for name in self.samples:
            self.depends_on(name, same_environment)

    @run_after("init")
    def judge_nothing_in_a_dry_run(self):
        """There are no samples to fetch."""
        if self.is_dry_run():
            self.leave_out(type(self).pipeline_hooks())

    @property
    def run_group(self):
        """The verdict follows the runs that it judges."""
        return case_of(self.measured, self)

    @run_after("setup")
    def fetch_samples(self):
        """Fetch the finished runs here: what is not there must not be noticed too late."""
        found = []
        for name in self.samples:
            try:
                found.append(self.getdep(name, part="*"))
            except DependencyError as error:
                raise SanityError(f"a sample is missing: {error}") from error
        self.runs = [Run.model_validate_json(test.record) for test in found]
        sides = {run.side for run in self.runs}
        if missing := sorted({"native", "virtual"} - sides):
            raise SanityError(
                f"no {' and no '.join(missing)} sample in this run: there is nothing to compare with; "
                "select both partitions (--system NAME, without a partition)"
            )

    @sanity_function
    def judge(self):
        """Judge every metric; only WITHIN passes, and a baseline where there is nothing to judge yet."""
        try:
            self.verdicts = judging.judge_look(
                self.runs,
                self.hypervisor_class or self.current_partition.extras["hypervisor_class"],
                system=rt.runtime().system.name,
                against=self.against,
            )
        except (VirtqualError, PairingError) as error:
            raise SanityError(str(error)) from error
        messages = [verdict.message for verdict in self.verdicts]
        self.verdict = "\n".join(messages)
        for message in messages:
            getlogger().info(f"    {message.splitlines()[0]}")
        for side in ("native", "virtual"):
            # It measures what the case can show; it is not judged.
            said = [r.communication for r in self.runs if r.side == side and r.communication is not None]
            if shares := [share for share in said if seen(share)]:
                share = statistics.median(shares)
                getlogger().info(f"    {share:.1%} of the time in communication ({side})")
            elif said:
                getlogger().info(f"    share of communication {said[0]} ({side})")
        refused = [v.message for v in self.verdicts if not (v.passes or v.outcome is judging.BASELINE)]
        if refused or not messages:
            raise SanityError("\n".join(refused) or "nothing was judged")
        return True

    @run_before("performance")
    def report_overheads(self):
        """Report virtual against native by metric: the geometric mean over a curve.

        Where native cannot be observed it is against the earlier session; without one, the virtual value.
        """
        self.reported = {v.id.replace("@", " "): _reported(v) for v in self.verdicts}
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
    return verdict.virtual, verdict.metric.unit
