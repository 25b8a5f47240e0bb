"""Guards of all tests: the scope is spelt right, every expected value arrives, a dry run reads nothing."""

import math

import reframe as rfm
from reframe.core.exceptions import ReframeError, SanityError

SCOPES = ("quick", "full")


class Guarded(rfm.RegressionTestPlugin):
    """A test that fails if one of its performance variables has no value."""

    #: ``full`` also has the cases that take longer: ``-S scope=full``, or ``--mode=full``.
    scope = variable(str, value="quick")
    #: An earlier session (id or path) with which this run's overhead is compared.
    against = variable(str, value="")
    #: Class of budgets; empty for that of the system file.
    hypervisor_class = variable(str, value="")
    #: A run before the first pair, whose values are not kept.
    warm_up = False

    @run_after("init")
    def refuse_unknown_scope(self):
        """A misspelt scope must not leave cases out."""
        if self.scope not in SCOPES:
            raise ReframeError(f"-S scope={self.scope}: expected {' or '.join(SCOPES)}")

    @run_after("init")
    def read_nothing_in_a_dry_run(self):
        """A dry run makes the job scripts, and has no output."""
        hooks = type(self).pipeline_hooks() if self.is_dry_run() else {}
        for stage in ("pre_sanity", "post_sanity", "pre_performance", "post_performance"):
            for hook in hooks.get(stage, ()):
                self.disable_hook(hook.__name__)

    @run_after("performance")
    def refuse_missing_values(self):
        """ReFrame only warns when a performance function raises, and passes the test."""
        if self.warm_up:
            return
        if not self.perf_variables:
            raise SanityError("the check names no value that it measures")
        values = {key.rpartition(":")[2]: entry[0] for key, entry in self.perfvalues.items()}
        if missing := sorted(self.perf_variables.keys() - values.keys()):
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
