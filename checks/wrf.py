"""WRF: the baroclinic wave that it brings along (``em_b_wave``, no data), and the continental US at 12 km."""

from pathlib import Path

from virtqual.programs import sizes, wrf_fields
from virtqual.programs import wrf as output
from virtqual.programs.text import OutputError
from virtqual.runs import Result

from . import counts, overhead
from .asked import as_asked
from .base import Measurement
from .profiled import VERSIONS, Profiled
from .scaling import Scaling

DAY_S = 86400
# The input's name in references/inputs/.
CONUS = "wrf-conus12km"
# Files of earlier runs, which a case may hold; and the namelist, which is copied.
UNLINKED_PREFIXES = ("rsl.", "wrfout", "wrfrst", "namelist")
# The wave has 41 x 81 points, and WRF refuses less than 10 a rank in either direction.
IDEAL_RANKS = (1, 2, 4, 8, 16, 32)
# The continental US has 425 x 300 points: the largest power of two.
MAX_CONUS_RANKS = 256
# Norms of fields on both sides: single precision, in another order of sums.
NORM_TOLERANCE = 1e-4


class Wrf(Measurement):
    """A case of WRF: its input, the time that it simulates, and the proof that it is right."""

    #: The case, as settings name it.
    case_name = ""
    #: Simulated hours by scale, and seconds a step.
    hours = {}
    step_seconds = 0

    def find_files(self):
        """Return the files that a run may need, of which the first of a name is linked; and the namelist."""
        raise NotImplementedError

    def prepare(self):
        """Return the commands that come before all runs."""
        return []

    @run_before("run")
    def bring_case(self):
        """Link the case's files and WRF's tables; the namelist is a copy that runs our hours."""
        stage = Path(self.stagedir)
        files, namelist = self.find_files()
        for file in files:
            is_input = file.suffix != ".exe" and not file.name.startswith(UNLINKED_PREFIXES)
            if is_input and not (stage / file.name).exists():
                (stage / file.name).symlink_to(file)
        for name, entries in self.namelists().items():
            text = output.namelist(namelist.read_text(encoding="utf-8"), entries)
            (stage / name).write_text(text, encoding="utf-8")

    def namelists(self):
        """Return the entries of each namelist by its name."""
        return {"namelist.input": output.hours(self.simulated_hours, self.step_seconds)}

    @property
    def simulated_hours(self):
        """Hours that are simulated."""
        return self.hours[self.scale]

    def parse(self, directory, processes, period):
        """Return a finished run of a period in seconds: all steps, on all ranks."""
        run = output.parse(self.stage_text(directory / "rsl.error.0000"), period)
        as_asked("WRF", ranks=(run.tasks[0] * run.tasks[1], processes))
        return run

    def read_rating(self, directory, processes):
        """Return runs a day of a finished run: all hours, on all ranks, with fields of an atmosphere.

        Both sides must have the same norms of fields on all processes.
        """
        run = self.parse(directory, processes, self.simulated_hours * 3600)
        history = sorted(directory.glob("wrfout_d01_*"))
        if not history:
            raise OutputError("WRF", "no history file (wrfout_d01_*) was written")
        time, fields = wrf_fields.read(history[-1])
        if time != run.end:
            raise OutputError("WRF", f"the last fields are those of {time}, the run completed at {run.end}")
        if processes == self.num_tasks:
            for name, value in fields.items():
                self.agree_on(f"RMS of {name}", value, NORM_TOLERANCE)
        return DAY_S / run.total

    def read(self):
        """Assert that it is complete and right; then rate the steps."""
        rating = self.read_rating(self.room, self.num_tasks)
        setting = f"{self.case_name} {self.simulated_hours} h, {self.num_tasks} ranks"
        return [Result.scalar("wrf_rating", setting, rating)]


class Ideal(Wrf):
    """The baroclinic wave: ``ideal.exe`` makes the input first, on one task."""

    feature = "wrf-ideal"
    case_name = "em_b_wave"
    hours = {"small": 2, "standard": 120}
    step_seconds = 600

    def prepare(self):
        """Make the input."""
        ideal = self.program["data"]["ideal"]
        launch = f"{self.launch_command()} --nodes=1 --ntasks=1"
        return [f"{launch} {ideal} > ideal.out && mv rsl.error.0000 ideal.rsl"]

    def find_files(self):
        """Return the files of the case and of WRF's tables, and the namelist."""
        case, tables = (Path(self.program["data"][name]) for name in ("case", "run"))
        return [*sorted(case.iterdir()), *sorted(tables.iterdir())], case / "namelist.input"


class Conus(Wrf):
    """The continental US at 12 km: the study's area, resolution and three hours, on data that was fetched."""

    feature = "wrf-real"
    inputs = (CONUS,)
    only_scale = "standard"
    case_name = "CONUS 12 km"
    hours = {"standard": 3}
    step_seconds = 72

    def find_files(self):
        """Return the input's files and WRF's tables, and the namelist."""
        fetched = self.fetched[CONUS]
        top = [path for name, path in fetched.files.items() if "/" not in name]
        tables = sorted(Path(self.program["data"]["run"]).iterdir())
        return [*top, *tables], fetched.file("namelist.input")


class WrfScaling(Profiled, Scaling):
    """The scaling of a case, with the share of communication in its steps; goes before the case."""

    metric = "wrf_scaling"
    differing_files = ("namelist.input",)
    #: Time steps of the short run under the profiler; the long one takes all.
    short_steps = 2

    def arrange(self):
        """Run it on more and more processes."""
        self.problem = f"{self.case_name} {self.simulated_hours} h"
        self.prerun_cmds = [*self.prepare(), *self.spread()]
        self.plan_profiles()

    def profiled_steps(self, version):
        """Return the time steps of a run under the profiler."""
        return self.short_steps if version == "short" else self.simulated_hours * 3600 // self.step_seconds

    def namelists(self):
        """Return the entries of each namelist by its name, with those of the runs under the profiler."""
        versions = {
            f"namelist.input.{version}": output.steps(self.profiled_steps(version), self.step_seconds)
            for version in VERSIONS
        }
        return {**super().namelists(), **versions}

    def read_profiled_seconds(self, directory, version):
        """Return the time of all steps of a run under the profiler."""
        period = self.profiled_steps(version) * self.step_seconds
        return self.parse(directory, self.num_tasks, period).total

    def rating(self, directory, text, processes):
        """Assert that the run is complete and right."""
        return self.read_rating(directory, processes)

    def read(self):
        """Read every run; keep the share of communication on all processes."""
        results = super().read()
        self.communication = self.read_share()
        return results


@overhead.simple_test
class wrf_ideal(Ideal):
    """The baroclinic wave on a node, over numbers of ranks."""

    descr = "WRF em_b_wave (needs no download) on one node by ranks, runs a day"
    ranks = parameter(counts.up_to_cores(IDEAL_RANKS), loggable=True)
    tags = {"app", "openstack-kvm", "full"}

    def arrange(self):
        """Start the ranks, each on a core."""
        self.start_tasks(self.ranks)
        self.prerun_cmds = self.prepare()


@overhead.simple_test
class wrf_ideal_scaling(WrfScaling, Ideal):
    """The baroclinic wave over nodes."""

    descr = "WRF em_b_wave strong scaling over up to 8 nodes, runs a day by processes"
    max_processes = IDEAL_RANKS[-1]
    nodes = counts.nodes()
    tags = {"app", "fdr", "full"}


@overhead.simple_test
class wrf_conus12km(Conus):
    """The continental US on the cores of a node, or as many of them as it can be divided among."""

    descr = "WRF CONUS 12 km, 3 hours on one node, runs a day"
    tags = {"app", "openstack-kvm", "full"}

    def arrange(self):
        """One rank a core, on as many cores as WRF can use."""
        self.start_tasks(sizes.ranks_of_conus(self.cores))


@overhead.simple_test
class wrf_conus12km_scaling(WrfScaling, Conus):
    """The continental US over nodes: 8 to 128 processes on 8 nodes of 16 cores."""

    descr = "WRF CONUS 12 km strong scaling over up to 8 nodes, runs a day by processes"
    max_processes = MAX_CONUS_RANKS
    nodes = counts.nodes()
    tags = {"app", "fdr", "full"}
