"""Two writers of one log are killed at random moments: what they acknowledged is read back.

    python benchmarks/damage/kills.py [--kills 50] [--seed 1]

A writer acknowledges a run, in a file, after `append` has returned.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import time
from pathlib import Path

from recorded import make_session

from virtqual.runs import Run
from virtqual.session.log import LOG, Finished, Log


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
    rng, torn = random.Random(options.seed), 0
    with tempfile.TemporaryDirectory() as sessions:
        directory = make_session("kvm-within", Path(sessions))
        recorded = Log(directory).session().runs
        for kill in range(options.kills):
            writers = [
                multiprocessing.Process(target=write, args=(directory, recorded[0], f"{kill}-{number}"))
                for number in range(2)
            ]
            for writer in writers:
                writer.start()
            time.sleep(rng.uniform(0.02, 0.4))
            for writer in writers:
                writer.kill()
            for writer in writers:
                writer.join()
            torn += not (directory / LOG).read_bytes().endswith(b"\n")
            # A damaged log is refused here.
            runs = {run.job: run for run in Log(directory).session().runs}
        acknowledged = {
            job for file in directory.glob("acknowledged-*") for job in file.read_text("utf-8").split()
        }
        expected = json.loads(recorded[0].model_dump_json(exclude={"job", "pair"}))
        wrong = sum(
            json.loads(run.model_dump_json(exclude={"job", "pair"})) != expected
            or run.pair != int(job.rpartition("-")[2])
            for job, run in runs.items()
            if job.count("-") == 2
        )
        written = sum(job.count("-") == 2 for job in runs)
        size = (directory / LOG).stat().st_size
    lost = len(acknowledged - runs.keys())
    print(
        f"{options.kills} kills of two writers: {len(acknowledged)} runs acknowledged, {lost} lost, "
        f"{wrong} wrong, {written - len(acknowledged) + lost} written and not acknowledged, "
        f"{torn} torn ends; the log of {size} B is intact"
    )
    return int(bool(lost or wrong))


if __name__ == "__main__":
    sys.exit(main())
