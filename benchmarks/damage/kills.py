"""Two writers of one log are killed at random moments: the runs that they acknowledged are read back.

    python benchmarks/damage/kills.py [--kills 50] [--seed 1]

A writer acknowledges a run, in a file, after `append` has returned. The exit code is 1 if a run is lost or
wrong.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import tempfile
import time
from pathlib import Path

from recorded import make_session

from virtqual.runs import Run
from virtqual.session.log import Finished, Log


def write(directory: Path, run: Run, writer: str) -> None:
    """Append copies of a run, each with a job of its own, until this process is killed."""
    log, number = Log(directory), 0
    with (directory / f"acknowledged-{writer}").open("a", encoding="utf-8", buffering=1) as file:
        while True:
            job = f"{writer}-{number}"
            log.append(Finished(run=run.model_copy(update={"job": job, "pair": number})))
            file.write(f"{job}\n")
            number += 1


def main() -> int:
    """Print what was read back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, torn_ends = random.Random(options.seed), 0
    with tempfile.TemporaryDirectory() as sessions:
        directory = make_session("kvm-within", Path(sessions))
        log = Log(directory)
        recorded = log.session().runs[0]
        for kill in range(options.kills):
            arguments = [(directory, recorded, f"{kill}-{number}") for number in range(2)]
            writers = [multiprocessing.Process(target=write, args=args) for args in arguments]
            for writer in writers:
                writer.start()
            time.sleep(rng.uniform(0.02, 0.4))
            for writer in writers:
                writer.kill()
                writer.join()
            torn_ends += not log.path.read_bytes().endswith(b"\n")
            # A damaged log is refused here.
            runs = {run.job: run for run in Log(directory).session().runs}
        files = directory.glob("acknowledged-*")
        acknowledged = {job for file in files for job in file.read_text("utf-8").split()}
    written = {job: run for job, run in runs.items() if job.count("-") == 2}
    lost = acknowledged - runs.keys()
    wrong = [
        job
        for job, run in written.items()
        if run != recorded.model_copy(update={"job": job, "pair": int(job.rpartition("-")[2])})
    ]
    print(
        f"{options.kills} kills of two writers: {len(acknowledged)} runs acknowledged, {len(lost)} lost, "
        f"{len(wrong)} wrong, {len(written.keys() - acknowledged)} written and not acknowledged, "
        f"{torn_ends} torn ends"
    )
    return int(bool(lost or wrong))


if __name__ == "__main__":
    sys.exit(main())
