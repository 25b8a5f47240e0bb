"""Convert three public data sets of repeated runs to the files that `run.py --data` reads.

    python benchmarks/decision/convert_data.py DIR --cloudlab CLONE --mpi CLONE --azure CLONE

Each CLONE is a checkout of a repository that the README names; any of them may be left out. The files hold an
array for each series, in the order of time:

``cloudlab.npz``
    Key: date of the experiment, host, order (fixed or random), command (#column of its result), joined
    by ``|``. Shape (n_runs, 4): number of the run, start and end [1000 s], value.
``cloud_noise.npz``
    Key: archive, ``mpi_lat`` or ``mpi_bw``. Shape (n_means,): means of 500 neighbouring round trips of 1 B or
    16 MiB [us].
``azure_long_values.npz``
    Key: suite, test, region, size of the VM, unit, number of the VM. Shape (n_runs,): values of the 12 VMs
    that ran all the time.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

NEIGHBOURS = 500
MIN_MPI_BLOCKS = 100
MAX_MPI_ARCHIVE_BYTES = 4 * 2**20
MIN_AZURE_VALUES = 100
_OS_BENCHMARK = re.compile(r"-n (\d+) -d (\d+) -b (\w+) -t (\w+)")


def read_cloudlab(clone: Path) -> dict[str, np.ndarray]:
    """Read the runs that succeeded from a checkout of ordersage/paper-artifact."""
    rows = defaultdict(list)
    for path in sorted([*clone.glob("*/*_all_exp_results.csv"), *clone.glob("*/*_all_test_results.csv")]):
        date = path.name.removesuffix("_all_exp_results.csv").removesuffix("_all_test_results.csv")
        for run in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
            if run["completion_status"] != "Success":
                continue
            values = run["result"].split(",")
            command = name_command(run.get("exp_command") or run["test_command"])
            times = int(run["run_num"]), float(run["time_start"]), float(run["time_stop"])
            host = run["hostname"].partition(".")[0]
            for column, value in enumerate(values):
                metric = f"{command}#{column}" if len(values) > 1 else command
                rows["|".join((date, host, run["order_type"], metric))].append((*times, float(value)))
    return {key: np.array(sorted(runs)) for key, runs in rows.items()}


def name_command(command: str) -> str:
    """Return the name of a benchmark: socket, frequency scaling, program and threads, or its script.

    Examples
    --------
    >>> name_command("/bin/bash ~/scripts/run_cpu.sh -n 0 -d 1 -b bt -t MT -s 100 -u 200")
    '0-1-bt-MT'
    >>> name_command("./cmd_set_test.sh")
    'cmd_set_test.sh'
    """
    options = _OS_BENCHMARK.search(command)
    return "-".join(options.groups()) if options else command.removeprefix("./")


def read_mpi(clone: Path) -> dict[str, np.ndarray]:
    """Read the round trips of the smaller archives from a checkout of DanieleDeSensi/cloud_noise_data."""
    series = {}
    for path in sorted(clone.glob("*/*.tar.xz")):
        if path.stat().st_size >= MAX_MPI_ARCHIVE_BYTES:
            continue
        archive = f"{path.parent.name}/{path.name.removesuffix('.tar.xz')}"
        for metric, text in _read_round_trips(path):
            rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
            # The first round trip opens the connection; a last line may be cut off.
            times = np.array([float(row[1]) for row in rows if len(row) == 2][1:])
            blocks = len(times) // NEIGHBOURS
            if blocks >= MIN_MPI_BLOCKS:
                means = times[: blocks * NEIGHBOURS].reshape(blocks, NEIGHBOURS).mean(axis=1)
                series[f"{archive}|{metric}"] = means.astype(np.float32)
    return series


def _read_round_trips(archive: Path) -> Iterator[tuple[str, str]]:
    with tarfile.open(archive) as tar:
        for member in tar:
            name = re.fullmatch(r".*/ng_netnoise_(mpi_lat|mpi_bw)\.out", member.name)
            if name and (file := tar.extractfile(member)):
                yield name[1], file.read().decode()


def read_azure(clone: Path) -> dict[str, np.ndarray]:
    """Read the VMs that ran all the time from a checkout of Azure/AzurePublicDataset."""
    series = {}
    for path in sorted((clone / "vm-noise-data").glob("*/*/vm_lifespan=long/*/*/*.csv")):
        parts = [part.partition("=")[2] for part in path.with_suffix("").parts[-6:]]
        suite, test, _, region, size, unit = parts
        runs = defaultdict(list)
        for run in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
            runs[run["VM_id"]].append((run["starttime"], float(run["value"])))
        for vm, values in sorted(runs.items()):
            if len(values) >= MIN_AZURE_VALUES:
                in_time = [value for _, value in sorted(values, key=lambda run: run[0])]
                series["|".join((suite, test, region, size, unit, vm))] = np.array(in_time, np.float32)
    return series


READERS = {
    "cloudlab": ("cloudlab.npz", read_cloudlab),
    "mpi": ("cloud_noise.npz", read_mpi),
    "azure": ("azure_long_values.npz", read_azure),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path, help="where to write the files")
    for name in READERS:
        parser.add_argument(f"--{name}", type=Path, metavar="CLONE")
    options = parser.parse_args()
    for name, (file, read) in READERS.items():
        if clone := getattr(options, name):
            series = read(clone)
            if not series:
                sys.exit(f"{clone}: no series of --{name}; is this the checkout that the README names?")
            np.savez_compressed(options.directory / file, **series)
            print(f"{options.directory / file}: {len(series)} series")
    return 0


if __name__ == "__main__":
    sys.exit(main())
