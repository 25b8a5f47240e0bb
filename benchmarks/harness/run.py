"""What the harness costs: seconds of a whole ReFrame case beside a bare `srun` of the same program.

    . ci/activate && vcluster up && python benchmarks/harness/run.py

Both are measured in turn in one run, on both partitions; medians are printed, with their ranges.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]


def reframe_cases(system: str, pairs: int, work: Path) -> dict[str, list[dict]]:
    """Run the check through ReFrame; returns its cases by side."""
    report = work / "report.json"
    subprocess.run(
        [
            "reframe", "-C", ROOT / "reframe/settings.py", "-c", ROOT / "checks", "-r",
            "--system", system, "-n", "^lammps%.*problem=chain", "--exec-policy=serial",
            "--keep-stage-files", f"--report-file={report}",
        ],
        env={**os.environ, "VIRTQUAL_PAIRS": f"0:{pairs - 1}"},
        stdout=sys.stderr,
        check=True,
    )  # fmt: skip
    cases: dict[str, list[dict]] = {}
    for case in json.loads(report.read_text())["runs"][0]["testcases"]:
        run = json.loads(case["record"])
        cases.setdefault(run["side"], []).append(case)
    return cases


def cycles(cases: dict[str, list[dict]]) -> dict[str, list[float]]:
    """Return the seconds from each case's submission to that of the next one, by side.

    Cases run one after another, so this is all that a case costs: Slurm, the run, ReFrame's polling, and the
    reading.  (ReFrame's own ``time_total`` lasts until the cases that depend on it have ended, too.)
    """
    order = sorted((case["job_submit_time"], side) for side, found in cases.items() for case in found)
    seconds: dict[str, list[float]] = {side: [] for side in cases}
    for (begun, side), (following, _) in pairwise(order):
        seconds[side].append(following - begun)
    return seconds


def bare(case: dict, access: list[str], work: Path) -> float:
    """Run the srun line of a case's job by itself in a copy of its stage directory; returns seconds."""
    stage = Path(case["stagedir"])
    script = (stage / "rfm_job.sh").read_text()
    line = next(text for text in script.splitlines() if text.startswith("srun "))
    exports = [text for text in script.splitlines() if text.startswith("export ")]
    tasks = next(text.split("=")[1] for text in script.splitlines() if text.startswith("#SBATCH --ntasks="))
    copy = Path(tempfile.mkdtemp(dir=stage.parent))
    shutil.copytree(stage, copy, dirs_exist_ok=True)
    command = line.replace("srun ", f"srun {' '.join(access)} -N1 -n{tasks} ", 1).replace("./task.sh ", "")
    begun = time.perf_counter()
    subprocess.run(
        ["bash", "-c", "\n".join([*exports, command])],
        cwd=copy,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    seconds = time.perf_counter() - begun
    shutil.rmtree(copy)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", default="vcluster")
    parser.add_argument("--pairs", type=int, default=6)
    options = parser.parse_args()
    from virtqual.site import load_system

    system = load_system(options.system)
    with tempfile.TemporaryDirectory() as work:
        cases = reframe_cases(options.system, options.pairs, Path(work))
        print(f"{'LAMMPS chain':<14}{'ReFrame case':>22}{'bare srun':>22}{'harness':>10}")
        seconds = cycles(cases)
        for side, found in cases.items():
            access = list((system.partition(side).model_extra or {}).get("access", ()))
            whole = seconds[side]
            alone = [bare(case, access, Path(work)) for case in found]
            more = statistics.median(whole) - statistics.median(alone)
            print(f"{side:<14}{shown(whole):>22}{shown(alone):>22}{more:>8.2f} s")


def shown(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} s ({min(seconds):.2f}-{max(seconds):.2f})"


if __name__ == "__main__":
    main()
