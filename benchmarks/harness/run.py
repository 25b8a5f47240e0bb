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
from virtqual.site.systems import SIDES

ROOT = Path(__file__).parents[2]
# What `sbatch` is told and a bare `srun` is not.
BATCH_ONLY = ("--job-name", "--output", "--error")


@contextmanager
def allocations(name: str, alive: Path) -> Iterator[dict[str, str]]:
    """Hold an allocation of one side each; gives the environment by which ReFrame is told of them.

    Where `alive` is not there, they last until they are cancelled.
    """
    system = load_system(name)
    known = {one.name: one for one in map(system.partition, SIDES)}
    jobs = {part: slurm.allocate(one, "benchmark", one.extras.nodes, alive) for part, one in known.items()}
    try:
        while slurm.list_waiting_jobs(jobs.values()):
            time.sleep(1)
        yield held.environment(name, jobs, 1)
    finally:
        slurm.cancel_jobs(dict.fromkeys(jobs.values(), time.time()))


def reframe_cases(system: str, names: list[str], pairs: int, work: Path, told: dict[str, str]) -> list[dict]:
    """Run checks through ReFrame; returns the runs in the order of their jobs."""
    report, log = work / "report.json", work / "reframe.log"
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(
            [
                "reframe", "-C", ROOT / "reframe/settings.py", "-c", ROOT / "checks", "-r",
                "--system", system, *(["-n", "|".join(names)] if names else ["-t", "quick"]),
                "--exec-policy=serial", "--keep-stage-files", f"--report-file={report}",
            ],
            env={**os.environ, "VIRTQUAL_PAIRS": f"0:{pairs - 1}", **told},
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


def cycles(cases: list[dict]) -> list[float]:
    """Return the seconds from each job's submission to that of the next one; of the last none is known.

    Jobs run one after another, so this is all that a case costs: Slurm, the run, ReFrame's polling, reading
    and judging.  (ReFrame's own ``time_total`` lasts until the cases that depend on it have ended, too.)
    """
    return [after["job_submit_time"] - case["job_submit_time"] for case, after in pairwise(cases)]


def bare(case: dict) -> float:
    """Run the `srun` line of a case's job by itself in a copy of its stage directory; returns seconds."""
    stage = Path(case["stagedir"])
    script = (stage / "rfm_job.sh").read_text(encoding="utf-8")
    told = re.findall(r"^#SBATCH (.*)$", script, re.MULTILINE)
    options = " ".join(option for option in told if not option.startswith(BATCH_ONLY))
    run = json.loads(case["record"])
    allocation, _, step = run["job"].partition(".")
    if step:
        options = f"--jobid={allocation}"
    wanted = [line for line in script.splitlines() if line.startswith(("export ", "srun "))]
    text = "\n".join(wanted).replace("srun ", f"srun {options} ").replace("./task.sh ", "")
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


def table(rows: list[tuple[str, str, float, float]]) -> str:
    """Return what is printed of (side, check, seconds in the suite, seconds of the bare srun)."""
    lines = [f"{'seconds (medians)':<44}{'suite':>8}{'srun':>8}{'more':>8}"]
    for side in ("native", "virtual"):
        mine = [row for row in rows if row[0] == side]
        for check in dict.fromkeys(row[1] for row in mine):
            pairs = [row[2:] for row in mine if row[1] == check]
            lines.append(line(f"{side} {check}", pairs))
        pairs = [row[2:] for row in mine]
        interval = quantile_test([suite - alone for suite, alone in pairs], p=0.5).confidence_interval()
        lines.append(line(f"{side}, all {len(pairs)} runs", pairs))
        lines.append(f"{'':<44}{'':>16}{f'{interval.low:.2f} to {interval.high:.2f}':>16} (95 %)")
    return "\n".join(lines)


def line(name: str, pairs: list[tuple[float, float]]) -> str:
    """Return the medians of some runs."""
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
        allocations(options.system, Path(work) / "alive") if options.held else nullcontext({}) as told,
    ):
        print("running the suite ...", flush=True)
        cases = reframe_cases(options.system, options.name, options.pairs, Path(work), told)
        rows = []
        for case, suite in zip(track(cases[:-1], "running srun"), cycles(cases), strict=True):
            run = json.loads(case["record"])
            rows.append((run["side"], run["check"], suite, bare(case)))
    print(table(rows))


if __name__ == "__main__":
    main()
