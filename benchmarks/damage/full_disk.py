"""A session is concluded on a file system that has so much room: what is said, and what is left.

    python benchmarks/damage/full_disk.py [--most 200] [--step 4]

Needs root, for a file system of its own in a private mount namespace. The session is concluded for the first
time, or again after it was resumed, in which case documents of the first time are there. Afterwards there is
room, and the next session ends what is left.
"""

from __future__ import annotations

import argparse
import errno
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
from virtqual.session.summary import Summary, file_of

DOCUMENTS = (DOCUMENT, "junit.xml", "report.html")
SIZE_KIB = 1024


def fill(directory: Path, free_kib: int) -> Path:
    """Write a file that leaves so much room."""
    filler, status = directory / "filler", os.statvfs(directory)
    size = status.f_bavail * status.f_frsize - free_kib * 1024
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    return filler


def is_whole(file: Path) -> bool:
    """Return whether a document is one that was written to its end."""
    content = file.read_text("utf-8")
    if file.suffix == ".xml":
        try:
            ET.fromstring(content)
        except ET.ParseError:
            return False
    return content.rstrip().endswith(("}", ">"))


def experiment(free_kib: int, *, again: bool) -> list[str]:
    """Return what is said, what is left, and what the next session makes of it."""
    state = paths.state()
    sessions = paths.make(paths.sessions())
    directory = make_session("kvm-within", sessions)
    log, old = Log(directory), {}
    if again:
        conclude_session(directory)
        log.reopen()
        log.append(Resumed(resumption=Resumption(time=datetime.now(UTC).isoformat(), ended="a test")))
        old = {name: (directory / name).read_bytes() for name in DOCUMENTS[1:]}
    runs, lines = log.session().runs, log.path.read_bytes()
    filler = fill(state, free_kib)
    try:
        conclude_session(directory)
        result = "concluded"
    except VirtqualError as error:
        result = f"{type(error).__name__}, {error.exit_code}"
    except OSError as error:
        # Commands say it with the file that it names, and end with 5.
        name = Path(error.filename or "-").name
        result = f"{errno.errorcode[error.errno or 0]} {name}"
    session = load(directory)
    # What was there is there, and the runs are the same.
    wrong = session.runs != runs or not log.path.read_bytes().startswith(lines)
    allowed = {LOG, *DOCUMENTS}
    stray = [file.name for file in directory.iterdir() if file.name not in allowed]
    documents = []
    for name in DOCUMENTS:
        file = directory / name
        if not file.exists():
            documents.append("none")
        elif file.read_bytes() == old.get(name):
            documents.append("old")
        else:
            documents.append("new" if is_whole(file) else "HALF")
    if file_of(directory).exists():
        Summary.model_validate_json(file_of(directory).read_bytes())
    before = session.outcome
    filler.unlink()
    leftovers.cancel = lambda jobs: list(jobs)  # type: ignore[assignment]
    list(leftovers.end_leftovers(session.system))
    after = load(directory)
    if before != "UNFINISHED" and after.outcome != before:
        wrong = True
    files = {name: directory / name for name in DOCUMENTS}
    left = {name: file.read_bytes() for name, file in files.items() if file.exists()}
    write_documents(log, after)
    outdated = [name for name, file in files.items() if file.read_bytes() != left.get(name)]
    for file in directory.iterdir():
        file.unlink()
    directory.rmdir()
    file_of(directory).unlink(missing_ok=True)
    return [
        *(result, before, " ".join(documents), ", ".join(stray) or "none", "WRONG" if wrong else "right"),
        after.outcome,
        f"{', '.join(outdated)} missing or old" if outdated else "new",
    ]


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
        return subprocess.run(
            ["unshare", "-m", sys.executable, *sys.argv, "--inside"], check=False
        ).returncode
    failed = False
    with tempfile.TemporaryDirectory() as state:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SIZE_KIB}k,mode=0755", "tmpfs", state], check=True
        )
        os.environ["VIRTQUAL_STATE"] = state
        for again in (False, True):
            print(f"\nConcluded {'again, after a resumption' if again else 'for the first time'}:\n")
            rows = [
                (free, experiment(free, again=again)) for free in range(0, options.most + 1, options.step)
            ]
            table = []
            for result, group in groupby(rows, key=lambda row: row[1]):
                free = [free for free, _ in group]
                table.append([f"{free[0]} to {free[-1]}", *result])
                failed |= "HALF" in result[2] or "WRONG" in result
            print_table(
                [
                    *("KiB free", "said", "outcome in the log", "session.json, junit.xml, report.html"),
                    *("stray files", "runs and lines before", "outcome after the next session", "documents"),
                ],
                table,
            )
        subprocess.run(["umount", state], check=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
