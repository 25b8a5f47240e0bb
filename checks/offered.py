"""Services: requests at offered rates, which are shares of the peak that the native warm-up showed."""

from virtqual.errors import InfrastructureError
from virtqual.harness import repetitions
from virtqual.references import project_metrics, project_references
from virtqual.runs import Result

from . import counts
from .base import Measurement

QUICK_SHARE = 25
#: Half of the cores are the client's: it must not be what limits the rate.
MAX_CORES = 16


class Offered(Measurement):
    """A service and its client: both sides get the same requests at the same intended times.

    A warm-up measures the peak alone, as all runs of the load ``peak`` do.  All others offer the rates of
    `choose_rates`, and with the load ``all`` they measure their own peak, too.  `read` returns
    `make_results`, or the peak alone.
    """

    repeats = False
    load = parameter(["quarter", "all"], loggable=True)
    quick = {"load": ("quarter",)}
    #: Percent of the native peak by scale: a VM of a small system may reach half of that peak, or less.
    shares = {"small": (10, 25, 75), "standard": (25, 50, 75)}
    #: The peaks of native warm-ups, up to this one.
    native_peaks = ()

    @classmethod
    def explain_unfit(cls, case):
        """Return why it cannot run: VMs that are so slow that only their change is judged."""
        reason, stated = super().explain_unfit(case), counts.stated_class()
        if reason or case.load == "peak" or not stated:
            return reason
        if project_references().hypervisor_class(stated).gate == "change":
            return f"VMs of class {stated!r} are too slow for shares of a native peak"
        return ""

    def count_nodes(self):
        """Return two if each side has several: the second one is the client's."""
        # On emulated nodes a client of its own begins late: their timers have steps of some milliseconds.
        return 1 if "small" in counts.scales() else min(2, counts.nodes())

    @property
    def measures_peak(self):
        """Return whether this run measures the peak."""
        return self.warm_up or self.load != "quarter"

    @property
    def seed(self):
        """The seed of the intended times, the same for both runs of a pair."""
        return self.slot.pair + 1

    @property
    def client_apart(self):
        """Return whether the client has a node of its own."""
        return self.nodes > 1

    @property
    def client_place(self):
        """Return where the client is, for the setting; empty if it has cores of the server's node."""
        if self.client_apart:
            return ", client on another node"
        return "" if self.client_cores else ", client on the server's core"

    def divide_cores(self, tasks_per_node=1, cores=None):
        """Give tasks of so many cores, by default all of a node, to server and client.

        On one node the client has cores of its own if there are several.  `client_cores` are those of the
        client alone: 0 if it shares the server's.
        """
        self.start_tasks(tasks_per_node)
        self.num_cpus_per_task = self.server_cores = self.client_cores = min(cores or self.cores, MAX_CORES)
        if not self.client_apart:
            self.client_cores //= 2
            self.server_cores -= self.client_cores
        if self.num_tasks > 1:
            # They wait for each other.
            self.job.launcher.options.append("--kill-on-bad-exit=1")

    def choose_rates(self):
        """Return the offered rates by share of the native peak; none for a warm-up."""
        if self.warm_up or self.load == "peak":
            return {}
        previous = self.previous_tests()
        if previous and not previous[0].warm_up:
            self.native_peak = previous[0].native_peak
        else:
            decided = repetitions.decided_peaks.get((self.current_environ.name, self.case))
            peaks = [peak for warm_up in previous for peak in warm_up.native_peaks]
            if decided is None and not peaks and not self.is_dry_run():
                raise InfrastructureError(
                    f"{self.case}: the native peak is not known, of which shares are offered. "
                    "The native warm-up measures it: run both partitions, from pair 0 on"
                )
            # The slowest node's peak, so that no node is overloaded.
            self.native_peak = float(f"{decided or min(peaks, default=1.0):.6g}")
        shares = (QUICK_SHARE,) if self.load == "quarter" else self.shares[self.scale]
        return {share: self.native_peak * share / 100 for share in shares}

    def make_results(self, name, setting, loads, peak=None, peak_limits=()):
        """Return the peak and the curves over the shares; both sides must agree on the rates.

        Parameters
        ----------
        name
            The metrics are ``NAME_throughput``, ``NAME_p50``, ``NAME_p99`` and ``NAME_on_time``.
        loads
            `OfferedLoad` by share; empty in a warm-up.
        peak, peak_limits
            Requests a second if this run measures the peak, and the reasons for which it is the client's.
        """
        setting += self.client_place
        if self.warm_up:
            self.native_peaks = [rate for test in self.previous_tests() for rate in test.native_peaks]
            if self.slot.side == "native":
                self.native_peaks.append(peak)
        results = [] if peak is None else [Result.scalar(f"{name}_throughput", setting, peak, peak_limits)]
        if not loads:
            return results
        self.agree_on(repetitions.NATIVE_PEAK, self.native_peak, 1e-9)
        if self.load == "quarter":
            setting += ", quarter load"
        for what in ("p50", "p99", "on_time"):
            metric = project_metrics()[f"{name}_{what}"]
            curve = {share: getattr(load, what) for share, load in loads.items()}
            limits = [
                limit
                for share, load in loads.items()
                if metric.judged_up_to is None or share <= metric.judged_up_to
                for limit in load.find_client_limits(shares_core=not self.client_cores)
            ]
            results.append(Result.curve(metric.name, setting, curve, tuple(limits)))
        return results
