"""Cost of the harness: seconds of a whole ReFrame case beside a bare `srun` of the same program.

    . ci/activate && vcluster up && python benchmarks/harness/run.py [--held]

Runs the main job's checks (`-n PATTERN` for others), then the program of each of their runs by `srun` alone
with the same options.  Prints what each run costs more within the suite: the median over all runs with its
95 % interval, and the medians by check.  With `--held` both are steps in one allocation a side, as runs of
`virtqual qualify` are.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path

from rich.progress import track
from scipy.stats import quantile_test

from virtqual.site import held, slurm
from virtqual.site.configuration import load_system
from virtqual.verdict.pairs import SIDES

ROOT = Path(__file__).parents[2]
# Options of `sbatch` that a bare `srun` does not take.
BATCH_ONLY_OPTIONS = ("--job-name", "--output", "--error")


@contextmanager
def hold_allocation(name: str, lock: Path) -> Iterator[dict[str, str]]:
    """Hold an allocation of both sides, and yield the variables that tell ReFrame of it.

    It lasts until it is cancelled: the file `lock`, which would limit it, is never written.
    """
    system = load_system(name)
    partitions = [system.partition(side) for side in SIDES]
    job = slurm.allocate([(partition, partition.extras.nodes) for partition in partitions], "benchmark", lock)
    try:
        jobs = slurm.list_components(job)
        while slurm.list_waiting_jobs(jobs):
            time.sleep(1)
        names = [partition.name for partition in partitions]
        yield held.SessionNodes(system=name, round=1, jobs=dict(zip(names, jobs, strict=True))).environment()
    finally:
        slurm.cancel_jobs({job: time.time()})


def run_reframe(system: str, names: list[str], pairs: int, work: Path, env: dict[str, str]) -> list[dict]:
    """Run checks through ReFrame, and return the runs in the order of their jobs."""
    report, log = work / "report.json", work / "reframe.log"
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(
            [
                "reframe", "-C", ROOT / "reframe/settings.py", "-c", ROOT / "checks", "-r",
                "--system", system, *(["-n", "|".join(names)] if names else ["-t", "quick"]),
                "--exec-policy=serial", "--keep-stage-files", f"--report-file={report}",
            ],
            env={**os.environ, "VIRTQUAL_PAIRS": f"0:{pairs - 1}", **env},
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        )  # fmt: skip
    if not report.exists():
        raise SystemExit(f"reframe ended with {done.returncode}:\n{log.read_text(encoding='utf-8')}")
    cases = [
        case
        for case in json.loads(report.read_text(encoding="utf-8"))["runs"][0]["testcases"]
        if case.get("record")
    ]
    return sorted(cases, key=lambda case: case["job_submit_time"])


def compute_cycles(cases: list[dict]) -> list[float]:
    """Return the seconds from each job's submission to that of the next one.

    Jobs run one after another: this is the whole cost of a case in Slurm, the run and ReFrame.  ReFrame's own
    ``time_total`` also contains the cases that depend on it.
    """
    return [after["job_submit_time"] - case["job_submit_time"] for case, after in pairwise(cases)]


def measure_bare_srun(case: dict) -> float:
    """Return the seconds of the `srun` line of a case's job alone, in a copy of its stage directory."""
    stage = Path(case["stagedir"])
    script = (stage / "rfm_job.sh").read_text(encoding="utf-8")
    batch_options = re.findall(r"^#SBATCH (.*)$", script, re.MULTILINE)
    options = " ".join(option for option in batch_options if not option.startswith(BATCH_ONLY_OPTIONS))
    run = json.loads(case["record"])
    if "." in run["job"]:
        # The line has the options of a step.
        options = ""
    lines = [line for line in script.splitlines() if line.startswith(("export ", "srun "))]
    text = "\n".join(lines).replace("srun ", f"srun {options} ").replace("./task.sh ", "")
    copy = Path(tempfile.mkdtemp(dir=stage.parent))
    shutil.copytree(stage, copy, dirs_exist_ok=True)
    begun = time.perf_counter()
    subprocess.run(
        ["bash", "-ec", text],
        cwd=copy,
        env={**os.environ, "SLURMD_NODENAME": run["nodes"][0]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    seconds = time.perf_counter() - begun
    shutil.rmtree(copy)
    return seconds


def format_table(rows: list[tuple[str, str, float, float]]) -> str:
    """Return the table of rows of side, check, seconds in the suite, and seconds of the bare srun."""
    lines = [f"{'seconds (medians)':<44}{'suite':>8}{'srun':>8}{'more':>8}"]
    for side in SIDES:
        rows_of_side = [row for row in rows if row[0] == side]
        for check in dict.fromkeys(row[1] for row in rows_of_side):
            pairs = [row[2:] for row in rows_of_side if row[1] == check]
            lines.append(format_medians(f"{side} {check}", pairs))
        pairs = [row[2:] for row in rows_of_side]
        interval = quantile_test([suite - alone for suite, alone in pairs], p=0.5).confidence_interval()
        lines.append(format_medians(f"{side}, all {len(pairs)} runs", pairs))
        lines.append(f"{'':<44}{'':>16}{f'{interval.low:.2f} to {interval.high:.2f}':>16} (95 %)")
    return "\n".join(lines)


def format_medians(name: str, pairs: list[tuple[float, float]]) -> str:
    suite, alone = zip(*pairs, strict=True)
    more = statistics.median(seconds - bare_seconds for seconds, bare_seconds in pairs)
    return f"{name:<44}{statistics.median(suite):>8.2f}{statistics.median(alone):>8.2f}{more:>8.2f}"


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--system", default="vcluster")
    parser.add_argument("-n", "--name", action="append", default=[], help="pattern of names, as reframe's -n")
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--held", action="store_true", help="as steps in an allocation that is held")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as work,
        hold_allocation(options.system, Path(work) / "lock") if options.held else nullcontext({}) as env,
    ):
        print("running the suite ...", flush=True)
        cases = run_reframe(options.system, options.name, options.pairs, Path(work), env)
        rows = []
        for case, suite in zip(track(cases[:-1], "running srun"), compute_cycles(cases), strict=True):
            run = json.loads(case["record"])
            rows.append((run["side"], run["check"], suite, measure_bare_srun(case)))
    print(format_table(rows))


if __name__ == "__main__":
    main()
