"""Estimate what ``references/noise/default.yaml`` states, by family, from public series of repeated runs.

Nothing of the data is part of this project. A user clones one or more of

- https://github.com/Azure/AzurePublicDataset (folder ``vm-noise-data``; Freischuetz et al., EuroSys 2025): 12
  VMs that ran for 483 days, hours between runs, and 43,617 VMs that ran each program once;
- https://github.com/ordersage/paper-artifact (Duplyakin et al., USENIX ATC 2023): bare-metal hosts of
  CloudLab, rebooted before each run, so that neighbouring runs are neighbouring boots of one host;
- https://github.com/DanieleDeSensi/cloud_noise_data (De Sensi et al., SIGMETRICS 2022): MPI
  ping-pongs in supercomputers and clouds, of which 500 are taken as a run;
- https://github.com/Derek-Jones/ESEUR-code-data: an FFT after ten reboots of one host (Kalibera et al.,
  2005), and NPB EP on 2,386 processors of one cluster (Marathe et al., 2017)

and names their folders by ``--azure``, ``--cloudlab``, ``--mpi`` and ``--eseur``. The output is Markdown.
"""

from __future__ import annotations

import argparse
import csv
import io
import lzma
import re
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy import optimize, special

MAD_TO_SIGMA = 1.4826
MIN_RUNS = 40
RUNS_OF_MEAN = 500  # ping-pongs, about as long as a run of the OSU benchmarks
#: Families of the Azure programs, by suite, test and unit. The others have no counterpart in the catalogue,
#: run for microseconds (perf-bench memcpy), or are held by a rate limit (fio on the cloud's disks).
AZURE = {
    r"Memory_Latency_Checker.*Bandwidth": "memory",
    r"Memory_Latency_Checker.*Idle_Latency": "memory-latency",
    r"Stress-NG.*Matrix_Math|Sysbench.*CPU": "linpack",
    r"Stress-NG.*CPU_Stress": "application",
    r"OSBench.*(Create_Processes|Memory_Allocations|Launch_Programs)": "paging",
    r"PostgreSQL.*Clients:_25.*TPS": "service-peak",
    r"PostgreSQL.*ms$": "service-latency",
}
CLOUDLAB = {
    r"^stream$": "memory",
    r"^(cg|ft|is|mg)(\.D)?$": "npb-memory",
    r"^(bt|ep|lu|sp|ua)$": "application",
    r"^npBench": "kernel",
    r"^(ufs|ext4nj)": "storage",
    r"^(cmd_get|cmd_set|get_hits)": "service-peak",
}
MPI = {"lat": "mpi-latency", "bw": "mpi-bandwidth"}


@dataclass
class Found:
    """What one source shows of one family: an entry for each program and machine; fractions."""

    #: Robust and plain standard deviation of the log difference of neighbouring runs.
    robust: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    #: Standard deviation between boots, robust and plain.
    boots: list[float] = field(default_factory=list)
    boots_plain: list[float] = field(default_factory=list)

    def add_pairs(self, logs: np.ndarray) -> None:
        difference = np.diff(logs)[::2]
        self.robust.append(robust_sigma(difference))
        self.plain.append(float(difference.std()))

    def fit(self) -> tuple[float, float]:
        """Return sigma and its degrees of freedom over machines (Smyth 2004, section 6.2)."""
        logs = 2 * np.log(np.maximum(self.robust, 1e-4))
        spread = float(np.var(logs, ddof=1)) if len(logs) > 1 else 0.0
        if spread <= special.polygamma(1, 500.0):
            return float(np.exp(np.mean(logs) / 2)), 1000.0
        half = optimize.brentq(lambda x: special.polygamma(1, x) - spread, 1e-3, 1e4)
        return float(np.exp((np.mean(logs) + special.digamma(half) - np.log(half)) / 2)), 2 * half


def robust_sigma(values: np.ndarray) -> float:
    return float(MAD_TO_SIGMA * np.median(np.abs(values - np.median(values))))


def beyond(total: float, runs: float) -> float:
    """Return the standard deviation of one boot, by that of differences with and without another boot."""
    return float(np.sqrt(max(total**2 - runs**2, 0) / 2))


def family_of(name: str, families: dict[str, str]) -> str | None:
    return next((family for pattern, family in families.items() if re.search(pattern, name)), None)


def read_azure(path: Path) -> dict[str, np.ndarray]:
    """Return the logarithms of the values of each VM, in the order of time."""
    runs = defaultdict(list)
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["value"] and float(row["value"]) > 0:
                runs[row["VM_id"]].append((row["starttime"], float(row["value"])))
    return {vm: np.log([value for _, value in sorted(of_vm)]) for vm, of_vm in runs.items()}


def find_azure(directory: Path) -> Iterator[tuple[str, str, Found]]:
    """Yield family, SKU and region, and what is found, for each program."""
    for path in sorted(directory.glob("*/*/vm_lifespan=long/*/*/*.csv")):
        suite, test, _, region, sku, unit = (
            part.split("=", 1)[1] for part in path.with_suffix("").parts[-6:]
        )
        family = family_of(f"{suite} {test} {unit}", AZURE)
        short = Path(str(path).replace("vm_lifespan=long", "vm_lifespan=short"))
        if family is None or not short.exists():
            continue
        found = Found()
        for logs in read_azure(path).values():
            if len(logs) >= MIN_RUNS:
                found.add_pairs(logs)
        with short.open(encoding="utf-8") as file:
            rows = sorted(
                (row["starttime"], float(row["value"])) for row in csv.DictReader(file) if row["value"]
            )
        new = np.diff(np.log([value for _, value in rows if value > 0]))[::2]
        if found.robust:
            found.boots.append(beyond(robust_sigma(new), float(np.median(found.robust))))
            found.boots_plain.append(beyond(float(new.std()), float(np.median(found.plain))))
            yield family, f"Azure {sku} {region}", found


def find_cloudlab(directory: Path) -> Iterator[tuple[str, str, Found]]:
    """Yield what runs of one host show: the host was rebooted before each of them."""
    for path in sorted(directory.glob("*_results/*_all_[et]*_results.csv")):
        runs = defaultdict(list)
        with path.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                command = row.get("exp_command") or row["test_command"]
                program = re.search(r"-b (\w+)", command) or re.search(r"([\w.-]+)\.sh$", command)
                if program and row["completion_status"] == "Success":
                    values = [float(value) for value in row["result"].split(",")]
                    runs[program[1], row["order_type"]].append((int(row["run_num"]), values))
        for (program, _), of_program in runs.items():
            family = family_of(program, CLOUDLAB)
            found = Found()
            for logs in np.log([values for _, values in sorted(of_program)]).T:
                found.add_pairs(logs)
            # A boot and its run together: an upper bound of the boot.
            found.boots = [sigma / np.sqrt(2) for sigma in found.robust]
            found.boots_plain = [sigma / np.sqrt(2) for sigma in found.plain]
            if family:
                yield family, "CloudLab, one host, rebooted", found


def find_mpi(directory: Path) -> Iterator[tuple[str, str, Found]]:
    for path in sorted(directory.glob("*/*.tar.xz")):
        try:
            with tarfile.open(path) as archive:
                members = [member for member in archive if re.search(r"mpi_(lat|bw)\.out$", member.name)]
                texts = {member.name: archive.extractfile(member).read() for member in members}
        except (lzma.LZMAError, tarfile.TarError, EOFError):
            continue
        for name, text in texts.items():
            values = np.loadtxt(io.BytesIO(text), usecols=-1, ndmin=1) if text.strip() else np.empty(0)
            values = values[values > 0]
            count = len(values) // RUNS_OF_MEAN
            if count < MIN_RUNS:
                continue
            found = Found()
            found.add_pairs(np.log(values[: count * RUNS_OF_MEAN].reshape(count, -1).mean(axis=1)))
            yield MPI[re.search(r"mpi_(lat|bw)", name)[1]], "MPI, one allocation", found


def find_eseur(directory: Path) -> Iterator[tuple[str, str, Found]]:
    with lzma.open(directory / "benchmark" / "fft-10.csv.xz", "rt") as file:
        boots = np.log(np.loadtxt(file, delimiter=",", skiprows=1)).T
    found = Found()
    for boot in boots:
        found.add_pairs(boot)
    levels = np.median(boots, axis=1)
    found.boots, found.boots_plain = [robust_sigma(levels)], [float(levels.std(ddof=1))]
    yield "kernel", "FFT, one host, rebooted", found
    with lzma.open(directory / "benchmark" / "marathe.csv.xz", "rt") as file:
        rows = list(csv.DictReader(file))
    for watts in (65, 115):
        found = Found()
        seconds = np.log(
            [float(row[f"secs{watts}"]) for row in rows if row[f"secs{watts}"] not in ("", "NA")]
        )
        found.boots, found.boots_plain = [robust_sigma(seconds)], [float(seconds.std(ddof=1))]
        yield "linpack", f"NPB EP, 2,386 processors, {watts} W", found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    finders = {"azure": find_azure, "cloudlab": find_cloudlab, "mpi": find_mpi, "eseur": find_eseur}
    for name in finders:
        parser.add_argument(f"--{name}", type=Path, metavar="DIR")
    options = vars(parser.parse_args())
    sources: dict[tuple[str, str], Found] = defaultdict(Found)
    for name, find in finders.items():
        for family, source, found in find(options[name]) if options[name] else ():
            for part in vars(found):
                getattr(sources[family, source], part).extend(getattr(found, part))
    print(
        "| family | source | series | pair, robust: median; 90 % | plain | sigma, df over machines |"
        " boots, robust: median (range) | plain |\n|---|---|---|---|---|---|---|---|"
    )
    for (family, source), found in sorted(sources.items()):
        print(describe(family, source, found))


def describe(family: str, source: str, found: Found) -> str:
    """Return a row of the table, in per cent."""
    cells = [family, source, str(len(found.robust) or "")]
    if found.robust:
        sigma, df = found.fit()
        robust, plain = 100 * np.array(found.robust), 100 * np.array(found.plain)
        cells += [f"{np.median(robust):.2f}; {np.quantile(robust, 0.9):.2f}"]
        cells += [f"{np.median(plain):.2f}; {np.quantile(plain, 0.9):.2f}", f"{100 * sigma:.2f}, {df:.1f}"]
    else:
        cells += [""] * 3
    if found.boots:
        boots, plain = 100 * np.array(found.boots), 100 * np.array(found.boots_plain)
        cells += [f"{np.median(boots):.2f} ({boots.min():.2f} to {boots.max():.2f})"]
        cells += [f"{np.median(plain):.2f} ({plain.min():.2f} to {plain.max():.2f})"]
    else:
        cells += [""] * 2
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
