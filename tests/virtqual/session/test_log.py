"""The log is the record: whatever dies, what was written is read, and nothing else."""

import json
import threading

import pytest

from made_runs import keep, made_run, session_of
from virtqual.errors import InfrastructureError, UsageError
from virtqual.session.log import Begun, Finished, Log, Submitted
from virtqual.session.session import Head

HEAD = Head(session="s", created="2026-01-01", system="x", hypervisor_class="kvm", identity={}, stack={})


@pytest.fixture
def log(tmp_path):
    made = Log(tmp_path)
    made.append(Begun(head=HEAD))
    return made


def test_a_writer_that_dies_in_a_line_costs_that_line_alone(log):
    log.append(Finished(run=made_run("native", 0)))
    with log.path.open("ab") as file:
        file.write(b'{"event":"finished","run":{"check":"case","pair":1')
    assert [run.pair for run in log.session().runs] == [0]
    log.append(Finished(run=made_run("virtual", 0, job="2", start=5.0)))
    assert [(run.pair, run.side) for run in log.session().runs] == [(0, "native"), (0, "virtual")]


def test_wherever_a_line_is_cut_the_others_are_read(log):
    log.append(Finished(run=made_run("native", 0)))
    whole = log.path.read_bytes()
    log.append(Finished(run=made_run("virtual", 0, job="2", start=5.0, check="case \u00fc")))
    last = log.path.read_bytes()[len(whole) :]
    for cut in range(len(last) - 1):
        log.path.write_bytes(whole + last[:cut] + b"\n" + last)
        assert len(log.session().runs) == 2, cut


def test_many_writers_lose_nothing(log):
    def write(number):
        for pair in range(50):
            log.append(Finished(run=made_run("native", pair, job=f"{number}-{pair}", start=float(pair))))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(log.session().runs) == 200


def test_a_run_that_was_written_twice_counts_once(log):
    for _ in range(2):
        log.append(Finished(run=made_run("native", 0)))
    assert len(log.session().runs) == 1


def test_jobs_without_an_end_are_known(log):
    for job in ("1", "2"):
        log.append(Submitted(job=job, case="case", submitted=5.0))
    log.append(Finished(run=made_run("native", 0, job="1")))
    assert log.unfinished() == {"2": 5.0}


def test_a_full_disk_is_said_with_the_file(tmp_path):
    """M15: it was what nobody foresaw, and which directory was full was not said."""
    log = Log(tmp_path)
    log.path.symlink_to("/dev/full")
    with pytest.raises(InfrastructureError, match=rf"{log.path}: .*No space left on device"):
        log.append(Begun(head=HEAD))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda line: line.replace("virtqual-session/2", "virtqual-session/9"), "no log of this version"),
        (lambda line: line.replace('"event":"begun"', '"event":"other"'), "no line of a session's log"),
        (lambda line: line.replace('"system"', '"sistem"'), r"head\.system: is missing"),
        (lambda line: "{}", "no line of a session's log"),
    ],
)
def test_a_log_that_cannot_be_read_says_where_and_why(log, change, says):
    log.path.write_text(change(log.path.read_text("utf-8")), "utf-8")
    with pytest.raises(UsageError, match=rf"log\.jsonl:1: .*{says}"):
        log.session()


def test_a_log_without_its_first_line_is_no_session(tmp_path):
    Log(tmp_path).append(Submitted(job="1", case="c", submitted=5.0))
    with pytest.raises(UsageError, match="no session"):
        Log(tmp_path).session()


def test_the_document_is_made_from_the_log(tmp_path):
    directory = keep(session_of([made_run("native", 0)], outcome="BROKEN", conclusion="why"), tmp_path)
    document = json.loads((directory / "session.json").read_text("utf-8"))
    assert (document["conclusion"], len(document["runs"])) == ("why", 1)
    (directory / "session.json").unlink()
    assert Log(directory).session().model_dump(mode="json", by_alias=True) == document
