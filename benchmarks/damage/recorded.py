"""The recorded sessions, concluded by the present code, as experiments with damage start from them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from virtqual.qualify import concluding
from virtqual.session.log import LOG, Log
from virtqual.session.store import load

RECORDED = Path(__file__).parents[2] / "tests/sessions"
#: Sessions, each after the earlier session that it is compared with.
NAMES = (
    *("kvm-within", "kvm-over", "kvm-numa-hidden", "kvm-same-against", "kvm-slower-against"),
    *("emulated-baseline", "emulated-same-build", "emulated-vm-died"),
)


def make_session(name: str, sessions: Path) -> Path:
    """Write a recorded session below a directory of sessions; it is not concluded."""
    content = gzip.decompress((RECORDED / f"{name}.jsonl.gz").read_bytes())
    directory = sessions / str(json.loads(content.split(b"\n", 1)[0])["head"]["session"])
    directory.mkdir()
    (directory / LOG).write_bytes(content)
    return directory


def conclude_session(directory: Path) -> None:
    """Judge and conclude a session, and write its documents."""
    log = Log(directory)
    against = log.session().against
    concluding.conclude_session(log, load(directory.parent / against) if against else None)


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table in Markdown."""
    for row in (header, ["---", *["---:"] * (len(header) - 1)], *rows):
        print("|", " | ".join(map(str, row)), "|", flush=True)
