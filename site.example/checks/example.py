"""An example: how fast a node reads zeros, native against virtual."""

import reframe as rfm
import reframe.utility.sanity as sn
from virtqual.checks.judged import judge


class copy_rate(rfm.RunOnlyRegressionTest):
    """A plain check of ReFrame's, which knows nothing of virtqual."""

    descr = "dd of 4 GiB from /dev/zero, MB/s"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "bash"
    executable_opts = ["-c", "'LC_ALL=C dd if=/dev/zero of=/dev/null bs=1M count=4096 2>&1'"]

    @sanity_function
    def validate(self):
        """Assert that all bytes were read."""
        return sn.assert_found(r"^4294967296 bytes", self.stdout)

    @performance_function("MB/s")
    def rate(self):
        """Return the rate by the time that dd took."""
        return 4294.967296 / sn.extractsingle(r"copied, (\S+) s,", self.stdout, 1, float)


# Judged in every session of scope `full` without the first two characters of the next line.
# judge(copy_rate, better={"rate": "higher"}, budget="5%", margin="5%", tags=["full"])
