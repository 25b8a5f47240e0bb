"""A web application (Spring on Tomcat, PostgreSQL) at offered rates, in the manner of the ESX 4.1 study's."""

import sys

from virtqual.files.wording import pluralize
from virtqual.programs import web_load
from virtqual.programs.offered import find_critical_rate
from virtqual.programs.text import OutputError
from virtqual.runs import Result

from . import counts, overhead
from .asked import as_asked
from .offered import Offered
from .together import find_gaps
from .vms import VmsOfOneHost

#: The feature of the stack that the check needs besides its own.
DATABASE = "postgresql"
#: The heap never grows.  The second compiler warms up for minutes on few cores.
JAVA = {
    "small": ("-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "standard": ("-Xms1g", "-Xmx1g", "-XX:+UseParallelGC"),
}
WINDOW_SECONDS = {"small": 1, "standard": 2}
LOAD_SECONDS = {"small": 10, "standard": 30}
#: Percent of the native peak at which p99 is compared with `P99_LIMITS`.
#: At scale `small`, some tens of requests a second would take minutes to show it.
STEPS = {"small": (), "standard": (*range(20, 70, 10), *range(70, 110, 5), 110, 120, 130)}
STEP_SECONDS = 5
#: In ms, as for SPECjbb2015's critical-jOPS.
P99_LIMITS = (10, 25, 50, 75, 100)


class WebEvents(Offered):
    """Each run starts database and application anew, and warms them up."""

    feature = "web-events"
    quick = {}
    #: Whether all tasks have a server, whose loads begin together.
    together = False
    # `web_p50` is judged at 75 %, at which nothing bounds it in a VM of a small system.
    shares = {**Offered.shares, "small": (10, 25)}
    # Its loads, and the start and warm-up of the server, which takes minutes on emulated hosts.
    run_seconds = {"small": (120, 300), "standard": (230, 360)}
    scripts = ("postgres.sh", "apart.sh", "web_events.sh", "web_load.py")
    tags = {"service", "esx41", "full"}

    @classmethod
    def environments(cls):
        """Return the stacks that also have its database."""
        return [f"+{cls.feature} +{DATABASE}"]

    @classmethod
    def explain_unfit(cls, case):
        """Return why it cannot run: the stack of the application has no database."""
        # ReFrame's variable itself is equal to no text.
        application = str(cls.feature)
        stacks = [stack.features for part in counts.compared_partitions() for stack in part.environs]
        of_application = [features for features in stacks if application in features]
        if of_application and not any(DATABASE in features for features in of_application):
            return f"needs a stack with both features {application!r} and {DATABASE!r}"
        return super().explain_unfit(case)

    def arrange(self):
        """Give nodes or cores to server and client."""
        self.divide_cores()
        shares = self.choose_rates()
        self.rates = {"peak": 0, **{f"load{share}": rate for share, rate in shares.items()}}
        seconds = dict.fromkeys(self.rates, LOAD_SECONDS[self.scale])
        if shares:
            self.rates |= {f"step{share}": self.native_peak * share / 100 for share in STEPS[self.scale]}
        self.env_vars["VIRTQUAL_WITHIN"] = "./web_events.sh"
        java = ",".join([*JAVA[self.scale], f"-XX:ActiveProcessorCount={self.server_cores}"])
        postgres = self.current_environ.extras["programs"][DATABASE]["path"]
        loads = [f"{name}:{seconds.get(name, STEP_SECONDS)}:{rate:.6g}" for name, rate in self.rates.items()]
        where = "together" if self.together else self.nodes
        sizes = map(str, (where, self.client_cores, self.seed, WINDOW_SECONDS[self.scale]))
        self.executable_opts = [java, str(postgres), sys.executable, *sizes, *loads]

    def parse(self, task):
        """Return what the client of a task printed; assert processes, seed and rates."""
        run = web_load.parse(self.stage_text(f"load.{task}.out"))
        warm_up = web_load.parse(self.stage_text(f"warm.{task}.out")) if self.together else run
        # In the six digits of its arguments.
        rates = {name: float(f"{rate:.6g}") for name, rate in self.rates.items()}
        as_asked(
            "web_load",
            processes=(run.processes, max(self.client_cores, 1)),
            seed=(run.seed, str(self.seed)),
            processors=(run.processors, self.server_cores),
            rates=({name: load.rate for name, load in run.loads.items()}, rates),
        )
        if not warm_up.windows:
            raise OutputError("web_load", "no window was measured")
        return run


@overhead.simple_test
class web_events(WebEvents):
    """One server on each side."""

    descr = "a web application at shares of its native peak"
    load = parameter(["all"], loggable=True)
    tags = {"service", "esx41", "full"}

    def read(self):
        """Take the peak and the response times."""
        # The client is the last task.
        run = self.parse(self.num_tasks - 1)
        peak = run.loads.pop("peak")
        limits = tuple(peak.offered.find_client_limits())
        setting = f"Java {run.java}, {pluralize(self.server_cores, 'core')}"
        loads, steps = select_loads(run, "load"), select_loads(run, "step")
        results = self.make_results("web", setting, loads, peak.throughput, limits)
        if steps:
            rate, limits = find_critical_rate(steps, P99_LIMITS, shares_core=not self.client_cores)
            setting += self.client_place
            rate *= self.native_peak / 100
            results.append(Result.scalar("web_critical_throughput", setting, rate, limits))
        return results


def select_loads(run, prefix):
    """Return the loads of a run that are named so, by share of the native peak."""
    named = {name.removeprefix(prefix): load for name, load in run.loads.items() if name.startswith(prefix)}
    return {int(share): load.offered for share, load in named.items()}


@overhead.simple_test
class web_events_vms(VmsOfOneHost, WebEvents):
    """A server in each VM of a host, against as many servers on a native node."""

    descr = "peaks of a web application in VMs of one host, added, against one native node"
    load = parameter(["peak"], loggable=True)
    layout = parameter(counts.vm_layouts([counts.cores()]), loggable=True)
    together, client_apart = True, False
    # One load, after the start and warm-up of all servers.
    run_seconds = {**WebEvents.run_seconds, "standard": (60, 170)}
    scripts = (*WebEvents.scripts, "together.sh")
    tags = {"service", "esx41", "full"}

    def divide_cores(self):
        """Give each server and its client as many cores as a VM has."""
        super().divide_cores(self.vms // self.nodes, self.per_vm)

    def read(self):
        """Add the peaks of servers that were measured at the same time."""
        runs = [self.parse(task) for task in range(self.num_tasks)]
        peaks = [run.loads["peak"] for run in runs]
        peak = sum(load.throughput for load in peaks)
        limits = [limit for load in peaks for limit in load.offered.find_client_limits()]
        limits += find_gaps(self.room, self.num_tasks)
        setting = f"Java {runs[0].java}{self.where}, {pluralize(self.server_cores, 'core')} each"
        return [Result.scalar("web_throughput", setting, peak, tuple(limits))]
