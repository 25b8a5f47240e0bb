"""The log is the record: whatever dies, what was written is read, and nothing else."""

import base64
import hashlib
import json
import os
import random
import threading
import zlib

import pytest

from made_runs import HEAD, keep, made_failure, made_run, sealed, session_of
from virtqual.errors import DamagedError, InfrastructureError, UsageError
from virtqual.files import reading
from virtqual.identity import gather, readers
from virtqual.runs import Result
from virtqual.session import shared
from virtqual.session.log import (
    Begun,
    Failed,
    Finished,
    Log,
    Probed,
    Released,
    Resumed,
    RoundBegun,
    SetAside,
    Submitted,
    WarmedUp,
)
from virtqual.session.seal import intact_lines
from virtqual.session.session import Conclusion, Loss, Resumption, Round
from virtqual.session.shared import compact, digest_of, packed
from virtqual.stack.loaded import LoadedSoftware


@pytest.fixture
def log(tmp_path):
    made = Log(tmp_path)
    made.append(Begun(head=HEAD))
    return made


def unsealed(log):
    """Return the lines of a log without their seals."""
    return [line for _, line in intact_lines(log.path.read_bytes(), "log")]


def test_wherever_the_end_is_cut_the_lines_before_are_read_and_the_next_writer_goes_on(log):
    log.append(Finished(run=made_run("native", 0)))
    whole = log.path.read_bytes()
    log.append(Finished(run=made_run("virtual", 0, job="2", start=5.0, check="case \u00fc")))
    last = log.path.read_bytes()[len(whole) :]
    for cut in range(len(last)):
        log.path.write_bytes(whole + last[:cut])
        # The facts of a run are a line of their own before it.
        assert len(log.session().runs) == 1, cut
        Log(log.directory).append(Finished(run=made_run("virtual", 0, job="2", start=5.0)))
        assert len(log.session().runs) == 2, cut


def test_a_flipped_bit_is_refused_by_the_number_of_its_line(log):
    for pair in range(3):
        log.append(Finished(run=made_run("native", pair, start=float(pair))))
    content = log.path.read_bytes()
    ends = [index for index, byte in enumerate(content) if byte == ord("\n")]
    rng = random.Random(1)
    for _ in range(500):
        place, bit = rng.randrange(len(content)), 1 << rng.randrange(8)
        log.path.write_bytes(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
        if place == ends[-1]:
            # What is left is a line that was not written whole.
            assert len(log.session().runs) == 2
            continue
        number = 1 + sum(end < place for end in ends)
        with pytest.raises((DamagedError, UsageError), match=rf"log\.jsonl:{number}: "):
            log.session()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda lines: [*lines[:2], *lines[3:]], id="a line is lost"),
        pytest.param(lambda lines: [*lines[:3], lines[2], *lines[3:]], id="a line stands twice"),
        pytest.param(lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], id="two lines are swapped"),
        pytest.param(lambda lines: [*lines[:2], b"", *lines[2:]], id="an empty line"),
        pytest.param(lambda lines: [*lines[:2], bytes(len(lines[2])), *lines[3:]], id="a line of zeros"),
    ],
)
def test_whole_lines_that_are_not_where_they_were_are_refused(log, change):
    for pair in range(3):
        log.append(Finished(run=made_run("native", pair, start=float(pair))))
    lines = log.path.read_bytes().split(b"\n")
    log.path.write_bytes(b"\n".join(change(lines)))
    with pytest.raises(DamagedError, match=r"log\.jsonl:\d: the line is damaged"):
        log.session()


def test_jobs_without_an_end_are_known_and_those_of_a_damaged_log_too(log):
    for job in ("1", "2", "3", "4"):
        log.append(Submitted(job=job, case="case", submitted=5.0))
    log.append(Finished(run=made_run("native", 0, job="4")))
    assert log.unfinished() == {"1": 5.0, "2": 5.0, "3": 5.0}
    log.path.write_bytes(log.path.read_bytes().replace(b'"job":"1"', b'"job":"X"'))
    with pytest.raises(DamagedError):
        log.session()
    assert log.unfinished() == log.unfinished(HEAD.system) == {"2": 5.0, "3": 5.0}
    assert log.unfinished("elsewhere") == {}
    head, _, rest = log.path.read_bytes().partition(b"\n")
    log.path.write_bytes(head + b"\n{}\n" + rest)
    assert log.unfinished() == {"2": 5.0, "3": 5.0}


def test_a_session_is_what_the_events_of_its_log_say(log):
    blank = readers.read(gather.NodeFiles({}, {}))
    identity = {"n1": blank, "n2": blank.model_copy(update={"boot": "b1"})}
    software = tuple(
        LoadedSoftware(node=node, program=f"/{node}", files={}, says={}, coretype="", cpu=frozenset())
        for node in identity
    )
    run = made_run("native", 0, job="7", identity=identity, software=software)
    failures = {kind: made_failure(kind=kind, job="2") for kind in ("infrastructure", "failed", "refused")}
    loss = Loss(round=2, nodes={"vm1": "died"})
    for event in (
        Probed(nodes={"native": blank}),
        RoundBegun(round=Round(number=1, first=0, last=1)),
        *(Submitted(job=job, case="case", submitted=5.0, held=job == "1") for job in "12345"),
        *(Failed(failure=failure) for failure in failures.values()),
        RoundBegun(round=Round(number=1, first=0, last=1, seconds=9.0)),
        RoundBegun(round=Round(number=2, first=2, last=3)),
        Submitted(job="6", case="case", submitted=6.0),
        WarmedUp(job="3", case="case"),
        Released(job="4"),
        Finished(run=run),
    ):
        log.append(event)
    session = log.session()
    assert (session.probed, session.runs) == ({"native": blank}, [run])
    assert [(part.number, part.seconds) for part in session.rounds] == [(1, 9.0), (2, None)]
    assert session.failures == list(failures.values())
    assert log.unfinished() == {"1": 5.0, "5": 5.0, "6": 6.0}
    for failure in failures.values():
        log.append(Failed(failure=failure))
    assert log.session().measured != session.measured
    log.append(RoundBegun(round=Round(number=2, first=2, last=3, seconds=9.0)))
    log.append(SetAside(loss=loss))
    # Another round, in which nothing fails, makes the failures of the round before final.
    log.append(RoundBegun(round=Round(number=3, first=4, last=5)))
    session = log.session()
    assert session.lost == [loss]
    assert [failure.kind for failure in session.failures] == ["failed", "refused", "refused"]
    # A held allocation outlives the loss of a node.
    assert log.unfinished() == {"1": 5.0}
    session.set_conclusion(Conclusion(outcome="BROKEN", conclusion="why"))
    log.conclude(session)
    digest = hashlib.sha256(log.path.read_bytes()).hexdigest()
    log.append(Released(job="9"))
    assert (log.session().outcome, log.session().log_digest, session.log_digest) == ("BROKEN", digest, digest)
    resumption = Resumption(time=HEAD.created, ended="why")
    log.append(Resumed(resumption=resumption))
    assert (log.session().resumed, log.session().outcome) == ([resumption], "UNFINISHED")
    assert log.unfinished() == {}
    log.conclude(session)
    assert log.session().log_digest == hashlib.sha256(log.path.read_bytes()).hexdigest() != digest


@pytest.mark.parametrize(
    ("later", "node_lost", "kept"),
    [("7", False, ["failed"]), ("1", False, []), ("", False, []), ("7", True, [])],
)
def test_a_program_that_failed_while_later_runs_worked_is_not_run_again(log, later, node_lost, kept):
    """Else a crash in the VM would be forgotten whenever the time of a job ends the session hours later."""
    log.append(RoundBegun(round=Round(number=1, first=0, last=1)))
    log.append(Submitted(job="1", case="case", submitted=5.0))
    log.append(Failed(failure=made_failure(kind="failed", job="2")))
    log.append(Submitted(job="7", case="case", submitted=6.0))
    if later:
        log.append(Finished(run=made_run("native", 0, job=later)))
    log.append(Failed(failure=made_failure(kind="failed", job="8")))
    log.append(Resumed(resumption=Resumption(time=HEAD.created, ended="why", node_lost=node_lost)))
    assert [failure.kind for failure in log.session().failures] == kept


def test_nothing_is_appended_after_a_last_line_without_a_seal(log):
    log.path.write_bytes(log.path.read_bytes() + b"{}\n")
    with pytest.raises(InfrastructureError, match="no checksum"):
        log.append(Submitted(job="1", case="case", submitted=5.0))


def test_many_writers_lose_nothing(log):
    def write(number):
        own = Log(log.directory)
        for pair in range(50):
            own.append(Finished(run=made_run("native", pair, job=f"{number}-{pair}", start=float(pair))))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(log.session().runs) == 200


def test_a_run_that_was_written_twice_counts_once_and_with_other_values_is_refused(log):
    first = Result.scalar("x", "y", 1.0)
    for _ in range(2):
        log.append(Finished(run=made_run("native", 0, results=(first,))))
    assert len(log.session().runs) == 1
    log.append(Finished(run=made_run("native", 0, results=(Result.scalar("x", "y", 2.0),))))
    with pytest.raises(UsageError, match="pair 0 of case, native, job 1, stands twice with different values"):
        log.session()


def test_what_runs_share_is_written_once_and_read_as_one_object(log):
    more = {"inputs": {f"input-{number}": "0" * 64 for number in range(9)}}
    runs = [made_run("native", pair, job=str(pair), start=float(pair), **more) for pair in range(10)]
    for run in runs[:5]:
        log.append(Finished(run=run))
    # Another process goes on.
    other = Log(log.directory)
    for run in runs[5:]:
        other.append(Finished(run=run))
    assert log.path.read_bytes().count(b'"event":"facts"') == 1
    assert log.session().runs == runs


def test_text_that_looks_like_a_reference_is_read_as_it_was(log):
    run = made_run("native", 0, inputs={"fact": "0" * 16})
    log.append(Finished(run=run))
    assert log.session().runs == [run]


@pytest.mark.parametrize(
    ("run", "says"),
    [
        ({"setup": {"fact": "x"}}, "no line before it has the fact 'x'"),
        ({"setup": {"fact": digest_of("[1]")}}, r"\[1\] is no dict"),
        ({"setup": []}, r"\[\] is no dict"),
        ([], r"\[\] is no dict"),
    ],
)
def test_a_run_of_facts_that_are_not_there_is_refused(log, run, says):
    facts = compact({"event": "facts", "zlib": packed({digest_of("[1]"): "[1]"})}).encode()
    log.path.write_bytes(sealed(*unsealed(log), facts, compact({"event": "finished", "run": run}).encode()))
    with pytest.raises(UsageError, match=rf"log\.jsonl:3: {says}"):
        log.session()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (packed({digest_of("[1]"): "[2]"}), "not that of digest"),
        ("\x00", "bad base85|base85"),
        (base64.b85encode(zlib.compress(bytes(2**25))).decode(), "not of this form, or too large|expected"),
        (base64.b85encode(zlib.compress(b"[1]")).decode(), "not of this form"),
        (base64.b85encode(b"no zlib").decode(), "cannot be unpacked"),
    ],
)
def test_facts_that_are_none_are_refused(log, text, says):
    line = compact({"event": "facts", "zlib": text}).encode()
    log.path.write_bytes(sealed(*unsealed(log), line))
    with pytest.raises(UsageError, match=rf"log\.jsonl:2: .*({says})"):
        log.session()


def test_all_facts_of_a_log_together_are_limited(log, monkeypatch):
    texts = [f'["{letter * 50}"]' for letter in "abc"]
    lines = [compact({"event": "facts", "zlib": packed({digest_of(t): t})}).encode() for t in texts]
    log.path.write_bytes(sealed(*unsealed(log), *lines))
    assert len(list(log.events())) == 4
    # Two of them have 150 bytes, and nothing is left for the third.
    for limit in (150, 200):
        monkeypatch.setattr(shared, "MAX_ALL_FACTS_BYTES", limit)
        with pytest.raises(UsageError, match=r"log\.jsonl:4: "):
            log.session()


def test_no_more_facts_are_written_than_can_be_read(log, monkeypatch):
    runs = [made_run("native", pair, start=float(pair), check=f"case {pair}") for pair in range(3)]
    log.append(Finished(run=runs[0]))
    facts = json.loads(unsealed(log)[1])["zlib"]
    monkeypatch.setattr(shared, "MAX_ALL_FACTS_BYTES", 2 * len(zlib.decompress(base64.b85decode(facts))))
    log.append(Finished(run=runs[1]))
    for writer in (log, Log(log.directory)):
        with pytest.raises(InfrastructureError, match="nodes and programs than can be read; begin a new"):
            writer.append(Finished(run=runs[2]))
        # Facts that it has are no new ones.
        writer.append(Finished(run=runs[1]))
    assert log.session().runs == runs[:2]


BAD_IDENTITY = '{"bad":1}'
BAD_SETUP = '{"identity":{"n":{"bad":1}},"results":[]}'


@pytest.mark.parametrize(
    "event",
    [
        {"event": "probed", "nodes": {"native": {"fact": digest_of(BAD_IDENTITY)}}},
        {"event": "finished", "run": {"setup": {"fact": digest_of(BAD_SETUP)}}},
    ],
)
def test_an_identity_of_another_form_is_refused_and_passed_over(log, event):
    facts = {digest_of(text): text for text in (BAD_IDENTITY, BAD_SETUP)}
    line = compact({"event": "facts", "zlib": packed(facts)}).encode()
    log.path.write_bytes(sealed(*unsealed(log), line, compact(event).encode()))
    with pytest.raises(UsageError, match=r"log\.jsonl:3: "):
        log.session()
    assert [event.event for event in log.events(lenient=True)] == ["begun", "facts"]
    assert log.unfinished() == {}


def test_a_full_disk_is_said_with_the_file_and_leaves_whole_lines(log, monkeypatch):
    before, write = log.path.read_bytes(), os.write

    def half(descriptor, content):
        return write(descriptor, content[: len(content) // 2])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(InfrastructureError, match=rf"{log.path}: .* is the disk full"):
        log.append(Submitted(job="1", case="case", submitted=5.0))
    assert log.path.read_bytes() == before


def test_a_log_that_is_a_link_is_neither_written_nor_read(tmp_path):
    log, target = Log(tmp_path), tmp_path / "target"
    target.touch()
    log.path.symlink_to(target)
    with pytest.raises(InfrastructureError, match="cannot be written"):
        log.append(Begun(head=HEAD))
    with pytest.raises(UsageError, match="symbolic link"):
        log.session()
    assert target.read_bytes() == b""


def test_a_log_is_not_made_larger_than_can_be_read(log, monkeypatch):
    monkeypatch.setattr(reading, "MAX_RECORD_BYTES", log.path.stat().st_size + 100)
    with pytest.raises(InfrastructureError, match="larger than"):
        log.append(Submitted(job="1", case="c" * 200, submitted=5.0))
    assert log.session().session == "s"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda line: line.replace(b'"event":"begun"', b'"event":"other"'), "no line of a session's log"),
        (lambda line: line.replace(b'"event":"begun"', b'"event":{}'), "no line of a session's log"),
        (lambda line: line.replace(b'"system"', b'"sistem"'), r"head\.system: is missing"),
        (lambda line: line.replace(b'"label":""', b'"label":"%s"' % (b"x" * 201)), r"head\.label: "),
        (lambda line: line.replace(b'"label":""', b'"label":NaN'), "expected value"),
        (lambda line: line.replace(b'"label":""', b'"label":1e999'), "not JSON compliant"),
        (lambda line: line.replace(b'"label":""', b'"label":' + b"1" * 5000), "number out of range"),
        (lambda line: line.replace(b"+00:00", b""), "has no time zone"),
        (lambda line: line.replace(b"2026-01-01", b"9999-01-01"), "out of range"),
        (lambda line: line.replace(b'"system":"x"', b'"system":"../x"'), r"head\.system: "),
        (lambda line: line.replace(b'"session":"s"', b'"session":"\\u001b[2J"'), r"head\.session: "),
        (lambda line: line.replace(b'"native":{}', b'"native":null'), r"head\.identity\.native: "),
        (lambda line: line.replace(b'"virtual":{}', b'"virtual":[1]'), r"head\.identity\.virtual: "),
        (lambda line: line.replace(b'"virtual":{}', b'"virtual":{"guest":[]}'), r"virtual\.guest: "),
        (lambda line: line.replace(b'"name":"test",', b""), r"head\.stack\.name: is missing"),
        (
            lambda line: line.replace(b'"label":""', b'"label":' + b"[" * 100000 + b"]" * 100000),
            "recursion limit",
        ),
        (lambda line: b'{"a":1}', "no line of a session's log"),
        (lambda line: b"[1]", "damaged|no line"),
    ],
)
def test_a_log_whose_seals_are_right_and_whose_content_is_not_says_where_and_why(log, change, says):
    (line,) = unsealed(log)
    assert change(line) != line
    log.path.write_bytes(sealed(change(line)))
    with pytest.raises((UsageError, DamagedError), match=rf"log\.jsonl:1: .*({says})"):
        log.session()


def test_a_log_without_its_first_line_is_no_session(tmp_path):
    Log(tmp_path).append(Submitted(job="1", case="c", submitted=5.0))
    with pytest.raises(UsageError, match="no session"):
        Log(tmp_path).session()


def test_the_document_is_made_from_the_log_and_has_no_runs(tmp_path):
    directory = keep(session_of([made_run("native", 0)], outcome="BROKEN", conclusion="why"), tmp_path)
    document = json.loads((directory / "session.json").read_text("utf-8"))
    assert (document["schema"], document["conclusion"]) == ("virtqual-session/3", "why")
    assert "runs" not in document
    assert len(Log(directory).session().runs) == 1


def test_few_bytes_do_not_become_many_objects(log):
    """16 MiB of empty lists are 1 GiB of objects, and 20 KiB of a log."""
    many = compact([[]] * 2_000_000)
    line = compact({"event": "facts", "zlib": packed({digest_of(many): many})}).encode()
    log.path.write_bytes(sealed(*unsealed(log), line))
    assert log.path.stat().st_size < 100_000
    with pytest.raises(
        UsageError, match=r"log\.jsonl:2: the facts up to here have more than 2,000,000 values"
    ):
        log.session()
    nested = compact({"event": "submitted", "job": [[]] * 2_000_000}).encode()
    log.path.write_bytes(sealed(*unsealed(log)[:1], nested))
    with pytest.raises(UsageError, match=r"log\.jsonl:2: it has more than 2,000,000 values"):
        log.session()


def test_what_could_not_be_read_for_its_values_is_not_written(log, monkeypatch):
    monkeypatch.setattr(shared, "MAX_VALUES", 20)
    with pytest.raises(InfrastructureError, match="more nodes and programs than can be read"):
        log.append(Finished(run=made_run("native", 0, nodes=tuple(f"n{number}" for number in range(20)))))


def test_runs_of_a_setup_share_their_nodes(log):
    """A thousand nodes, of a thousand runs, would be a million entries."""
    blank = readers.read(gather.NodeFiles({}, {}))
    names = ("n1", "n2")
    run = made_run("native", 0, nodes=names, hosts={"n1": "h1"}, identity=dict.fromkeys(names, blank))
    for pair in range(2):
        log.append(Finished(run=run.model_copy(update={"pair": pair})))
    first, second = log.session().runs
    for name in ("nodes", "hosts", "software", "identity"):
        assert getattr(first, name) == getattr(run, name)
        assert getattr(first, name) is getattr(second, name)


def test_runs_that_repeat_too_much_of_a_setup_are_refused(log, monkeypatch):
    results = (Result.scalar("x", "y" * 1000, 1.0),)
    for pair in range(9):
        log.append(Finished(run=made_run("native", pair, results=results)))
    assert len(log.session().runs) == 9
    monkeypatch.setattr(shared, "MAX_REPEATED_BYTES", 8000)
    with pytest.raises(UsageError, match=r"log\.jsonl:10: the runs up to here repeat more than"):
        log.session()


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda facts: facts["topology"].update(used="0-1x"), "topology.used: '0-1x' is not a list of CPUs"),
        (lambda facts: facts["topology"].update(threads_used=0), "topology.threads_used"),
        (lambda facts: facts["topology"].update(numa={}), "topology.numa"),
        (lambda facts: facts["topology"].update(numa={"0": "x"}), "topology.numa"),
        (lambda facts: facts["topology"].update(packages={"0": ""}), "topology.packages"),
        (lambda facts: facts["topology"].update(caches={"L3": "1M shared by x"}), "topology.caches"),
    ],
)
def test_a_node_that_cannot_be_is_refused_where_it_is_read(log, edit, says):
    """The report, which describes nodes, would end in a traceback."""
    facts = readers.read(gather.NodeFiles({}, {})).plain()
    edit(facts)
    text = compact(facts)
    lines = [
        compact({"event": "facts", "zlib": packed({digest_of(text): text})}).encode(),
        compact({"event": "probed", "nodes": {"native": {"fact": digest_of(text)}}}).encode(),
    ]
    log.path.write_bytes(sealed(*unsealed(log), *lines))
    with pytest.raises(UsageError, match=r"log\.jsonl:3: Identity: ") as error:
        log.session()
    assert says in str(error.value)
