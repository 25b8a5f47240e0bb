"""Run MPI on emulated hosts, natively and in their guests, for an hour, and count failures.

    python benchmarks/lab/endure.py [--seconds 3600]

The cluster is brought up with emulated hosts unless it is up.  Each run is LAMMPS (lj, 10 steps) on all CPUs
of a node or on two nodes, or a ping-pong of NetPIPE between two nodes, native and virtual in turn.  Each run
prints a line of JSON; the last lines state runs, failures, and lost hosts and VMs.  The exit code is 1 if a
run failed or a host was lost.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from vcluster import cluster
from vcluster.directory import StateDirectory
from virtqual import paths
from virtqual.stack import manifest
from virtqual.verdict.pairs import SIDES

STEPS = 10
# Ranks that wait for small messages make system calls all the time, which shows faults of interrupts.
PING_PONG = ["-l", "1", "-u", "1024", "-p", "0", "-n", "20", "-o", "netpipe.out"]


def run_program(
    program: manifest.Program, side: str, nodes: int, ranks: int, folder: Path
) -> dict[str, object]:
    """Run LAMMPS or NetPIPE once; return its line of JSON."""
    is_lammps = program.name == "lammps"
    began = time.monotonic()
    environment = {**os.environ, **program.env, "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
    options = f"--partition={side} --nodes={nodes} --ntasks={ranks} --time=5 --licenses=host:1".split()
    line = [str(StateDirectory.default().bin / "srun"), *options, *program.launch, str(program.path)]
    line += ["-in", "in.lj", "-log", "none"] if is_lammps else PING_PONG
    try:
        ended = subprocess.run(
            line, capture_output=True, text=True, cwd=folder, env=environment, timeout=400, check=False
        )
        code, output = ended.returncode, ended.stdout + ended.stderr
    except subprocess.TimeoutExpired:
        code, output = -1, "srun did not end within 400 s"
    loop = re.search(rf"Loop time of ([\d.]+) on {ranks} procs for {STEPS} steps", output)
    is_sound = loop is not None if is_lammps else code == 0
    return {
        "at": round(time.time(), 1),
        "program": program.name,
        "side": side,
        "nodes": nodes,
        "loop_s": float(loop[1]) if loop else None,
        "wall_s": round(time.monotonic() - began, 2),
        "sound": is_sound,
        **({} if is_sound else {"exit_code": code, "output": output[-300:]}),
    }


def list_losses(directory: StateDirectory) -> list[str]:
    """Return the lines of the supervisor about lost hosts, and of hosts about lost VMs."""
    lines = (directory.logs / "supervisor.log").read_text(encoding="utf-8").splitlines()
    losses = [line for line in lines if '"lost"' in line]
    for console in sorted(directory.logs.glob("host*.console")):
        lines = console.read_text(encoding="utf-8", errors="replace").splitlines()
        losses += [f"{console.stem}: {line}" for line in lines if re.search(r"VM \w+ (died|ended)", line)]
    return losses


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3600.0)
    options = parser.parse_args()
    subprocess.run(["vcluster", "up", "--hosts", "emulated"], check=True)
    directory = StateDirectory.default()
    state = cluster.load_running(directory)
    cpus = min(state.partitions.native.cpus_per_node, state.partitions.virtual.cpus_per_node)
    programs = [program for stack in manifest.load_all(paths.stacks()) for program in stack.programs]
    lammps = next(program for program in programs if program.name == "lammps")
    netpipe = next(program for program in programs if program.name == "netpipe")
    folder = state.shared / "endure"
    folder.mkdir(exist_ok=True)
    lj = (Path(lammps.data["bench"]) / "in.lj").read_text(encoding="utf-8")
    (folder / "in.lj").write_text(re.sub(r"^run.*", f"run {STEPS}", lj, flags=re.MULTILINE), encoding="utf-8")
    start, runs = time.monotonic(), []
    cases = [(lammps, 1)]
    if len(state.hosts) > 1:
        # One rank a node: hosts may share CPUs, and ranks that poll for messages wait for each other.
        cases += [(lammps, 2), (netpipe, 2)]
    for (program, nodes), side in itertools.cycle(itertools.product(cases, SIDES)):
        if time.monotonic() - start > options.seconds:
            break
        runs.append(run_program(program, side, nodes, cpus if nodes == 1 else nodes, folder))
        print(json.dumps(runs[-1]), flush=True)
    failed, losses = [run for run in runs if not run["sound"]], list_losses(directory)
    print(f"{len(runs)} runs in {time.monotonic() - start:.0f} s, {len(failed)} failed, {len(losses)} lost")
    for nodes in (1, 2):
        timed_runs = [run for run in runs if run["nodes"] == nodes and run["loop_s"]]
        native = [run["loop_s"] for run in timed_runs if run["side"] == "native"]
        virtual = [run["loop_s"] for run in timed_runs if run["side"] == "virtual"]
        if native and virtual:
            ratio = statistics.median(virtual) / statistics.median(native)
            print(f"{nodes} node(s): loop in the guests {ratio:.2f} times that on the hosts (medians)")
    print(*losses, sep="\n", end="")
    return 1 if failed or losses else 0


if __name__ == "__main__":
    sys.exit(main())
