"""The sealed logs of the sessions that `ci/evidence` has run, kept so that anybody can judge them again."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virtqual.files.records import write_file
from virtqual.qualify.checking import judge_again
from virtqual.session.log import LOG
from virtqual.session.packed import SUFFIX, unpack
from virtqual.session.store import load

LOGS = Path(__file__).parent / "logs"
#: How large all logs may be together, compressed.
MAX_LOGS_BYTES = 20 * 10**6


@dataclass(frozen=True)
class KeptLog:
    """A log that is kept, and what its runs come to by today's code."""

    line: Mapping[str, Any]
    outcome: str
    exit_code: int

    @property
    def is_as_recorded(self) -> bool:
        """Today's code gives the outcome of the line."""
        return (self.outcome, self.exit_code) == (self.line["outcome"], self.line["exit_code"])


def keep(directory: Path, logs: Path = LOGS) -> bool:
    """Keep the log of a session; return whether there is still room for it."""
    packed = gzip.compress((directory / LOG).read_bytes(), mtime=0)
    if sum(file.stat().st_size for file in logs.glob(f"*{SUFFIX}")) + len(packed) > MAX_LOGS_BYTES:
        print(
            f"== the log of {directory.name} is not kept: {logs} has {MAX_LOGS_BYTES // 10**6} MB", flush=True
        )
        return False
    logs.mkdir(exist_ok=True)
    write_file(packed, logs / f"{directory.name}{SUFFIX}")
    return True


def find_problems(lines: Sequence[Mapping[str, Any]], logs: Path = LOGS) -> Iterator[str]:
    """Yield which kept logs are not those that the results are of."""
    digests = {line.get("session"): line.get("log") for line in lines}
    for file in sorted(logs.glob(f"*{SUFFIX}")):
        expected = digests.get(file.name.removesuffix(SUFFIX))
        if expected is None:
            yield f"{file}: no result is of this session"
        elif hashlib.sha256(gzip.decompress(file.read_bytes())).hexdigest() != expected:
            yield f"{file}: its SHA-256 is not the one in the results"


def judge_all(lines: Sequence[Mapping[str, Any]], logs: Path = LOGS) -> list[KeptLog]:
    """Judge the kept logs again by today's code and references, in the order of their results."""
    kept = []
    for line in lines:
        file = logs / f"{line.get('session')}{SUFFIX}"
        if file.is_file():
            directory = unpack(file)
            session = load(directory)
            again = judge_again(session, directory)
            kept.append(KeptLog(line, again.outcome, again.exit_code))
    return kept
