"""Size of a log, and CPU seconds that commands and the start of a session take among 1,000 sessions.

    python benchmarks/damage/sizes.py [--sessions 1000] [--before CHECKOUT] [SESSION]

SESSION is a session's directory; by default, a recorded one is shown. Other sessions are copies of the
recorded session kvm-within, each with an id and a day of its own. CHECKOUT is of a commit to compare with,
e.g. from `git worktree add CHECKOUT 5b9d33d`; its own recorded session is copied there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from recorded import conclude_session, make_session, print_table, sealed

from virtqual import paths
from virtqual.session.log import LOG
from virtqual.session.seal import intact_lines

SYSTEM = "testsite"
#: What the start and the end of a session read of earlier sessions; runs under both versions.
START = f"""
import sys, time
from virtqual import paths
from virtqual.harness import limits
from virtqual.qualify import concluding, plan
from virtqual.session.log import Log
from virtqual.session.session import Request
from virtqual.session.store import find
session = Log(find("last", paths.sessions())).session()
for name, call in (
    ("concluding._slow_before", lambda: concluding._slow_before(session)),
    ("plan.earlier", lambda: plan.earlier(Request(system="{SYSTEM}"), "{SYSTEM}")),
    ("limits.choose_time_limit", lambda: limits.choose_time_limit("case", "{SYSTEM}", "x", 1, 2)),
):
    begin = time.process_time()
    call()
    print(f"{{name}} {{time.process_time() - begin}}")
"""
CONCLUDE = """
import sys
from pathlib import Path
from virtqual.qualify.concluding import concluded
from virtqual.session.log import Log
concluded(Log(Path(sys.argv[1])), None)
"""


def events_of(log: Path) -> dict[str, tuple[int, int]]:
    """Return number and bytes of the lines of a log by event."""
    counts, sizes = Counter[str](), Counter[str]()
    for line in log.read_bytes().splitlines(keepends=True):
        event = json.loads(line)["event"]
        counts[event] += 1
        sizes[event] += len(line)
    return {event: (counts[event], sizes[event]) for event in sizes}


def copy_session(directory: Path, number: int) -> None:
    """Copy a session, with its log of either version, to one of another day, without its summary."""
    day = datetime.now(UTC) - timedelta(days=number + 1)
    head = json.loads((directory / LOG).read_bytes().split(b"\n", 1)[0])["head"]
    name = f"{day:%Y%m%d-%H%M%S}-{SYSTEM}"
    changes = {head["session"].encode(): name.encode(), head["created"].encode(): day.isoformat().encode()}
    copy = directory.parent / name
    copy.mkdir()
    for file in directory.iterdir():
        if file.name in ("summary.json", "junit.xml", "report.html"):
            continue
        content = file.read_bytes()
        is_sealed = file.name == LOG and b'"crc":"' in content
        lines = [line for _, line in intact_lines(content, LOG)] if is_sealed else [content]
        for old, new in changes.items():
            lines = [line.replace(old, new) for line in lines]
        (copy / file.name).write_bytes(sealed(lines) if is_sealed else lines[0])


def seconds_of(command: list[str], environment: dict[str, str], times: int) -> tuple[float, str]:
    """Return the median of the CPU seconds that a command takes, and what it said."""
    spent = []
    for _ in range(times):
        begin = os.times()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        end = os.times()
        spent.append(sum(end[2:4]) - sum(begin[2:4]))
        if "Traceback" in done.stderr or done.returncode not in (0, 1, 3):
            raise RuntimeError(f"{command}: exit code {done.returncode}: {done.stderr[-2000:]}")
    return statistics.median(spent), done.stdout


def timed(checkout: Path, sessions: int) -> dict[str, float]:
    """Return the seconds that reading many sessions takes with the code of a checkout, by what is done."""
    with tempfile.TemporaryDirectory() as state:
        environment = {
            **os.environ,
            **{"VIRTQUAL_STATE": state, "VIRTQUAL_ROOT": str(checkout), "PYTHONPATH": str(checkout / "src")},
            "COLUMNS": "80",
        }
        directory = Path(state) / "sessions"
        directory.mkdir(mode=0o755)
        first = make_session("kvm-within", directory, checkout / "tests/sessions")
        python = sys.executable
        subprocess.run([python, "-c", CONCLUDE, str(first)], env=environment, check=True)
        for number in range(sessions):
            copy_session(first, number)
        for file in first.iterdir():
            file.unlink()
        first.rmdir()
        virtqual = [python, "-c", "from virtqual.cli import app; app()"]
        rows = {"`list`, first time": seconds_of([*virtqual, "list"], environment, 1)[0]}
        for command in ("list", "status"):
            rows[f"`{command}`"] = seconds_of([*virtqual, command], environment, 5)[0]
        starts: dict[str, list[float]] = {}
        for _ in range(5):
            for line in seconds_of([python, "-c", START], environment, 1)[1].splitlines():
                starts.setdefault(line.split()[0], []).append(float(line.split()[1]))
        rows |= {f"`{name}`": statistics.median(spent) for name, spent in starts.items()}
        size = sum(file.stat().st_size for file in directory.glob("*/log.jsonl"))
        documents = sum(file.stat().st_size for file in directory.glob("*/session.json"))
        return rows | {"logs, MB": size / 1e6, "session.json, MB": documents / 1e6}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("session", nargs="?", type=Path)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--before", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as state:
        os.environ["VIRTQUAL_STATE"] = state
        directory = options.session
        if directory is None:
            conclude_session(directory := make_session("kvm-within", paths.make(paths.sessions())))
        events = events_of(directory / LOG)
        rows = [[event, *numbers] for event, numbers in events.items()]
        total = [sum(column) for column in zip(*events.values(), strict=True)]
        print_table(["event", "lines", "B"], [*rows, ["total", *total]])
    if options.sessions:
        checkouts = [path for path in (options.before, paths.root()) if path]
        columns = [timed(path.resolve(), options.sessions) for path in checkouts]
        header = [f"CPU s, {options.sessions} sessions", *(["before"] if options.before else []), "now"]
        rows = [[name, *(f"{column[name]:.3g}" for column in columns)] for name in columns[-1]]
        print()
        print_table(header, rows)


if __name__ == "__main__":
    main()
