"""WRF: the baroclinic wave that it brings along (``em_b_wave``), which needs no data."""

from pathlib import Path

import reframe as rfm

from virtqual.inputs import wrf as inputs
from virtqual.outputs import wrf as output
from virtqual.outputs.text import OutputError
from virtqual.runs import Result

from . import counts
from .base import Measurement
from .overhead import Overhead

# Simulated hours, by scale; a step is ten minutes.
HOURS = {"small": 2, "standard": 120}
STEP = 600
DAY = 86400


@rfm.simple_test
class wrf_ideal(Measurement):
    """The baroclinic wave on a node, over numbers of ranks."""

    descr = "WRF em_b_wave (needs no download) on one node by ranks, runs a day"
    feature = "wrf-ideal"
    ranks = parameter(counts.ranks(), loggable=True)
    tags = {"app", "fdr", "openstack-kvm", "full"}

    def arrange(self):
        """As many ranks as asked for, each on a core; ``ideal.exe`` makes the input first, on one task."""
        self.num_tasks = self.num_tasks_per_node = self.ranks
        self.hours = HOURS[self.known["scale"]]
        launch = self.job.launcher.run_command(self.job)
        ideal = self.program["data"]["ideal"]
        self.prerun_cmds = [f"{launch} --ntasks=1 {ideal} > ideal.out && mv rsl.error.0000 ideal.rsl"]

    @run_before("run")
    def bring_case(self):
        """Link the case's files and WRF's tables; the namelist is a copy that runs our hours."""
        stage = Path(self.stagedir)
        for room in ("case", "run"):
            for file in sorted(Path(self.program["data"][room]).iterdir()):
                if file.suffix != ".exe" and not (stage / file.name).exists():
                    (stage / file.name).symlink_to(file)
        namelist = stage / "namelist.input"
        text = namelist.read_text()
        namelist.unlink()
        hours = {"run_days": 0, "run_hours": self.hours, "run_minutes": 0, "run_seconds": 0}
        namelist.write_text(inputs.namelist(text, {**hours, "time_step": STEP}))

    def read(self):
        """Assert that all hours were simulated by all ranks; then rate the steps."""
        run = output.parse(self.stage_text("rsl.error.0000"))
        ranks, simulated = run.tasks[0] * run.tasks[1], len(run.seconds) * run.interval
        if (ranks, simulated) != (self.num_tasks, self.hours * 3600):
            raise OutputError(
                "WRF", f"{simulated:g} s on {ranks} ranks, asked for {self.hours} h on {self.num_tasks}"
            )
        setting = f"em_b_wave {self.hours} h, {ranks} ranks"
        return [Result.scalar("wrf_rating", setting, DAY / run.total)]


@rfm.simple_test
class wrf_ideal_overhead(Overhead):
    """Verdict on WRF's baroclinic wave."""

    descr = "WRF em_b_wave: virtual against native"
    measured = wrf_ideal
    ranks = parameter(counts.ranks(), loggable=True)
