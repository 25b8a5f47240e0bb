"""Damage of logs, and edits whose seals are computed again.

    python benchmarks/damage/logs.py [--physical 20000] [--edits 8000] [--seed 1]

Each damaged log is read, judged again and checked. A table shows what came of each kind of damage. The exit
code is 1 if a change was silent or an exception was no `VirtqualError`.
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
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from recorded import NAMES, conclude_session, make_session, print_table, sealed

from virtqual import paths
from virtqual.errors import VirtqualError
from virtqual.qualify.checking import check_session
from virtqual.qualify.concluding import draw
from virtqual.session.log import DOCUMENT, LOG, Event, Log
from virtqual.session.seal import intact_lines
from virtqual.session.session import Basis, Session
from virtqual.session.store import load
from virtqual.session.summary import file_of, summary
from virtqual.verdict.rule import LOOKS

Lines = list[dict[str, Any]]
RESULTS = (
    *(
        "refused by number",
        "refused by another number",
        "refused",
        "exact prefix",
        "same",
        "nothing that counts",
    ),
    *("told by check", "only noted by check", "follows from edited runs", "SILENT", "TRACEBACK"),
)


class Original(NamedTuple):
    """A session before it is damaged."""

    directory: Path
    content: bytes
    document: bytes
    events: list[Event]
    session: Session


# Damage by disks, file systems and writers: content in, content out.


def _bit(rng: random.Random, content: bytes, start: int = 0) -> bytes:
    place = rng.randrange(start, len(content))
    return content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]


def _byte(rng: random.Random, content: bytes) -> bytes:
    place = rng.randrange(len(content))
    return content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :]


def _digit(rng: random.Random, content: bytes) -> bytes:
    place = rng.choice([match.start() for match in re.finditer(rb"\d", content)])
    return content[:place] + b"%d" % rng.randrange(10) + content[place + 1 :]


def _line(rng: random.Random, content: bytes, change: Callable[[list[bytes], int], list[bytes]]) -> bytes:
    lines = content.splitlines(keepends=True)
    return b"".join(change(lines, rng.randrange(len(lines))))


def swap_lines(rng: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    first, second = rng.sample(range(len(lines)), 2)
    lines[first], lines[second] = lines[second], lines[first]
    return b"".join(lines)


def _truncate(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content))]


def torn_middle(rng: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    number = rng.randrange(len(lines) - 1)
    lines[number] = lines[number][: rng.randrange(len(lines[number]))] + rng.choice((b"", b"\n"))
    return b"".join(lines)


def lost_feed(rng: random.Random, content: bytes) -> bytes:
    place = rng.choice([match.start() for match in re.finditer(b"\n", content)])
    return content[:place] + content[place + 1 :]


def last_line(rng: random.Random, content: bytes) -> bytes:
    return _bit(rng, content, content.rfind(b"\n", 0, -1) + 1)


def _block(rng: random.Random, content: bytes, change: Callable[[random.Random, bytes], bytes]) -> bytes:
    size = rng.choice((512, 4096))
    place = rng.randrange(-(-len(content) // size)) * size
    block = content[place : place + size]
    return content[:place] + change(rng, block) + content[place + size :]


def _swap_blocks(rng: random.Random, content: bytes) -> bytes:
    size = rng.choice((512, 4096))
    blocks = [content[place : place + size] for place in range(0, len(content), size)]
    first, second = rng.sample(range(len(blocks)), 2)
    blocks[first], blocks[second] = blocks[second], blocks[first]
    return b"".join(blocks)


#: Damage by its name; session.json is removed where the name says so.
PHYSICAL: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "bit": _bit,
    "byte": _byte,
    "digit": _digit,
    "bit in the last line": last_line,
    "line deleted": partial(_line, change=lambda lines, n: lines[:n] + lines[n + 1 :]),
    "line twice": partial(_line, change=lambda lines, n: lines[: n + 1] + lines[n:]),
    "lines swapped": swap_lines,
    "truncated": _truncate,
    "truncated, no session.json": _truncate,
    "torn in the middle": torn_middle,
    "line feed lost": lost_feed,
    "block deleted": partial(_block, change=lambda rng, block: b""),
    "block of zeros": partial(_block, change=lambda rng, block: bytes(len(block))),
    "block of garbage": partial(_block, change=lambda rng, block: rng.randbytes(len(block))),
    "block twice": partial(_block, change=lambda rng, block: block * 2),
    "blocks swapped": _swap_blocks,
    "block of zeros, no session.json": partial(_block, change=lambda rng, block: bytes(len(block))),
}


# Edits by a person or an attacker, who computes the seals again: lines in, lines changed in place.


def _runs(lines: Lines) -> Lines:
    return [line["run"] for line in lines if line["event"] == "finished"]


def whole_run(rng: random.Random, lines: Lines, original: Original) -> dict[str, Any]:
    """Return a run of the lines, with its setup in full in the line."""
    number = rng.choice([number for number, line in enumerate(lines) if line["event"] == "finished"])
    lines[number]["run"] = original.events[number].model_dump(mode="json", exclude_defaults=True)["run"]
    return lines[number]["run"]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container of JSON data with each key or index."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, child in items for place in [(value, key), *_places(child)]]


def swap_values(rng: random.Random, lines: Lines, _: Original) -> None:
    first, second = rng.sample(_runs(lines), 2)
    first["values"], second["values"] = second["values"], first["values"]


def swap_fields(rng: random.Random, lines: Lines, _: Original) -> None:
    first, second = rng.sample(_runs(lines), 2)
    name = rng.choice(sorted(first.keys() & second.keys()))
    first[name], second[name] = second[name], first[name]


def scale_value(rng: random.Random, lines: Lines, _: Original) -> None:
    values = rng.choice(rng.choice(_runs(lines))["values"])
    place = rng.randrange(len(values))
    values[place] *= rng.choice((0.5, 0.9, 0.99, 1.01, 1.1, 2.0, 10.0))


def drop_key(rng: random.Random, lines: Lines, _: Original) -> None:
    container, key = rng.choice(_places(lines))
    del container[key]


def wrong_type(rng: random.Random, lines: Lines, _: Original) -> None:
    container, key = rng.choice(_places(lines))
    container[key] = rng.choice(
        (None, True, -1, 1e300, 0, "", "x", [], [1], {}, {"x": 1}, {"fact": "0" * 16})
    )


def other_side(rng: random.Random, lines: Lines, original: Original) -> None:
    run = whole_run(rng, lines, original)
    run["side"] = "native" if run["side"] == "virtual" else "virtual"


def other_pair(rng: random.Random, lines: Lines, _: Original) -> None:
    run = rng.choice(_runs(lines))
    run["pair"] = rng.choice([pair for pair in range(40) if pair != run["pair"]])


def shift_time(rng: random.Random, lines: Lines, _: Original) -> None:
    run, seconds = rng.choice(_runs(lines)), rng.choice((-3600, -60, -5, 5, 60, 3600))
    run["start"] += seconds
    run["end"] += seconds


def _run_twice(rng: random.Random, lines: Lines, _: Original, *, job: str | None = None) -> None:
    line = json.loads(json.dumps(rng.choice([line for line in lines if line["event"] == "finished"])))
    line["run"]["values"] = [[value * 1.5 for value in values] for values in line["run"]["values"]]
    line["run"]["job"] = job or line["run"]["job"]
    lines.insert(-1, line)


def run_deleted(rng: random.Random, lines: Lines, _: Original) -> None:
    del lines[rng.choice([number for number, line in enumerate(lines) if line["event"] == "finished"])]


def _conclusion(lines: Lines, original: Original) -> dict[str, Any]:
    """Return the conclusion of the last line, without references."""
    lines[-1] = original.events[-1].model_dump(mode="json", by_alias=True)
    return dict(lines[-1])["conclusion"]


def _claim(rng: random.Random, lines: Lines, original: Original) -> None:
    conclusion = _conclusion(lines, original)
    claims: dict[str, Any] = {"outcome": "WITHIN", "exit_code": 0, "qualified": "yes"}
    if conclusion["outcome"] == "WITHIN":
        claims = {"outcome": "OVER", "exit_code": 1, "qualified": "no (over)"}
    names = rng.sample(sorted(claims), rng.randint(1, 3))
    conclusion.update({name: claims[name] for name in names})


def claim_of_other_code(rng: random.Random, lines: Lines, original: Original) -> None:
    _claim(rng, lines, original)
    if basis := lines[-1]["conclusion"]["basis"]:
        basis["provenance"]["commit"] = "0" * 40


def claim_without_basis(rng: random.Random, lines: Lines, original: Original) -> None:
    _claim(rng, lines, original)
    lines[-1]["conclusion"]["basis"] = None


def _verdict(rng: random.Random, lines: Lines, original: Original) -> None:
    verdicts = _conclusion(lines, original)["verdicts"]
    if not verdicts:
        return
    container, key = rng.choice(_places(rng.choice(verdicts)))
    value = container[key]
    if isinstance(value, bool):
        container[key] = not value
    elif isinstance(value, int | float):
        container[key] = value * rng.choice((0.5, 0.9, 2.0)) if isinstance(value, float) else value + 1
    elif value in ("WITHIN", "OVER", "UNDECIDED", "INVALID", "BASELINE"):
        container[key] = rng.choice(("WITHIN", "OVER", "UNDECIDED"))


def _basis(rng: random.Random, lines: Lines, original: Original) -> None:
    if basis := _conclusion(lines, original)["basis"]:
        name, value = rng.choice(
            (
                ("looks", [2]),
                ("share", 100),
                ("today", "2020-01-01"),
                ("interrupted", True),
                ("broken", ["x"]),
            )
        )
        basis[name] = value


def other_build(rng: random.Random, lines: Lines, _: Original) -> None:
    lines[0]["head"]["identity"]["virtual"]["hypervisor"]["build"] = "another build"


EDITS_OF_RUNS: dict[str, Callable[[random.Random, Lines, Original], None]] = {
    "values swapped": swap_values,
    "fields swapped": swap_fields,
    "value scaled": scale_value,
    "other side": other_side,
    "other pair": other_pair,
    "time shifted": shift_time,
    "run twice, other value": _run_twice,
    "run twice, other job": partial(_run_twice, job="99999"),
    "run deleted": run_deleted,
}
EDITS = EDITS_OF_RUNS | {
    "key dropped": drop_key,
    "wrong type": wrong_type,
    "conclusion": _claim,
    "conclusion, said to be of other code": claim_of_other_code,
    "conclusion, without its basis": claim_without_basis,
    "verdict": _verdict,
    "basis": _basis,
    "build in the head": other_build,
}
#: The same with the digest of the runs computed again: nothing but judging again can tell.
WITH_DIGEST = {f"{name}, digest too": edit for name, edit in EDITS_OF_RUNS.items()}


def edited(kind: str, rng: random.Random, original: Original) -> bytes:
    """Return the content of a log after an edit, with its seals."""
    lines = [json.loads(line) for _, line in intact_lines(original.content, LOG)]
    (EDITS | WITH_DIGEST)[kind](rng, lines, original)
    if kind in WITH_DIGEST:
        log = Log(original.directory)
        log.path.write_bytes(sealed(map(encoded, lines)))
        with suppress(VirtqualError):
            if basis := _conclusion(lines, original)["basis"]:
                basis["runs"] = log.session().measured
    return sealed(map(encoded, lines))


def encoded(line: object) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode()


# What comes of it.


def what_counts(session: Session) -> Any:
    """Return the numbers and the conclusion of a session, with the build that they are about."""
    runs = [(run.check, run.pair, run.side, run.start, run.end, run.results) for run in session.runs]
    claim = (
        session.outcome,
        session.exit_code,
        session.qualified,
        session.conclusion,
        session.hypervisor_class,
    )
    about = session.hypervisor, session.stack["hash"], session.failures
    return runs, session.verdicts, claim, about


def outcome_of(original: Original, content: bytes, *, keep_document: bool, is_edit: bool, kind: str) -> str:
    """Return which of `RESULTS` damage comes to."""
    directory = original.directory
    (directory / LOG).write_bytes(content)
    file_of(directory).unlink(missing_ok=True)
    (directory / DOCUMENT).unlink(missing_ok=True)
    if keep_document:
        (directory / DOCUMENT).write_bytes(original.document)
    try:
        try:
            session = load(directory)
        except VirtqualError as error:
            match = re.search(rf"{LOG}:(\d+): ", str(error))
            if not match:
                return "refused"
            right = is_edit or int(match[1]) == first_difference(original.content, content)
            return "refused by number" if right else "refused by another number"
        if is_edit:
            # An attacker writes the document, too.
            Log(directory).write()
        events = list(Log(directory).events())
        if events == original.events:
            return "same"
        if events == original.events[: len(events)] and session.outcome == "UNFINISHED":
            return "exact prefix"
        judge_again(session, directory)
        problems, otherwise, notes = check_session(directory)
        if what_counts(session) == what_counts(original.session):
            return "told by check" if problems else "nothing that counts"
        if problems or otherwise or notes:
            return "told by check" if problems else "only noted by check"
        return "follows from edited runs" if kind in WITH_DIGEST else "SILENT"
    except Exception as error:
        place = error.__traceback__
        while place and place.tb_next:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else ""
        print(f"{kind}: {type(error).__name__}: {error} ({where})"[:300], file=sys.stderr)
        return "TRACEBACK"


def judge_again(session: Session, directory: Path) -> None:
    """Judge a session as one that goes on would be, and make its summary; nothing is kept."""
    again = session.model_copy()
    again.basis = Basis(runs=session.measured, looks=LOOKS)
    try:
        draw(again, load(directory.parent / session.against) if session.against else None, directory)
        summary(directory)
    except (VirtqualError, ValueError):
        # Commands say both kinds in words.
        pass


def first_difference(before: bytes, after: bytes) -> int:
    """Return the number of the first line that is another one."""
    pairs = enumerate(zip(before, after, strict=False))
    alike = next((place for place, (old, new) in pairs if old != new), min(len(before), len(after)))
    return before.count(b"\n", 0, alike) + 1


def experiment(kinds: list[str], total: int, seed: int, part: int, parts: int) -> dict[str, Counter[str]]:
    """Return by kind how often which result came of every `parts`-th damage."""
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
        for number in range(part, total, parts):
            kind, rng = kinds[number % len(kinds)], random.Random(f"{seed} {number}")
            original = rng.choice(originals)
            is_edit = kind not in PHYSICAL
            content = edited(kind, rng, original) if is_edit else PHYSICAL[kind](rng, original.content)
            keep = not kind.endswith("no session.json")
            result = outcome_of(original, content, keep_document=keep, is_edit=is_edit, kind=kind)
            if result == "SILENT":
                print(f"silent: {kind}, seed {seed}, number {number}, {original.directory}", file=sys.stderr)
            counts[kind][result] += 1
            (original.directory / LOG).write_bytes(original.content)
    return counts


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--physical", type=int, default=20_000)
    parser.add_argument("--edits", type=int, default=8_000)
    parser.add_argument("--seed", type=int, default=1)
    options, parts, failed = parser.parse_args(), 2, 0
    for kinds, total in ((PHYSICAL, options.physical), (EDITS | WITH_DIGEST, options.edits)):
        run = partial(experiment, list(kinds), total, options.seed, parts=parts)
        with multiprocessing.Pool(parts) as pool:
            tables = pool.map(run, range(parts))
        counts = {kind: sum((table.get(kind, Counter()) for table in tables), Counter()) for kind in kinds}
        counts["ALL"] = sum(counts.values(), Counter[str]())
        print_table(
            ["damage", *RESULTS], ([kind, *(row[name] for name in RESULTS)] for kind, row in counts.items())
        )
        failed += counts["ALL"]["SILENT"] + counts["ALL"]["TRACEBACK"]
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
