"""A session is concluded on a file system with little room: which documents are left?

    python benchmarks/damage/full_disk.py [--most 200] [--step 4]

Needs root, for a file system of its own in a private mount namespace. A session is concluded for the first
time, and again after a resumption, with the documents of the first time. Then there is room again, and the
next session ends it. The exit code is 1 if a document is half written,
a run is lost, or a stray file is left.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from recorded import conclude_session, make_session, print_table

from virtqual import paths
from virtqual.errors import VirtqualError
from virtqual.qualify import leftovers
from virtqual.qualify.concluding import write_documents
from virtqual.session.log import DOCUMENT, LOG, Log, Resumed
from virtqual.session.session import Resumption
from virtqual.session.store import load

DOCUMENTS = (DOCUMENT, "junit.xml", "report.html")
SIZE_KIB = 1024


def read_documents(directory: Path) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in DOCUMENTS if (directory / name).exists()}


def is_complete(name: str, content: bytes) -> bool:
    """Return whether a document was written to its end."""
    if name.endswith(".xml"):
        try:
            ET.fromstring(content)
        except ET.ParseError:
            return False
    return content.rstrip().endswith((b"}", b">"))


def run_experiment(state: Path, free_kib: int, *, is_resumed: bool) -> list[str]:
    """Return the error, the documents, and the state after the next session began."""
    directory = make_session("kvm-within", paths.make(paths.sessions()))
    log, earlier = Log(directory), {}
    if is_resumed:
        conclude_session(directory)
        log.reopen()
        log.append(Resumed(resumption=Resumption(time=datetime.now(UTC).isoformat(), ended="a test")))
        earlier = read_documents(directory)
    runs, lines = log.session().runs, log.path.read_bytes()
    filler, status = state / "filler", os.statvfs(state)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, status.f_bavail * status.f_frsize - free_kib * 1024)
    error = "none"
    try:
        conclude_session(directory)
    except (VirtqualError, OSError) as exception:
        # Commands report an OSError with its file, and end with 5.
        error = type(exception).__name__
    session, documents = load(directory), read_documents(directory)
    is_intact = session.runs == runs and log.path.read_bytes().startswith(lines)
    has_strays = {file.name for file in directory.iterdir()} - {LOG, *DOCUMENTS} != set()
    states = []
    for name in DOCUMENTS:
        content = documents.get(name)
        if content is None or content == earlier.get(name):
            states.append("none" if content is None else "old")
        else:
            states.append("new" if is_complete(name, content) else "HALF")
    filler.unlink()
    leftovers.cancel_jobs = list
    list(leftovers.end_leftovers(session.system))
    after = load(directory)
    is_intact = is_intact and session.outcome in ("UNFINISHED", after.outcome)
    ended = read_documents(directory)
    write_documents(log, after)
    is_current = ended == read_documents(directory)
    verdict = "intact" if is_intact and not has_strays else "WRONG"
    return [error, session.outcome, " ".join(states), verdict, after.outcome, "new" if is_current else "OLD"]


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--most", type=int, default=200)
    parser.add_argument("--step", type=int, default=4)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: only root can mount a file system")
        return 0
    if not options.inside:
        command = ["unshare", "-m", sys.executable, *sys.argv, "--inside"]
        return subprocess.run(command, check=False).returncode
    failures = 0
    for is_resumed in (False, True):
        rows = []
        for free_kib in range(0, options.most + 1, options.step):
            with tempfile.TemporaryDirectory() as state:
                mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_KIB}k,mode=0755", "tmpfs", state]
                subprocess.run(mount, check=True)
                os.environ["VIRTQUAL_STATE"] = state
                rows.append((free_kib, run_experiment(Path(state), free_kib, is_resumed=is_resumed)))
                subprocess.run(["umount", state], check=True)
        table = []
        for result, group in groupby(rows, key=lambda row: row[1]):
            rooms = [free_kib for free_kib, _ in group]
            table.append([f"{rooms[0]} to {rooms[-1]}", *result])
            failures += "HALF" in result[2] or "WRONG" in result
        print(f"\nConcluded {'again, after a resumption' if is_resumed else 'for the first time'}:\n")
        header = ("KiB free", "error", "outcome", " ".join(DOCUMENTS), "log", "outcome later", "documents")
        print_table(header, table)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
