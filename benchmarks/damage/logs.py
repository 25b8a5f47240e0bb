"""Damaged and cut logs, and edits whose seals are computed again.

    python benchmarks/damage/logs.py [--physical 20000] [--edits 8000] [--seed 1] [--cuts]

Each damaged log is read, judged again and checked. A table shows the result of each kind of damage. With
``--cuts`` each cut of three logs is read, and the next line is appended. The exit code is 1 if a change was
silent, an edit made a session pass, a cut was read wrong, or an exception was no `VirtqualError`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import sys
import tempfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from recorded import NAMES, conclude_session, make_session, print_table

from virtqual import paths
from virtqual.errors import UsageError, VirtqualError
from virtqual.qualify.checking import check_session
from virtqual.qualify.drawing import draw_conclusion
from virtqual.report import junit, page
from virtqual.session.log import DOCUMENT, LOG, Event, Failed, Finished, Log, Submitted
from virtqual.session.seal import intact_lines, seal
from virtqual.session.session import Basis, Session
from virtqual.session.store import load
from virtqual.session.summary import file_of, summary
from virtqual.verdict.rule import LOOKS

Lines = list[dict[str, Any]]
RESULTS = (
    *("refused by number", "refused by another number", "refused", "exact prefix", "same"),
    *("no number or claim changed", "reported by check", "noted by check", "follows from edited runs"),
    *("PASS", "SILENT", "TRACEBACK"),
)
WORKERS = 2


class Original(NamedTuple):
    """A session before it is damaged."""

    directory: Path
    content: bytes
    document: bytes
    events: list[Event]
    session: Session


# -- damage by disks, file systems and writers ----------------------------------------------------------


def change_byte(rng: random.Random, content: bytes, change: Callable[[random.Random, int], int]) -> bytes:
    place = rng.randrange(len(content))
    return content[:place] + bytes([change(rng, content[place])]) + content[place + 1 :]


def change_match(rng: random.Random, content: bytes, pattern: bytes, new: Callable[[], bytes]) -> bytes:
    match = rng.choice(list(re.finditer(pattern, content)))
    return content[: match.start()] + new() + content[match.end() :]


def change_parts(rng: random.Random, content: bytes, kind: str, change: str) -> bytes:
    """Change one line, or one block of a disk or file system."""
    size = rng.choice((512, 4096))
    parts = [content[place : place + size] for place in range(0, len(content), size)]
    if kind == "line":
        parts = content.splitlines(keepends=True)
    first, second = rng.sample(range(len(parts)), 2)
    part = parts[first]
    if change == "swapped":
        parts[first], parts[second] = parts[second], part
    elif change == "torn":
        parts[first] = part[: rng.randrange(len(part))] + rng.choice((b"", b"\n"))
    elif change == "of garbage":
        parts[first] = rng.randbytes(len(part))
    else:
        parts[first] = {"deleted": b"", "twice": part * 2, "of zeros": bytes(len(part))}[change]
    return b"".join(parts)


PHYSICAL: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "bit": partial(change_byte, change=lambda rng, byte: byte ^ 1 << rng.randrange(8)),
    "byte": partial(change_byte, change=lambda rng, _: rng.randrange(256)),
    "digit": lambda rng, content: change_match(rng, content, rb"\d", lambda: b"%d" % rng.randrange(10)),
    "line feed lost": lambda rng, content: change_match(rng, content, rb"\n", bytes),
    "truncated": lambda rng, content: content[: rng.randrange(len(content))],
    **{
        f"{kind} {change}": partial(change_parts, kind=kind, change=change)
        for kind, changes in {
            "line": ("deleted", "twice", "swapped", "torn"),
            "block": ("deleted", "twice", "swapped", "of zeros", "of garbage"),
        }.items()
        for change in changes
    },
}


# -- edits by a person or an attacker, who computes the seals again: lines are changed in place ----------


def numbers_of_runs(lines: Lines) -> list[int]:
    return [number for number, line in enumerate(lines) if line["event"] == "finished"]


def choose_runs(rng: random.Random, lines: Lines, count: int = 1) -> list[dict[str, Any]]:
    return [lines[number]["run"] for number in rng.sample(numbers_of_runs(lines), count)]


def find_places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container of JSON data with each key or index."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, child in items for place in [(value, key), *find_places(child)]]


def swap_fields(rng: random.Random, lines: Lines, _: Original, name: str | None = None) -> None:
    first, second = choose_runs(rng, lines, 2)
    name = name or rng.choice(sorted(first.keys() & second.keys()))
    first[name], second[name] = second[name], first[name]


def scale_value(rng: random.Random, lines: Lines, _: Original) -> None:
    values = rng.choice(choose_runs(rng, lines)[0]["values"])
    values[rng.randrange(len(values))] *= rng.choice((0.5, 0.9, 0.99, 1.01, 1.1, 2.0, 10.0))


def change_side(rng: random.Random, lines: Lines, _: Original) -> None:
    (run,) = choose_runs(rng, lines)
    run["side"] = "native" if run["side"] == "virtual" else "virtual"


def change_pair(rng: random.Random, lines: Lines, _: Original) -> None:
    (run,) = choose_runs(rng, lines)
    run["pair"] = rng.choice([pair for pair in range(40) if pair != run["pair"]])


def shift_time(rng: random.Random, lines: Lines, _: Original) -> None:
    (run,), seconds = choose_runs(rng, lines), rng.choice((-3600, -60, -5, 5, 60, 3600))
    run["start"] += seconds
    run["end"] += seconds


def repeat_run(rng: random.Random, lines: Lines, _: Original, *, job: str | None = None) -> None:
    line = json.loads(json.dumps(lines[rng.choice(numbers_of_runs(lines))]))
    line["run"]["values"] = [[value * 1.5 for value in values] for values in line["run"]["values"]]
    line["run"]["job"] = job or line["run"]["job"]
    lines.insert(-1, line)


def delete_run(rng: random.Random, lines: Lines, _: Original) -> None:
    del lines[rng.choice(numbers_of_runs(lines))]


def drop_key(rng: random.Random, lines: Lines, _: Original) -> None:
    container, key = rng.choice(find_places(lines))
    del container[key]


def change_type(rng: random.Random, lines: Lines, _: Original) -> None:
    container, key = rng.choice(find_places(lines))
    values = (None, True, -1, 1e300, 0, "", "x", [], [1], {}, {"x": 1}, {"fact": "0" * 16})
    container[key] = rng.choice(values)


def conclusion_of(lines: Lines, original: Original) -> dict[str, Any]:
    """Return the conclusion of the last line, with its defaults."""
    last = next(number for number, line in enumerate(lines) if line["event"] == "concluded")
    lines[last] = original.events[-1].model_dump(mode="json", by_alias=True)
    return dict(lines[last])["conclusion"]


def change_claim(rng: random.Random, lines: Lines, original: Original, *, basis: str = "kept") -> None:
    conclusion = conclusion_of(lines, original)
    claims: dict[str, Any] = {"outcome": "WITHIN", "exit_code": 0, "qualified": "yes"}
    if conclusion["outcome"] == "WITHIN":
        claims = {"outcome": "OVER", "exit_code": 1, "qualified": "no (over)"}
    conclusion.update({name: claims[name] for name in rng.sample(sorted(claims), rng.randint(1, 3))})
    if basis == "removed":
        conclusion["basis"] = None
    elif basis == "of other code" and conclusion["basis"]:
        conclusion["basis"]["provenance"]["commit"] = "0" * 40


def change_verdict(rng: random.Random, lines: Lines, original: Original) -> None:
    verdicts = conclusion_of(lines, original)["verdicts"]
    if not verdicts:
        return
    container, key = rng.choice(find_places(rng.choice(verdicts)))
    value = container[key]
    if isinstance(value, bool):
        container[key] = not value
    elif isinstance(value, int | float):
        container[key] = value * rng.choice((0.5, 0.9, 2.0)) if isinstance(value, float) else value + 1
    elif value in ("WITHIN", "OVER", "UNDECIDED", "INVALID", "BASELINE"):
        container[key] = rng.choice(("WITHIN", "OVER", "UNDECIDED"))


def change_basis(rng: random.Random, lines: Lines, original: Original) -> None:
    if basis := conclusion_of(lines, original)["basis"]:
        values = {"looks": [2], "share": 100, "today": "2020-01-01", "interrupted": True, "broken": ["x"]}
        name = rng.choice(sorted(values))
        basis[name] = values[name]


def change_build(rng: random.Random, lines: Lines, _: Original) -> None:
    lines[0]["head"]["identity"]["virtual"]["hypervisor"]["build"] = "another build"


def add_line(rng: random.Random, lines: Lines, _: Original) -> None:
    """Add a line that decides which failures count."""
    time = "2026-01-01T00:00:00+00:00"
    added: tuple[dict[str, Any], ...] = (
        {"event": "set-aside", "loss": {"round": 1, "nodes": {"vm": "died"}}},
        {"event": "resumed", "resumption": {"time": time, "ended": "why", "node_lost": rng.random() < 0.5}},
        {"event": "round", "round": {"number": 9, "first": 0, "last": 9}},
        {"event": "submitted", "job": "99", "case": "case", "submitted": 1.8e9},
    )
    lines.insert(rng.randint(1, len(lines)), rng.choice(added))


EDITS_OF_RUNS: dict[str, Callable[[random.Random, Lines, Original], None]] = {
    "values swapped": partial(swap_fields, name="values"),
    "fields swapped": swap_fields,
    "value scaled": scale_value,
    "other side": change_side,
    "other pair": change_pair,
    "time shifted": shift_time,
    "run twice, other value": repeat_run,
    "run twice, other job": partial(repeat_run, job="99999"),
    "run deleted": delete_run,
    "line added": add_line,
}
#: With the digest of the runs computed again: only judging again can show these edits.
WITH_DIGEST = {f"{name}, digest too": edit for name, edit in EDITS_OF_RUNS.items()}
EDITS = {
    **EDITS_OF_RUNS,
    "key dropped": drop_key,
    "wrong type": change_type,
    "conclusion": change_claim,
    "conclusion of other code": partial(change_claim, basis="of other code"),
    "conclusion without basis": partial(change_claim, basis="removed"),
    "verdict": change_verdict,
    "basis": change_basis,
    "build in the head": change_build,
    **WITH_DIGEST,
}


def edit(kind: str, rng: random.Random, original: Original) -> bytes:
    """Return the content of a log after an edit, with its seals."""
    lines = [json.loads(line) for _, line in intact_lines(original.content, LOG)]
    EDITS[kind](rng, lines, original)
    if kind in WITH_DIGEST:
        log = Log(original.directory)
        log.path.write_bytes(seal(map(encode, lines)))
        with suppress(VirtqualError):
            if basis := conclusion_of(lines, original)["basis"]:
                basis["runs"] = log.session().measured
    return seal(map(encode, lines))


def encode(line: object) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode()


# -- results --------------------------------------------------------------------------------------------


def numbers_and_claims(session: Session) -> Any:
    runs = [(run.check, run.pair, run.side, run.start, run.end, run.results) for run in session.runs]
    names = ("outcome", "exit_code", "qualified", "conclusion", "hypervisor_class", "hypervisor", "failures")
    return runs, session.verdicts, session.stack["hash"], [getattr(session, name) for name in names]


def find_result(original: Original, content: bytes, kind: str, *, keep_document: bool) -> str:
    """Return which of `RESULTS` a changed log leads to."""
    directory, is_edit = original.directory, kind in EDITS
    (directory / LOG).write_bytes(content)
    file_of(directory).unlink(missing_ok=True)
    (directory / DOCUMENT).unlink(missing_ok=True)
    if keep_document:
        (directory / DOCUMENT).write_bytes(original.document)
    try:
        session = load(directory)
    except VirtqualError as error:
        match = re.search(rf"{LOG}:(\d+): ", str(error))
        if not match:
            return "refused"
        is_right = is_edit or int(match[1]) == find_first_difference(original.content, content)
        return "refused by number" if is_right else "refused by another number"
    if is_edit:
        # An attacker writes the document, too, and leaves out what names the digest of the log.
        Log(directory).write()
        for name in (page.FILE, junit.FILE):
            (directory / name).unlink(missing_ok=True)
    events = list(Log(directory).events())
    if events == original.events:
        return "same"
    if events == original.events[: len(events)] and session.outcome == "UNFINISHED":
        return "exact prefix"
    # A session that goes on judges these runs; commands report both kinds of errors in words.
    again = session.model_copy()
    again.basis = Basis(runs=session.measured, looks=LOOKS)
    with suppress(VirtqualError, ValueError):
        draw_conclusion(
            again, load(directory.parent / session.against) if session.against else None, directory
        )
        summary(directory)
    check = check_session(directory)
    if check.problems:
        return "reported by check"
    if session.passes and not original.session.passes and kind not in WITH_DIGEST:
        return "PASS"
    if numbers_and_claims(session) == numbers_and_claims(original.session):
        return "no number or claim changed"
    if check.doubts or check.is_judged_otherwise:
        return "noted by check"
    return "follows from edited runs" if kind in WITH_DIGEST else "SILENT"


def find_first_difference(before: bytes, after: bytes) -> int:
    """Return the number of the first line that differs."""
    pairs = enumerate(zip(before, after, strict=False))
    equal = next((place for place, (old, new) in pairs if old != new), min(len(before), len(after)))
    return before.count(b"\n", 0, equal) + 1


def run_experiment(kinds: list[str], total: int, seed: int, worker: int) -> dict[str, Counter[str]]:
    """Return the number of each result by kind, of every damage that is this worker's."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    with tempfile.TemporaryDirectory() as state:
        os.environ["VIRTQUAL_STATE"] = state
        sessions = paths.make(paths.sessions())
        originals = []
        for name in NAMES:
            conclude_session(directory := make_session(name, sessions))
            content, document = (directory / LOG).read_bytes(), (directory / DOCUMENT).read_bytes()
            events = list(Log(directory).events())
            originals.append(Original(directory, content, document, events, load(directory)))
        for number in range(worker, total, WORKERS):
            kind, rng = kinds[number % len(kinds)], random.Random(f"{seed} {number}")
            original = rng.choice(originals)
            content = PHYSICAL[kind](rng, original.content) if kind in PHYSICAL else edit(kind, rng, original)
            keep_document = kind in EDITS or rng.random() < 0.8
            try:
                result = find_result(original, content, kind, keep_document=keep_document)
            except Exception:
                result = "TRACEBACK"
                traceback.print_exc()
            if result in ("PASS", "SILENT", "TRACEBACK"):
                print(
                    f"{result}: {kind}, seed {seed}, number {number}, {original.directory}", file=sys.stderr
                )
            counts[kind][result] += 1
            (original.directory / LOG).write_bytes(original.content)
    return counts


def read_cut(log: Log, events: list[Event], line_count: int) -> str:
    """Return whether the whole lines before a cut are read, and the next line after them."""
    following = Submitted(job="next", case="case", submitted=5.0)
    try:
        session = log.session()
    except UsageError:
        return "WRONG" if line_count else "no session"
    runs = [event.run for event in events[:line_count] if isinstance(event, Finished)]
    failures = [event.failure for event in events[:line_count] if isinstance(event, Failed)]
    if session.runs != sorted(runs, key=lambda run: run.start) or session.failures != failures:
        return "WRONG"
    Log(log.directory).append(following)
    return "right" if list(log.events()) == [*events[:line_count], following] else "WRONG"


def count_cuts(name: str) -> Counter[str]:
    """Return the number of each result over all cuts of a recorded log."""
    counts = Counter[str]()
    with tempfile.TemporaryDirectory() as sessions:
        log = Log(make_session(name, Path(sessions)))
        content, events = log.path.read_bytes(), list(log.events())
        for cut in range(len(content) + 1):
            log.path.write_bytes(content[:cut])
            counts[read_cut(log, events, content.count(b"\n", 0, cut))] += 1
    return counts


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--physical", type=int, default=20_000)
    parser.add_argument("--edits", type=int, default=8_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cuts", action="store_true", help="also each cut of three logs")
    options = parser.parse_args()
    failures = 0
    for kinds, total in ((list(PHYSICAL), options.physical), (list(EDITS), options.edits)):
        with multiprocessing.Pool(WORKERS) as pool:
            parts = pool.map(partial(run_experiment, kinds, total, options.seed), range(WORKERS))
        rows = {kind: sum((part.get(kind, Counter()) for part in parts), Counter[str]()) for kind in kinds}
        rows["ALL"] = sum(rows.values(), Counter[str]())
        print_table(
            ["damage", *RESULTS], ([kind, *(row[name] for name in RESULTS)] for kind, row in rows.items())
        )
        failures += sum(rows["ALL"][name] for name in ("PASS", "SILENT", "TRACEBACK"))
    for name in ("kvm-within", "kvm-over", "emulated-vm-died") if options.cuts else ():
        counts = count_cuts(name)
        print(f"{name}, {counts.total()} cuts: {dict(counts)}", flush=True)
        failures += counts["WRONG"]
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
