"""Whatever stands in a log, it is read and shown, or refused in our words; nothing passes by it."""

import base64
import copy
import gzip
import io
import json
import zlib
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fuzzing import FEW, MANY
from made_runs import sealed
from virtqual import paths
from virtqual.errors import VirtqualError
from virtqual.qualify import concluding
from virtqual.qualify.checking import find_doubts
from virtqual.report import junit, machines, page
from virtqual.report.comparison import compare, differing
from virtqual.report.identity import describe
from virtqual.report.terminal import Terminal
from virtqual.session.log import LOG, Log
from virtqual.session.seal import intact_lines
from virtqual.session.session import Session
from virtqual.session.shared import compact, digest_of, packed
from virtqual.session.store import load
from virtqual.session.summary import Summary

SESSIONS = paths.root() / "tests/sessions"
NAMES = ("kvm-within", "kvm-over", "kvm-numa-hidden", "emulated-vm-died")

scalars = st.sampled_from((
    *(None, True, False, -1, 0, 1, 2, 3, 1e300, 1e-300, 2**63, 0.5, 1.7e9, "", "x", "0-1x", "0-3", "../x"),
    *("WITHIN", "OVER", "native", "virtual", "yes", "infrastructure", "failed", "\x1b[2J", "1e999", "\u0000"),
    *("2026-01-01T00:00:00+00:00", [], {}, [[]], [1], [""], {"x": 1}, {"": []}, {"fact": "0" * 16}),
))  # fmt: skip


@dataclass
class Original:
    """A session before its log is edited."""

    name: str
    content: bytes = field(repr=False)
    session: Session = field(repr=False)


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Recorded sessions, concluded by the present code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VIRTQUAL_STATE", str(tmp_path_factory.mktemp("vendor")))
        sessions = paths.make(paths.sessions())
        concluded = []
        for name in NAMES:
            directory = sessions / name
            directory.mkdir()
            (directory / LOG).write_bytes(gzip.decompress((SESSIONS / f"{name}.jsonl.gz").read_bytes()))
            session = concluding.conclude_session(Log(directory), None)
            concluded.append(Original(name, (directory / LOG).read_bytes(), session))
        return concluded


@pytest.fixture
def directory(tmp_path_factory, monkeypatch):
    """A session's directory in a state directory of which nothing was concluded here."""
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path_factory.mktemp("own")))
    directory = paths.make(paths.sessions()) / "20260101-000000-copied"
    directory.mkdir()
    return directory


def find_places(value):
    """Return every container of JSON data with each key or index."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, child in items for place in [(value, key), *find_places(child)]]


def unpack(content):
    """Return the lines of a log without those of facts, and all facts by digest."""
    lines, facts = [], {}
    for _, line in intact_lines(content, LOG):
        event = json.loads(line)
        if event["event"] == "facts":
            facts |= json.loads(zlib.decompress(base64.b85decode(event["zlib"])))
        else:
            lines.append(event)
    return lines, facts


def pack(lines, facts):
    """Return a log whose facts have the digests of what they say now."""
    texts, renamed = {}, {}

    def rename(value):
        if isinstance(value, list):
            return [rename(part) for part in value]
        if not isinstance(value, dict):
            return value
        if value.keys() == {"fact"} and isinstance(value["fact"], str) and value["fact"] in facts:
            digest = value["fact"]
            if digest not in renamed:
                text = compact(rename(facts[digest]))
                renamed[digest] = digest_of(text)
                texts[renamed[digest]] = text
            return {"fact": renamed[digest]}
        return {key: rename(part) for key, part in value.items()}

    first, *others = (compact(rename(line)).encode() for line in lines)
    return sealed(first, compact({"event": "facts", "zlib": packed(texts)}).encode(), *others)


def edit(draw, content):
    """Change values of any depth in a log, as whoever can compute seals and digests."""
    lines, facts = copy.deepcopy(unpack(content))
    for _ in range(draw(st.integers(1, 3))):
        parts = [places for part in (*lines, *facts.values()) if (places := find_places(part))]
        places = parts[draw(st.integers(0, len(parts) - 1))]
        container, key = places[draw(st.integers(0, len(places) - 1))]
        kind = draw(st.sampled_from(("change", "change", "change", "drop", "repeat", "scale")))
        if kind == "drop":
            del container[key]
        elif kind == "repeat" and isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        elif kind == "scale" and isinstance(container[key], float):
            container[key] *= draw(st.sampled_from((-1, 0, 0.5, 1.001, 2, 1e9)))
        else:
            container[key] = copy.deepcopy(draw(scalars))
    return lines, facts


def report(session):
    """Make all that is shown of a session."""
    page.render(session)
    page.render_comparison([session, session])
    junit.content_of(session)
    for form in machines.FORMS.values():
        form(session)
    compare([session, session])
    list(differing([session, session]))
    Summary.of(session)
    for run in session.runs:
        for node in run.identity.values():
            describe(node)
    terminal = Terminal()
    terminal.console = Console(file=io.StringIO())
    terminal.begin(session, ())
    terminal.end(session, "there")


def read_edited(directory, content, passed):
    """Read and show a log; return its session, which does not pass by an edit without a doubt."""
    (directory / LOG).write_bytes(content)
    try:
        session = load(directory)
        doubts = find_doubts(session, directory)
        report(session)
    except VirtqualError:
        return None
    if session.passes and not passed:
        assert doubts, "a log was edited so that it passes, and no doubt is said"
    return session


def try_edited_log(data, directory, originals):
    original = data.draw(st.sampled_from(originals))
    lines, facts = edit(data.draw, original.content)
    has_digest = data.draw(st.booleans())
    edited = pack(lines, facts)
    session = read_edited(directory, edited, original.session.passes)
    basis = lines and lines[-1].get("event") == "concluded" and isinstance(lines[-1].get("conclusion"), dict)
    if session and has_digest and basis and isinstance(lines[-1]["conclusion"].get("basis"), dict):
        # The conclusion is said to be of these lines: only judging again shows what is wrong.
        lines[-1]["conclusion"]["basis"]["runs"] = session.measured
        (directory / LOG).write_bytes(pack(lines, facts))
        try:
            session = load(directory)
            find_doubts(session, directory)
            report(session)
        except VirtqualError:
            pass


def try_damaged_log(data, directory, originals):
    original = data.draw(st.sampled_from(originals))
    damaged = bytearray(original.content)
    for _ in range(data.draw(st.integers(1, 3))):
        place, length = data.draw(st.integers(0, len(damaged))), data.draw(st.sampled_from((0, 1, 7, 512)))
        new = data.draw(
            st.one_of(st.binary(max_size=9), st.just(bytes(length)), st.just(b"\n"), st.just(b"{}\n"))
        )
        damaged[place : place + length] = new
    session = read_edited(directory, bytes(damaged), original.session.passes)
    if session:
        # It was cut, or has something after its end.
        assert session.runs == [run for run in original.session.runs if run in session.runs]
        assert session.verdicts in ([], original.session.verdicts)


@given(st.data())
@FEW
def test_an_edited_log_is_refused_in_words_or_shown(directory, originals, data):
    try_edited_log(data, directory, originals)


@given(st.data())
@FEW
def test_a_damaged_log_is_refused_in_words_or_shown(directory, originals, data):
    try_damaged_log(data, directory, originals)


@pytest.mark.slow
@given(st.data())
@MANY
def test_many_edited_logs_are_refused_in_words_or_shown(directory, originals, data):
    try_edited_log(data, directory, originals)


@pytest.mark.slow
@given(st.data())
@MANY
def test_many_damaged_logs_are_refused_in_words_or_shown(directory, originals, data):
    try_damaged_log(data, directory, originals)
