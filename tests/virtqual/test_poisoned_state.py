"""Sessions that make no sense, all in one state directory: none ends another session, or hides it."""

import gzip
import json
import os
import random

import pytest

from made_runs import read_session, sealed
from virtqual import paths
from virtqual.harness import catalogue
from virtqual.session.log import LOG, FactsWritten
from virtqual.session.seal import intact_lines
from virtqual.session.shared import packed
from virtqual.session.summary import file_of

RECORDED = gzip.decompress((paths.root() / "tests/sessions/kvm-within.jsonl.gz").read_bytes())
LINES = [line for _, line in intact_lines(RECORDED, LOG)]
DEEP = b"[" * 200_000 + b"]" * 200_000


def edited(old, new, number=0):
    """Return the recorded log with another text in one line, and its seals."""
    assert old in LINES[number]
    return sealed(*LINES[:number], LINES[number].replace(old, new), *LINES[number + 1 :])


def bomb():
    """Return facts of 64 MiB."""
    return json.dumps(FactsWritten(zlib=packed({"0" * 16: f'"{"x" * 2**26}"'})).model_dump()).encode()


HEAD = json.loads(LINES[0])["head"]
SUBMITTED = b'{"event":"submitted","job":%s,"case":"lj","submitted":%s}'
CONCLUDED = b'{"event":"concluded","conclusion":%s}'
#: Contents of logs by what is wrong.
LOGS = {
    "empty": b"",
    "garbage": random.Random(1).randbytes(100_000),
    "zeros": bytes(100_000),
    "line feeds": b"\n" * 5_000_000,
    "nested": sealed(b'{"event":"begun","head":' + DEEP + b"}"),
    "nested in a later line": sealed(LINES[0], b'{"event":"submitted","job":' + DEEP + b"}"),
    "event an object": sealed(b'{"event":{}}'),
    "event a list": sealed(b'{"event":[1]}'),
    "no object": b"[]\n",
    "not UTF-8": sealed(b'{"event":"\xff\xfe"}'),
    "UTF-16": RECORDED.decode().encode("utf-16"),
    "format 9": edited(b"virtqual-session/3", b"virtqual-session/9"),
    "identity a list": edited(json.dumps(HEAD["identity"], separators=(",", ":")).encode(), b"[1]"),
    "native null": edited(b'"native":{', b'"native":null,"x":{'),
    "no zone": edited(HEAD["created"].encode(), HEAD["created"][:19].encode()),
    "year 9999": edited(HEAD["created"][:4].encode() + b"-", b"9999-", 0),
    "year 2099": edited(HEAD["created"][:4].encode() + b"-", b"2099-", 0),
    "huge label": edited(b'"label":"', b'"label":"' + b"x" * 2_000_000),
    "label with escapes": edited(b'"label":"', b'"label":"\\u001b[2J\\u009b2J\\u202e'),
    "id outside": edited(HEAD["session"].encode(), b"../../outside"),
    "number of 5000 digits": edited(b'"label":', b'"repetitions":{"x":' + b"9" * 5000 + b'},"label":'),
    "not a number": edited(b'"label":', b'"repetitions":{"x":NaN},"label":'),
    "stack without a name": edited(b'"stack":{"name"', b'"stack":{"nom"'),
    "facts that are too large": sealed(LINES[0], bomb()),
    "facts that are none": sealed(LINES[0], b'{"event":"facts","zlib":"\\u0000~~"}'),
    "job an object": sealed(LINES[0], SUBMITTED % (b"{}", b"1.0")),
    "job with a command": sealed(LINES[0], SUBMITTED % (b'"1; touch pwned"', b"1.0")),
    "time of submission infinite": sealed(LINES[0], SUBMITTED % (b'"7"', b"1e999")),
    "conclusion a list": sealed(LINES[0], CONCLUDED % b"[]"),
    "outcome with escapes": sealed(LINES[0], CONCLUDED % b'{"outcome":"\\u001b[2J"}'),
    "exit code a text": sealed(LINES[0], CONCLUDED % b'{"exit_code":"zero"}'),
    "verdicts of no series": sealed(LINES[0], CONCLUDED % b'{"outcome":"WITHIN","verdicts":[{}]}'),
    "runs without a conclusion": RECORDED,
    "a claim without runs": sealed(
        LINES[0], CONCLUDED % b'{"outcome":"WITHIN","exit_code":0,"qualified":"yes"}'
    ),
}  # fmt: skip
FILES = {
    "FIFO": os.mkfifo,
    "directory": os.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link": lambda path: path.symlink_to("/etc/passwd"),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "garbage": lambda path: path.write_bytes(random.Random(2).randbytes(5000)),
    "nested": lambda path: path.write_bytes(DEEP),
    "a claim": lambda path: path.write_text('{"outcome":"WITHIN","exit_code":0}', encoding="utf-8"),
}


def poison(sessions):
    """Write all poisoned sessions, each with a document, and without one; return how many there are."""
    names = iter(f"20260101-{number:06}-testsite" for number in range(1000))

    def directory(content=None, *, document):
        path = sessions / next(names)
        path.mkdir()
        if content is not None:
            (path / LOG).write_bytes(content)
        if document:
            (path / "session.json").write_text("{}", encoding="utf-8")
        return path

    for document in (True, False):
        for content in LOGS.values():
            directory(content, document=document)
        for make in FILES.values():
            # The log itself, and the files beside a log that is well.
            make(directory(document=document) / LOG)
            path = directory(edited(HEAD["session"].encode(), b"s"), document=document)
            file_of(path).parent.mkdir(exist_ok=True)
            for file in (catalogue.FILE, "junit.xml", "report.html"):
                make(path / file)
            make(file_of(path))
            if not document:
                make(path / "session.json")
    (sessions / next(names)).write_text("no directory", encoding="utf-8")
    (sessions / next(names)).symlink_to("nowhere")
    directory(RECORDED, document=True).rename(sessions / "20260102-\x1b[2J\n-testsite")
    return len(list(sessions.iterdir()))


@pytest.fixture
def sessions(site):
    path = site.path / "state/sessions"
    path.mkdir(mode=0o755)
    assert poison(path) > 100
    return path


def test_a_session_is_measured_and_concluded_among_all_of_them(site, sessions):
    before = {path.name for path in sessions.iterdir()}
    done = site.virtqual("qualify", "--system", "testsite", "-n", "lj")
    assert done.returncode == 0, done.stdout + done.stderr
    (name,) = {path.name for path in sessions.glob("2*-testsite")} - before
    session = read_session(sessions / name)
    assert (session["outcome"], session["exit_code"]) == ("WITHIN", 0)
    assert not (site.path / "pwned").exists()
    assert not (site.path / "outside").exists()
    for command in (["list"], ["status"], ["history"], ["check"], ["show", name], ["show", "last"]):
        done = site.virtqual(*command)
        said = done.stdout + done.stderr
        assert "does not know" not in said, f"{command}: {said[-3000:]}"
        assert "Traceback" not in said, f"{command}: {said[-3000:]}"
        assert "\x1b" not in said, command
        if command == ["check"]:
            assert done.returncode == 4, said[-3000:]
            assert not [line for line in said.splitlines() if line.startswith(name)]
        elif command == ["list"]:
            assert name in said
    assert "WITHIN" in said
