"""Storage (fio): requests of programs that wait for a disk or a file system, in a directory of the node."""

from virtqual.programs import fio
from virtqual.programs.text import OutputError
from virtqual.runs import Result

from . import counts, overhead
from .asked import as_asked
from .base import Measurement

#: Options of the jobs, which run one after the other on one file.
JOBS = {
    "random_read": {"rw": "randread", "bs": "4k", "ioengine": "libaio", "iodepth": "16"},
    "random_write": {"rw": "randwrite", "bs": "4k", "ioengine": "libaio", "iodepth": "16"},
    "read": {"rw": "read", "bs": "1M", "ioengine": "libaio", "iodepth": "4"},
    "write": {"rw": "write", "bs": "1M", "ioengine": "libaio", "iodepth": "4"},
    "sync": {"rw": "write", "bs": "4k", "ioengine": "psync", "sync": "dsync"},
}
FILE_MIB, JOB_SECONDS = {"small": 64, "standard": 4096}, {"small": 2, "standard": 15}


@overhead.simple_test
class storage(Measurement):
    """One process, in a new directory below `extras.scratch`, which is removed in the end."""

    descr = "storage: random and sequential requests, and writes that wait for the storage"
    feature = "fio"
    repeats = False
    # Its jobs, and writing the file before them.
    run_seconds = {"small": (10, 15), "standard": (75, 115)}
    cache = parameter(["direct", "buffered"], loggable=True)
    tags = {"storage", "full"}

    @classmethod
    def explain_unfit(cls, case):
        """Return why it cannot run: no directory is stated."""
        return super().explain_unfit(case) or counts.explain_not_stated("scratch")

    def arrange(self):
        """Write the file, then run the jobs; the directory is removed in any case."""
        self.job_seconds = JOB_SECONDS[self.scale]
        self.common = {
            "filename": "virtqual.fio",
            "size": f"{FILE_MIB[self.scale]}M",
            "direct": "1" if self.cache == "direct" else "0",
            "runtime": str(self.job_seconds),
        }
        self.executable_opts = ["--output-format=json", "--output=fio.json", "--time_based"]
        # fio takes the directory of a file name that follows; before, the file lies in the working directory.
        self.executable_opts += ['--directory="$virtqual_scratch"', *_list_options(self.common)]
        for name, job in JOBS.items():
            self.executable_opts += [f"--name={name}", "--stonewall", *_list_options(job)]
        self.work_below(self.partition_extras["scratch"])
        self.following = [
            '[ -s "$virtqual_scratch/virtqual.fio" ] || '
            '{ echo "fio: its file is not in $virtqual_scratch" >&2; exit 1; }'
        ]

    def read(self):
        """Assert options and times of all jobs; then take their rates and the times of a sync."""
        run = fio.parse(self.stage_text("fio.json"))
        common = {key: value for key, value in run.options.items() if key in self.common}
        jobs = {
            name: {key: value for key, value in job.options.items() if key not in ("name", "stonewall")}
            for name, job in run.jobs.items()
        }
        as_asked("fio", options=(common, self.common), jobs=(jobs, JOBS))
        if short := [name for name, job in run.jobs.items() if job.runtime < 0.9 * self.job_seconds]:
            raise OutputError("fio", f"jobs ended early: {', '.join(short)}")
        values = {
            "storage_random_read": run.jobs["random_read"].operations,
            "storage_random_write": run.jobs["random_write"].operations,
            "storage_read": run.jobs["read"].bandwidth,
            "storage_write": run.jobs["write"].bandwidth,
            "storage_sync": run.jobs["sync"].latency,
            "storage_sync_p99": run.jobs["sync"].latency_p99,
        }
        return [Result.scalar(metric, self.cache, value) for metric, value in values.items()]


def _list_options(options):
    return [f"--{name}={value}" for name, value in options.items()]
