"""Every cut of three recorded logs: the whole lines before it are read, and the next writer goes on.

python benchmarks/damage/cuts.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from recorded import make_session, print_table

from virtqual.errors import UsageError
from virtqual.session.log import LOG, Event, Failed, Finished, Log, Submitted

NEXT = Submitted(job="next", case="case", submitted=5.0)


def result_of(log: Log, events: list[Event], whole: int) -> str:
    """Return what is read of a log that is cut after so many whole lines, before and after the next line."""
    try:
        session = log.session()
    except UsageError:
        return "wrong" if whole else "no session"
    runs = [event.run for event in events[:whole] if isinstance(event, Finished)]
    failures = [event.failure for event in events[:whole] if isinstance(event, Failed)]
    if session.runs != sorted(runs, key=lambda run: run.start) or session.failures != failures:
        return "wrong"
    Log(log.directory).append(NEXT)
    return "right" if list(log.events()) == [*events[:whole], NEXT] else "next line wrong"


def main() -> int:
    """Print the table."""
    results = ("no session", "right", "wrong", "next line wrong", "traceback")
    failed = 0

    def rows():
        nonlocal failed
        for name in ("kvm-within", "kvm-over", "emulated-vm-died"):
            with tempfile.TemporaryDirectory() as sessions:
                log = Log(make_session(name, Path(sessions)))
                content, events = log.path.read_bytes(), list(log.events())
                counts = dict.fromkeys(results, 0)
                for cut in range(len(content) + 1):
                    (log.directory / LOG).write_bytes(content[:cut])
                    try:
                        counts[result_of(log, events, content.count(b"\n", 0, cut))] += 1
                    except Exception as error:
                        print(f"{name}, byte {cut}: {type(error).__name__}: {error}", file=sys.stderr)
                        counts["traceback"] += 1
                failed += sum(counts[result] for result in results[2:])
                yield [name, len(content) + 1, *counts.values()]

    print_table(["log", "cuts", *results], rows())
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
