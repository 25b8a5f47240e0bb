"""A database under load (PostgreSQL, pgbench): transactions at offered rates, from their intended times."""

from virtqual.programs import pgbench

from . import counts, overhead
from .asked import as_asked
from .offered import Offered

CONNECTIONS_PER_CORE = 4
# With a smaller factor than connections, it would measure how these wait for each other (pgbench's manual).
MAX_SCALE_FACTOR, SCALE_FACTOR_MIB = 64, 16
SCRIPT = "<builtin: TPC-B (sort of)>"
PEAK_SECONDS = {"small": 5, "standard": 20}
#: The first two seconds do not count.
LOAD_SECONDS = {"small": 12, "standard": 32}


@overhead.simple_test
class db_pgbench(Offered):
    """A server of the run's own, and its client."""

    descr = "PostgreSQL at shares of its native peak"
    feature = "postgresql"
    storage = parameter(["memory", "disk"], loggable=True)
    quick = {"load": ("quarter",), "storage": ("memory",)}
    scripts = ("postgres.sh", "apart.sh", "pgbench.sh")
    tags = {"service", "quick", "full"}

    @classmethod
    def explain_unfit(cls, case):
        """Return why it cannot run: no directory is stated."""
        reason = counts.explain_not_stated("scratch") if case.storage == "disk" else None
        return super().explain_unfit(case) or reason

    def arrange(self):
        """Divide the cores between server and client; the tables fit into an eighth of the memory."""
        self.divide_cores()
        self.connections = CONNECTIONS_PER_CORE * self.server_cores
        fitting = self.node_memory // (8 * SCALE_FACTOR_MIB * 2**20)
        self.scale_factor = 1 if self.small else max(1, min(MAX_SCALE_FACTOR, fitting))
        place = self.partition_extras["scratch"] if self.storage == "disk" else "/dev/shm"
        self.load_seconds = {"peak": PEAK_SECONDS[self.scale]} if self.measures_peak else {}
        loads = [f"peak:{PEAK_SECONDS[self.scale]}:"] if self.measures_peak else []
        for share, rate in self.choose_rates().items():
            self.load_seconds[share] = LOAD_SECONDS[self.scale]
            loads.append(f"{share}:{LOAD_SECONDS[self.scale]}:{rate:.6g}")
        sizes = map(str, (self.scale_factor, self.connections, self.nodes, self.client_cores, self.seed))
        self.env_vars["VIRTQUAL_WITHIN"] = "./pgbench.sh"
        self.executable_opts = [place, *sizes, *loads]

    def read(self):
        """Assert scale factor, connections and times of each load; then take the peak and the latencies."""
        runs = {load: pgbench.parse(self.stage_text(f"{load}.out")) for load in self.load_seconds}
        for load, run in runs.items():
            as_asked(
                "pgbench",
                version=(run.version, self.version(run.version)),
                script=(run.script, SCRIPT),
                mode=(run.mode, "prepared"),
                scale=(run.scale, self.scale_factor),
                connections=(run.clients, self.connections),
                threads=(run.threads, max(self.client_cores, 1)),
                seconds=(run.seconds, self.load_seconds[load]),
                offered=(run.offered is not None, load != "peak"),
            )
        peak = runs.pop("peak").rate if self.measures_peak else None
        loads = {share: run.offered for share, run in runs.items()}
        return self.make_results("db", f"{self.storage}, {self.connections} connections", loads, peak)
