"""Count how often `virtqual pair` is right about slowdowns that were planted; see README.md."""

import argparse
import json
import math
import os
import random
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import virtqual.commands.pair  # noqa: F401 - before the first fork
from virtqual.cli import app

BUDGET, MARGIN = 5.0, 3.0
#: Standard deviation of a planted value.
SD = 0.01
#: A run that hangs is ended after so long.
TIMEOUT_S = 1
SPIN_S = 0.1
PROGRAM = """#!/bin/sh
n=0; [ ! -e "$1.n" ] || read -r n < "$1.n"
n=$((n + 1)); echo $n > "$1.n"
value=$(sed -n "${n}p" "$1")
[ "$value" != hang ] || exec sleep 1000
echo "value: $value"
"""


@dataclass(frozen=True)
class Truth:
    """What is planted, and what is right to say of it."""

    name: str
    slowdown: float
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    hangs: float = 0.0
    more: tuple[str, ...] = ()


TRUTHS = (
    Truth("the same command", 0, ("WITHIN",), ("OVER",)),
    Truth("half of the margin below the budget", BUDGET - MARGIN / 2, ("WITHIN",), ("OVER",)),
    Truth("budget + half of the margin", BUDGET + MARGIN / 2, ("WITHIN", "OVER"), ()),
    Truth("budget + margin", BUDGET + MARGIN, ("OVER",), ("WITHIN",)),
    Truth("budget + 5 %", BUDGET + 5, ("OVER",), ("WITHIN",)),
    Truth("one run in ten hangs", 0, ("OVER", "UNDECIDED"), ("WITHIN",), 0.1),
    Truth("the same, --min-runs 18", 0, ("OVER", "UNDECIDED"), ("WITHIN",), 0.1, ("--min-runs", "18")),
)


def plant_values(directory, truth, seed):
    """Write the values of both sides, and return their commands."""
    rng = random.Random(seed)
    program = directory / "program"
    program.write_text(PROGRAM)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    for name, slowdown, hangs in (("a", 0.0, 0.0), ("b", truth.slowdown, truth.hangs)):
        lines = []
        for _ in range(200):
            value = 100 * (1 + slowdown / 100) * math.exp(rng.gauss(0, SD))
            lines.append("hang" if rng.random() < hangs else f"{value:.5f}")
        (directory / name).write_text("\n".join(lines) + "\n")
    return ["./program a", "./program b", "--metric", r"value: (\S+)", "--unit", "s"]


def time_loop(count):
    """Return the wall time of the loop that spins so often, the median of nine runs."""
    times = []
    for _ in range(9):
        began = time.perf_counter()
        subprocess.run(["/bin/sh", "-c", write_loop(count)], check=True)
        times.append(time.perf_counter() - began)
    return median(times)


def write_loop(count):
    return f"awk 'BEGIN {{ for (i = 0; i < {count}; i++) x += i }}'"


def calibrate():
    """Return how often the loop spins in `SPIN_S`, and which part of that time is the loop."""
    count = 200_000
    for _ in range(3):
        count = max(int(count * SPIN_S / time_loop(count)), 1000)
    return count, 1 - time_loop(1) / SPIN_S


def make_spin(calibrated):
    count, share = calibrated

    def plant_spin(directory, truth, seed):
        """Return commands that spin; the start of the shell and of awk is the same on both sides."""
        return [write_loop(count), write_loop(round(count * (1 + truth.slowdown / 100 / share)))]

    return plant_spin


def call(words, directory):
    """Run `virtqual` in a process of its own, and return its exit code.

    The process is a fork of this one, which has imported what the command needs: that takes longer than
    to measure.
    """
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 5
    try:
        os.chdir(directory)
        for name, descriptor in (("stdout", 1), ("stderr", 2)):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT, 0o666), descriptor)
        app(words)
    except SystemExit as error:
        code = int(error.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def measure(plant, truth, seed):
    """Run the command once; return the outcome, the number of valid pairs, and what was lost."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        words = [*plant(directory, truth, seed), *truth.more, "--json", "--csv", "it.csv"]
        words += ["--budget", f"{BUDGET:g}%", "--margin", f"{MARGIN:g}%", "--timeout", str(TIMEOUT_S)]
        code = call(["pair", *words], directory)
        if code not in (0, 1, 3, 4):
            raise SystemExit(f"exit code {code}: {words}\n{(directory / 'stderr').read_text()}")
        series, session = map(json.loads, (directory / "stdout").read_text("utf-8").splitlines())
    lost = session["slow_runs"]["virtual_lost"]
    return {"outcome": session["outcome"], "pairs": series["pairs"], "lost": lost}


def make_row(mode, truth, answers):
    counts = Counter(answer["outcome"] for answer in answers)
    right = sum(counts[outcome] for outcome in truth.right)
    wrong = sum(counts[outcome] for outcome in truth.wrong)
    pairs = sum(answer["pairs"] for answer in answers) / len(answers)
    unseen = sum(not answer["lost"] for answer in answers) if truth.hangs else ""
    said = ", ".join(f"{outcome} {count}" for outcome, count in sorted(counts.items()))
    undecided = counts["UNDECIDED"] + counts["INVALID"]
    cells = (mode, truth.name, f"{truth.slowdown:g} %", len(answers), right, wrong, undecided, f"{pairs:.1f}")
    return f"| {' | '.join(map(str, (*cells, said, unseen)))} |"


HEAD = (
    "| runs | planted | slowdown | times | right | wrong | undecided | pairs | said | no hang occurred |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50, help="of each row (default: 50)")
    parser.add_argument("--mode", choices=("values", "spin", "both"), default="both")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, help="append each answer as a JSON line")
    options = parser.parse_args()
    modes = {}
    if options.mode != "spin":
        modes["values"] = (plant_values, TRUTHS)
    if options.mode != "values":
        # What hangs is not timed.
        modes["spin"] = (make_spin(calibrate()), [truth for truth in TRUTHS if not truth.hangs])
    print(HEAD, flush=True)
    for mode, (plant, truths) in modes.items():
        for number, truth in enumerate(truths):
            answers = []
            for time_number in range(options.times):
                seed = options.seed * 1_000_000 + number * 10_000 + time_number
                answers.append(measure(plant, truth, seed))
                if options.log:
                    with options.log.open("a", encoding="utf-8") as file:
                        entry = {"mode": mode, "planted": truth.name, "seed": seed, **answers[-1]}
                        file.write(json.dumps(entry) + "\n")
            print(make_row(mode, truth, answers), flush=True)


if __name__ == "__main__":
    main()
