"""A web application (Spring on Tomcat, PostgreSQL) at offered rates, in the manner of the ESX 4.1 study's."""

import sys

from virtqual.files.wording import pluralize
from virtqual.programs import web_load
from virtqual.programs.text import OutputError

from . import counts, overhead
from .asked import as_asked
from .offered import Offered

#: The feature of the stack that the check needs besides its own.
DATABASE = "postgresql"
#: The heap never grows.  The second compiler warms up for minutes on few cores.
JAVA = {
    "small": ("-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "standard": ("-Xms1g", "-Xmx1g", "-XX:+UseParallelGC"),
}
WINDOW_SECONDS = {"small": 1, "standard": 2}
LOAD_SECONDS = {"small": 10, "standard": 30}


@overhead.simple_test
class web_events(Offered):
    """Each run starts database and application anew, and warms them up."""

    descr = "a web application at shares of its native peak"
    feature = "web-events"
    load = parameter(["all"], loggable=True)
    quick = {}
    # `web_p50` is judged at 75 %, at which nothing bounds it in a VM of a small system.
    shares = {**Offered.shares, "small": (10, 25)}
    # Its loads, and the start and warm-up of the server, which takes minutes on emulated hosts.
    run_seconds = {"small": (120, 300), "standard": (135, 240)}
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
        self.rates = {"peak": 0, **{f"load{share}": rate for share, rate in self.choose_rates().items()}}
        self.env_vars["VIRTQUAL_WITHIN"] = "./web_events.sh"
        java = ",".join([*JAVA[self.scale], f"-XX:ActiveProcessorCount={self.server_cores}"])
        postgres = self.current_environ.extras["programs"][DATABASE]["path"]
        loads = [f"{name}:{LOAD_SECONDS[self.scale]}:{rate:.6g}" for name, rate in self.rates.items()]
        sizes = map(str, (self.nodes, self.client_cores, self.seed, WINDOW_SECONDS[self.scale]))
        self.executable_opts = [java, str(postgres), sys.executable, *sizes, *loads]

    def read(self):
        """Assert processes, seed and rates; then take the peak and the response times."""
        run = web_load.parse(self.stage_text("load.out"))
        # In the six digits of its arguments.
        rates = {name: float(f"{rate:.6g}") for name, rate in self.rates.items()}
        as_asked(
            "web_load",
            processes=(run.processes, max(self.client_cores, 1)),
            seed=(run.seed, str(self.seed)),
            processors=(run.processors, self.server_cores),
            rates=({name: load.rate for name, load in run.loads.items()}, rates),
        )
        if not run.windows:
            raise OutputError("web_load", "no window was measured")
        peak = run.loads.pop("peak")
        limits = tuple(peak.offered.find_client_limits())
        loads = {int(name.removeprefix("load")): load.offered for name, load in run.loads.items()}
        setting = f"Java {run.java}, {pluralize(self.server_cores, 'core')}"
        return self.make_results("web", setting, loads, peak.throughput, limits)
