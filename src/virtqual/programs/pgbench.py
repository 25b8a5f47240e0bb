"""pgbench of PostgreSQL 15 and later: a closed loop, or transactions at intended times with their log."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from virtqual.programs.offered import DROPPED_S, OfferedLoad
from virtqual.programs.text import (
    OutputError,
    ProgramName,
    find_all,
    number,
    positive,
    refuse_lines,
    single,
    whole_number,
)

NAME = ProgramName("pgbench", "PostgreSQL 15 and later")
_OLDEST = 15
# Such as 16.2, 19beta4 or 20devel; packages add their own in brackets.
_VERSION = r"\A^pgbench \(((\d+)(?:\.\d+)*(?:(?:devel|alpha|beta|rc)\d*)?)(?![\w.]).*\)$"
_THREAD = re.compile(r"(?:\d{1,18} \d{1,18} \d{1,18} 0 \d{1,18} \d{1,6} \d{1,18}\n)+", re.ASCII)
_ABORTED = r"^pgbench: (?:error|fatal):|Run was aborted"
_STEP_MS = 0.0006
"""More than half of the last digit of a printed time."""
# It was below 0.01 in what other people posted.
_OWN_TIME = 0.2
"""Most of a client's time that pgbench itself takes."""
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class PgbenchRun:
    """One load; `rate` is transactions a second, `offered` None for a closed loop."""

    version: str
    script: str
    scale: int
    mode: str
    clients: int
    threads: int
    seconds: int
    transactions: int
    rate: float
    offered: OfferedLoad | None


def _read_version(head: str) -> str:
    """Return the version; raise OutputError if it is one that does not count failed transactions."""
    version = single(NAME, _VERSION, head, "version")
    if int(version[2]) < _OLDEST:
        raise OutputError(
            NAME, f"version {version[1]} does not count failed transactions: use {NAME.versions}"
        )
    return version[1]


def parse(text: str) -> PgbenchRun:
    """Read what pgbench printed, the CPU time of its process, and the log of each of its threads."""
    head, *logs = text.split("thread\n")
    refuse_lines(NAME, _ABORTED, head)
    version = _read_version(head)
    mode = single(NAME, r"^query mode: (\w+)$", head, "query mode")[1]
    script = single(NAME, r"^transaction type: (.+)$", head, "transaction type")[1]
    single(NAME, r"^number of failed transactions: 0 \(0\.000%\)$", head, "line without failed transactions")
    counts = {
        name: whole_number(NAME, single(NAME, rf"^{label}: (\S+?){unit}$", head, label)[1], label)
        for name, label, unit in (
            ("scale", "scaling factor", ""),
            ("clients", "number of clients", ""),
            ("threads", "number of threads", ""),
            ("seconds", "duration", " s"),
            ("transactions", "number of transactions actually processed", ""),
        )
    }
    printed = single(NAME, r"^tps = (\S+) \(without initial connection time\)$", head, "tps")[1]
    rate = positive(NAME, printed, "tps")
    # The last transactions, and connecting, take time beside the load's.
    expected = rate * counts["seconds"]
    if not expected / 2 < counts["transactions"] < expected * 2:
        raise OutputError(
            NAME,
            f"{counts['transactions']} transactions in {counts['seconds']} s are not {printed} a second",
        )
    cpu = single(NAME, r"^client (\d+\.\d{3}) (\d+\.\d{3})$\s*\Z", head, "last line, CPU time")
    offered = None
    if logs:
        if len(logs) != counts["threads"]:
            raise OutputError(NAME, f"logs of {len(logs)} threads, {counts['threads']} were to run")
        cores = sum(map(float, cpu.groups())) / counts["seconds"] / counts["threads"]
        offered = _read_offered(head, logs, counts["transactions"], cores)
    elif find_all("^rate limit", head):
        raise OutputError(NAME, "the log of its transactions is missing")
    else:
        _check_closed_loop(head, counts["clients"], rate)
    return PgbenchRun(version, script, mode=mode, rate=rate, offered=offered, **counts)


@dataclass(frozen=True)
class PgbenchRate:
    """Transactions a second of a closed loop, without the time of connecting."""

    script: str
    scale: int
    clients: int
    rate: float


def parse_rate(text: str) -> PgbenchRate:
    """Read what pgbench of any version printed, in which no transaction failed."""
    refuse_lines(NAME, _ABORTED, text)
    refuse_lines(NAME, r"^number of failed transactions: [1-9]", text)
    if find_all("^rate limit", text):
        raise OutputError(NAME, "with a rate limit (-R) its transactions a second are those that were asked")

    def find_value(label: str) -> str:
        return single(NAME, rf"^{label}: (.+)$", text, label)[1]

    pattern = r"^tps = (\S+) \((?:without initial connection time|excluding connections establishing)\)$"
    return PgbenchRate(
        find_value("transaction type"),
        whole_number(NAME, find_value("scaling factor"), "scaling factor"),
        whole_number(NAME, find_value("number of clients"), "number of clients"),
        positive(NAME, single(NAME, pattern, text, "tps")[1], "tps"),
    )


def _check_closed_loop(head: str, clients: int, rate: float) -> None:
    """Raise OutputError unless rate and latency keep all clients busy.

    pgbench takes one from the other, or measures the latency, without its own time between transactions.
    """
    printed = single(NAME, r"^latency average = (\S+) ms$", head, "mean latency")[1]
    latency = positive(NAME, printed, "mean latency")
    busy = rate * latency / 1000
    share = _OWN_TIME if find_all("^latency stddev", head) else 1e-3
    if abs(busy - clients) > (_STEP_MS / latency + share) * clients:
        raise OutputError(
            NAME, f"{rate:g} a second of {printed} ms keep {busy:.4g} of {clients} clients busy"
        )


def _read_offered(head: str, logs: list[str], transactions: int, cores: float) -> OfferedLoad:
    """Return the latencies of the transactions in the logs, which must be those that pgbench summed up."""
    threads = [_read_log(log) for log in logs]
    clients = [client for thread in threads for client in np.unique(thread[:, 0])]
    rows = np.concatenate(threads)
    if len(rows) != transactions or len(clients) != len(set(clients)):
        raise OutputError(NAME, f"{len(rows)} transactions in its log, {transactions} were processed")
    latency, lag = rows[:, 2] / 1000, rows[:, 5] / 1000
    for label, pattern, value in (
        ("mean latency", r"latency average = (\S+) ms", latency.mean()),
        ("standard deviation", r"latency stddev = (\S+) ms", latency.std()),
        ("mean lag", r"rate limit schedule lag: avg (\S+) \(max \S+\) ms", lag.mean()),
        ("largest lag", r"rate limit schedule lag: avg \S+ \(max (\S+)\) ms", lag.max()),
    ):
        printed = single(NAME, f"^{pattern}$", head, label)[1]
        # Sums of squares lose digits.
        if abs(number(NAME, printed, label) - value) > _STEP_MS + 1e-6 * latency.max():
            raise OutputError(NAME, f"{label} {printed} ms, by its log {value:.4f} ms")
    free = np.concatenate([_find_free(thread) for thread in threads])
    intended = rows[:, 3] * 10**6 + rows[:, 4] - rows[:, 2]
    counted = intended >= intended.min() + DROPPED_S * 1e6
    if not counted.any():
        raise OutputError(NAME, f"no transaction after the first {DROPPED_S:g} s")
    p50, p99 = np.quantile(latency[counted], (0.5, 0.99))
    own_lag = np.quantile(lag[counted & free], 0.99) if (counted & free).any() else 0.0
    return OfferedLoad(float(p50), float(p99), 100 * float(free[counted].mean()), float(own_lag), cores)


def _read_log(log: str) -> Counts:
    """Return the rows of a thread: client, number, latency and end (s, us) of a transaction, and its lag."""
    if not _THREAD.fullmatch(log):
        raise OutputError(NAME, "a line in the log of its transactions is broken")
    rows = np.array(log.split(), dtype=np.int64).reshape(-1, 7)[:, [0, 1, 2, 4, 5, 6]]
    for client in np.unique(rows[:, 0]):
        own = rows[rows[:, 0] == client]
        ends = own[:, 3] * 10**6 + own[:, 4]
        begins = ends - own[:, 2] + own[:, 5]
        if (own[:, 1] != np.arange(1, len(own) + 1)).any() or (begins[1:] < ends[:-1]).any():
            raise OutputError(NAME, f"transactions of client {client} are missing, or not in their order")
    return rows


def _find_free(rows: Counts) -> NDArray[np.bool_]:
    """Return whether each transaction of a thread found a free connection at its intended time.

    If it did and began late, the client is the cause. Else all connections waited for the server.
    """
    connections = len(np.unique(rows[:, 0]))
    ends = rows[:, 3] * 10**6 + rows[:, 4]
    intended = ends - rows[:, 2]
    begins = intended + rows[:, 5]
    begun = np.searchsorted(np.sort(begins), intended, "right") - (rows[:, 5] == 0)
    return np.asarray(begun - np.searchsorted(np.sort(ends), intended, "right") < connections)
