"""Guards of a test: a value that ReFrame could not read fails it, and a dry run reads nothing."""

import math

import reframe as rfm
from reframe.core.exceptions import SanityError


class Guarded(rfm.RegressionTestPlugin):
    """A test that names the values that must be there, and fails where one is missing."""

    #: A run before the first pair, whose values are not kept.
    warm_up = False

    def expected_values(self):
        """Return the names of the performance variables that must be there; a subclass says them."""
        raise NotImplementedError

    def leave_out(self, stages):
        """Run none of the hooks of some stages (``pre_run``, ``post_performance`` ...)."""
        for stage in stages:
            for hook in type(self).pipeline_hooks().get(stage, ()):
                self.disable_hook(hook.__name__)

    @run_after("init")
    def read_nothing_in_a_dry_run(self):
        """A dry run makes the job scripts, and has nothing to read afterwards."""
        if self.is_dry_run():
            self.leave_out(["pre_sanity", "post_sanity", "pre_performance", "post_performance"])

    @run_after("performance")
    def refuse_missing_values(self):
        """ReFrame only warns when a performance function raises, and passes the test."""
        if self.warm_up:
            return
        have = {key.rpartition(":")[2]: entry[0] for key, entry in self.perfvalues.items()}
        expected = set(self.expected_values())
        if not expected:
            raise SanityError("the check names no value that it measures")
        if missing := sorted(expected - have.keys()):
            raise SanityError(f"no value for {', '.join(missing)}")
        self.refuse_no_numbers(have)

    def refuse_no_numbers(self, values):
        """Refuse values that cannot be compared: no numbers at all, or infinite ones."""
        if broken := sorted(name for name, value in values.items() if not _is_number(value)):
            raise SanityError(f"no finite number for {', '.join(broken)}")


def _is_number(value):
    return isinstance(value, int | float) and math.isfinite(value)
