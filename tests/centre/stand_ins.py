"""The rehearsed centre's stack: stand-ins that take their time, and are as slow as is planted."""

import random
import shutil
from pathlib import Path

from virtqual.stack.manifest import Manifest, Program

HERE = Path(__file__).resolve().parent
FAKE = HERE.parent / "fakeslurm"
#: Stand-ins by their name in the stack.
PROGRAMS = {"lmp": "lmp", "stream": "stream", "stress-ng": "stress-ng", "osu_latency": "osu", "osu_bw": "osu"}


def write(site: Path, truth: dict, nodes: list[str]) -> None:
    """Set the stack up in a site directory, with what is planted."""
    stack = site / "stacks/rehearsed"
    (stack / "real").mkdir(parents=True, exist_ok=True)
    (stack / "bench").mkdir(exist_ok=True)
    (stack / "bench/in.lj").write_text("create_atoms 1 box\nrun 100\n", encoding="utf-8")
    for name, source in PROGRAMS.items():
        shutil.copy(FAKE / source, stack / "real" / name)
        shutil.copy(HERE / "program", stack / name)
    plant(site, truth, nodes)

    def program(name: str, file: str, version: str = "1", **data: Path) -> Program:
        fields = {"name": name, "version": version, "origin": "the tests", "features": (name,)}
        return Program.from_files(stack / file, data=data, **fields)

    osu = {name: stack / name for name in PROGRAMS if name.startswith("osu")}
    programs = (
        program("lammps", "lmp", bench=stack / "bench"),
        program("stream", "stream", "5.10"),
        program("stress-ng", "stress-ng", "0.15.06"),
        program("osu", "osu_latency", "7.4", **osu),
    )
    Manifest(name="rehearsed", programs=programs).write(stack)


def plant(site: Path, truth: dict, nodes: list[str]) -> None:
    """Write what is true of programs and nodes, for the programs to read."""
    drawn = random.Random(truth.get("seed", 1))
    lines = [f"seconds {truth['seconds']}", f"noise {truth['noise']}"]
    lines += [f"overhead {name} {factor}" for name, factor in truth.get("overhead", {}).items()]
    lines += [f"slow {name} {factor}" for name, factor in truth.get("slow", {}).items()]
    lines += [f"added {name} {more}" for name, more in truth.get("added", {}).items()]
    lines += [f"killed {name}" for name in truth.get("killed", [])]
    lines += [f"node {name} {drawn.gauss(0, truth.get('node_noise', 0)):.6f}" for name in nodes]
    (site / "stacks/rehearsed/truth").write_text("\n".join(lines) + "\n", encoding="utf-8")
