"""Read other people's outputs in bulk: which are accepted, refused and why, and whether any number is wrong.

    python benchmarks/outside/run.py SNAPSHOT... --decisions new.tsv
    PYTHONPATH=OLD/src python benchmarks/outside/run.py SNAPSHOT... --decisions old.tsv
    python benchmarks/outside/run.py --changes old.tsv new.tsv

A SNAPSHOT is a directory of files, or a git repository whose HEAD is read.  Outputs are found by the first
line of a program, and cut out of what a job printed before and after.  The parsers are called as the checks
do, with the sizes and steps that the output has.  An accepted number is held against a plain read.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virtqual.programs import (
    fio,
    hpcc,
    hpl,
    ior,
    lammps,
    milc,
    mpip,
    namd,
    npb,
    openfoam,
    osu,
    pgbench,
    stream,
    stress_ng,
    wrf,
)
from virtqual.programs.text import OutputError

# Longer files are data, or traces.
LARGEST_BYTES = 2**19
# What a launcher, a scheduler or a script prints after a program.
_AFTER = r"^(?:START OF JOBSPEC|real\t|Resources |Application \d+ resources|slurmstepd).*"
_NOT_OUTPUTS = (".py", ".md", ".ipynb", ".rst", ".c", ".h", ".html", ".js")


Comparison = Callable[[str, Any], Iterator[tuple[float, float]]]


@dataclass(frozen=True)
class Outside:
    """A program: its first line, how it is read as a check does, and a plain read (value of ours, theirs)."""

    begin: str
    read: Callable[[str], object]
    plain: Comparison


def find_float(pattern: str, text: str, *, last: bool = False) -> float:
    """Return the first or last number that a pattern finds, as most scripts do."""
    found = re.findall(pattern, text, re.MULTILINE)
    return float(found[-1 if last else 0])


def read_osu(text: str) -> object:
    """Read a table over the sizes that it has; the checks ask for none of 0 bytes."""
    text = re.sub(r"^0 .*\n", "", text, flags=re.MULTILINE)
    found = [int(size) for size in re.findall(r"^(\d+) +\d", text, re.MULTILINE)] or [1]
    return osu.parse(text, first=found[0], last=found[-1])


def compare_osu(text: str, run: Any) -> Iterator[tuple[float, float]]:
    """Yield the second column of each row."""
    column = next(iter(run.columns.values()))
    for size, value in re.findall(r"^([1-9]\d*) +(\S+)", text, re.MULTILINE):
        yield column[int(size)], float(value)


def compare(name: str, pattern: str, factor: float = 1.0, *, last: bool = False) -> Comparison:
    """Return the comparison of one attribute with one number of the text."""

    def yield_pair(text: str, run: Any) -> Iterator[tuple[float, float]]:
        value = getattr(run, name)
        yield float(value), factor * find_float(pattern, text, last=last)

    return yield_pair


def compare_stream(text: str, run: Any) -> Iterator[tuple[float, float]]:
    """Yield the four best rates."""
    for kernel, rate in run.best.items():
        yield rate, find_float(rf"^{kernel.capitalize()}:\s+(\S+)", text)


def compare_mdtest(text: str, run: Any) -> Iterator[tuple[float, float]]:
    """Yield the rate at which files were created."""
    yield run.rates["create"], find_float(r"^ +File creation +:? +(\S+)", text)


def compare_fio(text: str, run: Any) -> Iterator[tuple[float, float]]:
    """Yield the operations of each job."""
    for job in json.loads(text)["jobs"]:
        side = max(job["read"], job["write"], key=lambda side: side["total_ios"])
        yield run.jobs[job["jobname"]].operations, side["iops"]


def compare_wrf(text: str, run: Any) -> Iterator[tuple[float, float]]:
    """Yield the time of all steps of the outermost domain."""
    steps = re.findall(r"^Timing for main: .* on domain +1: +(\S+) elapsed", text, re.MULTILINE)
    yield run.total, math.fsum(map(float, steps))


def compare_mpip(text: str, run: Any) -> Iterator[tuple[float, float]]:
    """Yield the time of the first task."""
    yield run.seconds[0], find_float(r"^ +0 +(\S+)", text)


def read_foam(text: str) -> object:
    """Read as many steps as there are."""
    return openfoam.parse(text, steps=len(re.findall("^Time = ", text, re.MULTILINE)))


PROGRAMS = {
    "OSU": Outside(r"^# OSU .*Test", read_osu, compare_osu),
    "STREAM": Outside(r"^-{61}\nSTREAM version", stream.parse, compare_stream),
    "HPL": Outside(r"^={80}\nHPLinpack", hpl.parse, compare("rate", r"^W[RC]\d.* (\d\S*) *$", last=True)),
    "HPCC": Outside(r"^#{72}\nThis is the DARPA/DOE", hpcc.parse, compare("hpl", r"^HPL_Tflops=(\S+)", 1000)),
    "LAMMPS": Outside(r"^LAMMPS \(", lammps.parse, compare("loop_time", r"^Loop time of (\S+)")),
    "WRF": Outside(r"^(?:taskid: 0 hostname:|starting wrf task +0 )", wrf.parse, compare_wrf),
    "NAMD": Outside(r"^Charm\+\+", namd.parse, compare("wall_clock", r"^WallClock: (\S+)")),
    "MILC": Outside(r"^SU3 with improved KS action", milc.parse, compare("time", r"^Time = (\S+)")),
    "NPB": Outside(r"^ NAS Parallel Benchmarks", npb.parse, compare("rate", r"Mop/s total += +(\S+)")),
    "OpenFOAM": Outside(
        r"^/\*-{75}\*\\\n(?:.*\n){7,8}(?:Arch.*\n)?Exec +: \S*icoFoam",
        read_foam,
        compare("clock_time", r"ClockTime = (\S+)", last=True),
    ),
    "mdtest": Outside(r"^-- started at ", ior.parse_mdtest, compare_mdtest),
    "IOR": Outside(r'^\{\s*"Version": "\d', ior.parse, compare("write", r'"bwMiB": ([\d.]+)', 1.048576)),
    "fio": Outside(r'^\{\s*"fio version"', fio.parse, compare_fio),
    "pgbench": Outside(r"^pgbench \(", pgbench.parse, compare("rate", r"^tps = (\S+)")),
    "stress-ng": Outside(r"^---\nsystem-info:", stress_ng.parse, compare("time", r"wall-clock-time: (\S+)")),
    "mpiP": Outside(r"^@ mpiP$", mpip.parse, compare_mpip),
}
_ANY = re.compile(
    rb"# OSU |STREAM version|HPLinpack|DARPA/DOE|LAMMPS \(|taskid: 0|starting wrf|Charm\+\+|SU3 with|"
    rb"NAS Para|icoFoam|-- started at|\"Version\": |\"fio version\"|pgbench \(|stress-ng-version|@ mpiP"
)


def list_files(snapshot: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the files of a directory, or of the HEAD of a git repository."""
    if not (snapshot / "HEAD").is_file():
        for path in sorted(snapshot.rglob("*")):
            if path.is_file() and ".git" not in path.parts and path.stat().st_size <= LARGEST_BYTES:
                yield str(path.relative_to(snapshot)), path.read_bytes()
        return
    environment = os.environ | {"GIT_NO_LAZY_FETCH": "1"}
    git = ["git", "-C", str(snapshot)]
    tree = subprocess.run([*git, "ls-tree", "-r", "-l", "-z", "HEAD"], capture_output=True, env=environment)
    entries = [entry.split("\t", 1) for entry in tree.stdout.decode(errors="replace").split("\0") if entry]
    with subprocess.Popen(
        [*git, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as blobs:
        assert blobs.stdin
        assert blobs.stdout
        for about, name in entries:
            _, _, blob, size = about.split()
            if not size.isdigit() or int(size) > LARGEST_BYTES:
                continue
            blobs.stdin.write(f"{blob}\n".encode())
            blobs.stdin.flush()
            if b"missing" not in blobs.stdout.readline():
                yield name, blobs.stdout.read(int(size) + 1)[:-1]
        blobs.stdin.close()


def find_outputs(text: str) -> Iterator[tuple[str, str]]:
    """Yield program and text of each output, from its first line on."""
    for name, program in PROGRAMS.items():
        starts = [match.start() for match in re.finditer(program.begin, text, re.MULTILINE)]
        if (name == "NAMD" and "Info: NAMD" not in text) or (name == "HPL" and "DARPA/DOE" in text):
            continue
        # Of other programs a check has all that the file has.
        if name not in ("OSU", "NPB"):
            starts = starts[:1]
        for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
            output = re.split(_AFTER, text[start:end], maxsplit=1, flags=re.MULTILINE)[0]
            yield name, output if name == "OSU" or start == 0 else text[start:end]


def decide(name: str, output: str) -> str:
    """Return ``accepted``, ``WRONG`` with both numbers, or the reason of a refusal without its numbers."""
    program = PROGRAMS[name]
    try:
        run = program.read(output)
    except OutputError as error:
        reason = re.sub(r"; (?:the closest|no line is).*", "", str(error).partition(" output: ")[2])
        return "refused: " + re.sub(r"'[^']*'|\(lines.*?\)|-?\d+(?:[.:_-]\d+)*", "#", reason)[:100]
    for ours, plain in program.plain(output, run):
        if not math.isclose(ours, plain, rel_tol=1e-3):
            return f"WRONG: {ours:g}, plainly {plain:g}"
    return "accepted"


def show(decisions: dict[tuple[str, str], str]) -> None:
    """Print the counts by program, then the reasons."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for (_, name), decision in decisions.items():
        counts[name][decision] += 1
    print(
        "| program | outputs | accepted, equal to a plain read | refused | wrong |\n|---|---:|---:|---:|---:|"
    )
    for name, reasons in counts.items():
        accepted = reasons["accepted"]
        wrong = sum(count for reason, count in reasons.items() if reason.startswith("WRONG"))
        print(f"| {name} | {reasons.total()} | {accepted} | {reasons.total() - accepted - wrong} | {wrong} |")
    for name, reasons in counts.items():
        for reason, count in reasons.most_common():
            if reason != "accepted":
                print(f"{count:6} {name}: {reason}")


def show_changes(old: Path, new: Path) -> None:
    """Print how often each decision became another one."""
    read = [dict(line.split("\t") for line in path.read_text().splitlines()) for path in (old, new)]
    changes = Counter(
        (key.rpartition(" ")[2], read[0].get(key, "not found"), read[1].get(key, "not found"))
        for key in read[0].keys() | read[1].keys()
    )
    for (name, before, after), count in sorted(changes.items()):
        if before != after:
            print(f"{count:6} {name}: {before}\n       -> {after}")


def main() -> None:
    """Read snapshots, or compare two lists of decisions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("snapshots", nargs="*", type=Path)
    parser.add_argument("--decisions", type=Path, help="file for the decision on each output")
    parser.add_argument("--changes", nargs=2, type=Path, metavar=("OLD", "NEW"))
    arguments = parser.parse_args()
    if arguments.changes:
        show_changes(*arguments.changes)
        return
    decisions: dict[tuple[str, str], str] = {}
    for snapshot in arguments.snapshots:
        for file, content in list_files(snapshot):
            if file.endswith(_NOT_OUTPUTS) or not _ANY.search(content) or b"\0" in content[:1000]:
                continue
            for place, (name, output) in enumerate(find_outputs(content.decode(errors="replace"))):
                decisions[f"{snapshot.parent.name}/{file}#{place}", name] = decide(name, output)
    show(decisions)
    if arguments.decisions:
        lines = (f"{place} {name}\t{decision}\n" for (place, name), decision in decisions.items())
        arguments.decisions.write_text("".join(lines))
    sys.exit(any(decision.startswith("WRONG") for decision in decisions.values()))


if __name__ == "__main__":
    main()
