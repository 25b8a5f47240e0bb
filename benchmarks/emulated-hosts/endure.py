"""Do emulated hosts hold?  Runs MPI on them, native and in their guests, for an hour, and counts what fails.

    vcluster up --hosts emulated
    python benchmarks/emulated-hosts/endure.py [--seconds 3600] [--out FILE]

Each run is LAMMPS (lj, 10 steps) on all CPUs of a node or on two nodes, or a ping-pong of NetPIPE between
two, native and virtual in turn.  A line of JSON is printed for each; the end states runs, failures, and the
hosts and VMs that were lost meanwhile.  It ends with 1 if there were any.
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

STEPS = 10
# Ranks that wait for small messages make system calls all the time: what interrupts them shows there.
PING_PONG = ("-l", "1", "-u", "1024", "-p", "0", "-n", "20", "-o", "netpipe.out")


def one_run(program: manifest.Program, side: str, nodes: int, ranks: int, folder: Path) -> dict[str, object]:
    """Run LAMMPS or NetPIPE once; return what became of it."""
    lammps = program.name == "lammps"
    began = time.monotonic()
    environment = {**os.environ, **program.env, "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
    line = [
        str(StateDirectory.default().bin / "srun"),
        f"--partition={side}",
        f"--nodes={nodes}",
        f"--ntasks={ranks}",
        "--time=5",
        "--licenses=host:1",
    ]
    line += [*program.launch, str(program.path), *(("-in", "in.lj", "-log", "none") if lammps else PING_PONG)]
    try:
        ended = subprocess.run(
            line, capture_output=True, text=True, cwd=folder, env=environment, timeout=400, check=False
        )
        code, said = ended.returncode, ended.stdout + ended.stderr
    except subprocess.TimeoutExpired:
        code, said = -1, "srun did not end within 400 s"
    loop = re.search(rf"Loop time of ([\d.]+) on {ranks} procs for {STEPS} steps", said)
    sound = loop is not None if lammps else code == 0
    return {
        "at": round(time.time(), 1),
        "program": program.name,
        "side": side,
        "nodes": nodes,
        "loop_s": float(loop[1]) if loop else None,
        "wall_s": round(time.monotonic() - began, 2),
        "sound": sound,
        **({} if sound else {"exit_code": code, "said": said[-300:]}),
    }


def lost(directory: StateDirectory) -> list[str]:
    """Return what the cluster's supervisor has noted of hosts that ended, and hosts of their VMs."""
    lines = (directory.logs / "supervisor.log").read_text(encoding="utf-8").splitlines()
    found = [line for line in lines if '"lost"' in line]
    for file in sorted(directory.logs.glob("host*.console")):
        said = file.read_text(encoding="utf-8", errors="replace").splitlines()
        found += [f"{file.stem}: {line}" for line in said if re.search(r"VM \w+ ended", line)]
    return found


def main() -> int:
    """Run until the time is over."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--out", type=Path, help="file that the lines are appended to, too")
    asked = parser.parse_args()
    directory = StateDirectory.default()
    state = cluster.load_running(directory)
    partitions = (state.partitions.native, state.partitions.virtual)
    cpus = min(partition.cpus_per_node for partition in partitions)
    programs = [program for stack in manifest.load_all(paths.stacks()) for program in stack.programs]
    program, netpipe = (next(one for one in programs if one.name == name) for name in ("lammps", "netpipe"))
    folder = state.shared / "endure"
    folder.mkdir(exist_ok=True)
    lj = (Path(program.data["bench"]) / "in.lj").read_text(encoding="utf-8")
    (folder / "in.lj").write_text(re.sub(r"^run.*", f"run {STEPS}", lj, flags=re.MULTILINE), encoding="utf-8")
    began, runs = time.monotonic(), []
    # Two hosts may share the CPUs of this machine: ranks that poll for messages then wait for each other.
    kinds = [(program, nodes) for nodes in (1, 2)[: len(state.hosts)]]
    kinds += [(netpipe, 2)] * (len(state.hosts) > 1)
    for (which, nodes), side in itertools.cycle(itertools.product(kinds, ("native", "virtual"))):
        if time.monotonic() - began > asked.seconds:
            break
        runs.append(one_run(which, side, nodes, cpus if nodes == 1 else nodes, folder))
        print(line := json.dumps(runs[-1]), flush=True)
        if asked.out:
            with asked.out.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
    failed, gone = [run for run in runs if not run["sound"]], lost(directory)
    print(f"{len(runs)} runs in {time.monotonic() - began:.0f} s, {len(failed)} failed, {len(gone)} lost")
    for nodes in (1, 2):
        sound = [run for run in runs if run["nodes"] == nodes and run["loop_s"]]
        times = {
            side: [run["loop_s"] for run in sound if run["side"] == side] for side in ("native", "virtual")
        }
        if all(times.values()):
            ratio = statistics.median(times["virtual"]) / statistics.median(times["native"])
            print(f"{nodes} node(s): loop in the guests {ratio:.2f} times that on the hosts (medians)")
    print(*gone, sep="\n", end="")
    return 1 if failed or gone else 0


if __name__ == "__main__":
    sys.exit(main())
