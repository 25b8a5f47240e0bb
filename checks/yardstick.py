"""The yardstick: a fixed piece of work, timed on native nodes that cannot run a check's program.

The virtual runs of such a check are compared with those of an earlier session alone, and the yardstick says
whether the machine under the VMs is as fast as it was then.
"""

from virtqual.programs import yardstick as output
from virtqual.runs import Result

PYTHON = "/usr/bin/python3"


def arrange(check):
    """Have every task of a run time the work; tasks and nodes stay as the check has asked for them."""
    check.bring("yardstick.py")
    check.executable, check.executable_opts = PYTHON, ["yardstick.py"]


def read(check):
    """Return the time of the slowest task."""
    return [Result.scalar("yardstick_time", output.WORK, output.parse(check.output(), check.num_tasks))]
