"""virtqual: qualify hypervisor builds for HPC.

The same programs run natively and inside virtual machines, in turn; the overhead of every metric is
judged against a budget with a stated error rate. See ``docs/decision.md``.
"""

__version__ = "0.1.0"
