"""Guards of all tests: the scope is spelt right, every expected value arrives, a dry run reads nothing."""

import math

import reframe as rfm
from reframe.core.exceptions import ReframeError, SanityError

SCOPES = ("quick", "full")


class Guarded(rfm.RegressionTestPlugin):
    """A test that names the values that it expects, and fails if one is missing."""

    #: ``full`` also has the cases that take longer: ``-S scope=full``, or ``--mode=full``.
    scope = variable(str, value="quick")
    #: An earlier session (id or path) with which this run's overhead is compared.
    against = variable(str, value="")
    #: Class of budgets; empty for that of the system file.
    hypervisor_class = variable(str, value="")
    #: A run before the first pair, whose values are not kept.
    warm_up = False

    def expected_values(self):
        """Return the names of the performance variables that must have a value."""
        raise NotImplementedError

    def disable_hooks(self, stages):
        """Run none of the hooks of some stages (``pre_run``, ``post_performance`` ...)."""
        for stage in stages:
            for hook in type(self).pipeline_hooks().get(stage, ()):
                self.disable_hook(hook.__name__)

    @run_after("init")
    def refuse_unknown_scope(self):
        """A misspelt scope must not leave cases out."""
        if self.scope not in SCOPES:
            raise ReframeError(f"-S scope={self.scope}: expected {' or '.join(SCOPES)}")

    @run_after("init")
    def read_nothing_in_a_dry_run(self):
        """A dry run makes the job scripts, and has no output."""
        if self.is_dry_run():
            self.disable_hooks(["pre_sanity", "post_sanity", "pre_performance", "post_performance"])

    @run_after("performance")
    def refuse_missing_values(self):
        """ReFrame only warns when a performance function raises, and passes the test."""
        if self.warm_up:
            return
        values = {key.rpartition(":")[2]: entry[0] for key, entry in self.perfvalues.items()}
        expected = set(self.expected_values())
        if not expected:
            raise SanityError("the check names no value that it measures")
        if missing := sorted(expected - values.keys()):
            raise SanityError(f"no value for {', '.join(missing)}")
        self.refuse_no_numbers(values)

    def refuse_no_numbers(self, values):
        """Refuse values that cannot be compared: other types, NaN, infinity."""
        broken = [
            name
            for name, value in sorted(values.items())
            if not (isinstance(value, int | float) and math.isfinite(value))
        ]
        if broken:
            raise SanityError(f"no finite number for {', '.join(broken)}")
