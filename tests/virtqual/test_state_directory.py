"""A state directory that others can write to is refused: its files name commands and jobs."""

import errno
import fcntl
import json
import os
import re
import socket
import time
from types import SimpleNamespace

import pytest

from made_runs import keep, made_run, session_of
from virtqual import paths, trust
from virtqual.errors import InfrastructureError, UsageError
from virtqual.history.channels import read_notify
from virtqual.qualify import leftovers
from virtqual.session import lock
from virtqual.session.lock import measuring
from virtqual.session.log import DOCUMENT, Log, Submitted

STRANGER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path / "state"))
    return paths.make(paths.state())


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o702])
def test_others_may_not_write_to_it(state, monkeypatch, mode):
    monkeypatch.setattr(trust, "_is_private", lambda group, owners: False)
    state.chmod(mode)
    with pytest.raises(InfrastructureError, match=r"other users can write to it.* chmod go-w"):
        paths.make(paths.sessions())
    monkeypatch.setenv("VIRTQUAL_STATE_SHARED", "1")
    assert paths.make(paths.sessions()).is_dir()


@as_root
def test_it_may_not_belong_to_another_user(state):
    os.chown(state, STRANGER, -1)
    with pytest.raises(InfrastructureError, match=f"belongs to user {STRANGER}"):
        paths.make(state)


def test_it_is_made_for_its_user_alone_to_write(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path / "new"))
    before = os.umask(0)
    try:
        assert paths.make(paths.sessions()).stat().st_mode & 0o022 == 0
    finally:
        os.umask(before)


def notify(file, mode=0o644):
    file.write_text("schema: virtqual-notify/1\ncommand: id\n", encoding="utf-8")
    file.chmod(mode)
    return file


def test_commands_come_from_a_file_that_only_its_user_can_write(tmp_path):
    assert read_notify(notify(tmp_path / "notify.yaml")).command == "id"
    with pytest.raises(UsageError, match=r"others can write it.*chmod go-w"):
        read_notify(notify(tmp_path / "notify.yaml", 0o666))
    link = tmp_path / "link.yaml"
    link.symlink_to(notify(tmp_path / "notify.yaml"))
    with pytest.raises(UsageError, match="symbolic link"):
        read_notify(link)


@as_root
def test_commands_do_not_come_from_a_file_of_another_user(tmp_path):
    file = notify(tmp_path / "notify.yaml")
    os.chown(file, STRANGER, -1)
    with pytest.raises(UsageError, match=f"belongs to user {STRANGER}"):
        read_notify(file)
    # A session sends nothing: another user's file of a shared site does not stop it.
    assert read_notify(file, sends=False).command == "id"


@pytest.fixture
def cancelled(monkeypatch):
    """Return the jobs that were asked to be cancelled."""
    asked = {}
    monkeypatch.setattr(leftovers, "cancel_jobs", lambda jobs: asked.update(jobs) or list(jobs))
    return asked


def left():
    """Return the directory of a session that died while a job of it ran."""
    directory = keep(session_of([], name="20260101-000000-site"), paths.sessions())
    Log(directory).append(Submitted(job="4242", case="case", submitted=5.0))
    return directory


def test_jobs_of_a_session_that_died_are_cancelled(state, cancelled):
    left()
    (note,) = leftovers.end_leftovers("site")
    assert (cancelled, "4242" in note) == ({"4242": 5.0}, True)


def test_jobs_that_slurm_did_not_cancel_when_the_last_session_ended_are_cancelled(state, cancelled):
    log = Log(left())
    session = log.session()
    session.outcome, session.exit_code = "INTERRUPTED", 130
    log.conclude(session)
    log.write()
    assert list(leftovers.end_leftovers("other")) == []
    assert list(leftovers.end_leftovers("site")) == [
        "session 20260101-000000-site had left jobs: 4242 cancelled"
    ]
    assert cancelled == {"4242": 5.0}
    assert log.session().outcome == "INTERRUPTED"


@as_root
@pytest.mark.parametrize("shared", ["", "1"])
def test_a_session_of_another_user_is_left_as_it_is(state, cancelled, monkeypatch, shared):
    monkeypatch.setenv("VIRTQUAL_STATE_SHARED", shared)
    directory = left()
    os.chown(directory / "log.jsonl", STRANGER, -1)
    (note,) = leftovers.end_leftovers("site")
    assert (cancelled, f"belongs to user {STRANGER}: it is left as it is" in note) == ({}, True)
    assert not (directory / DOCUMENT).exists()


def test_a_damaged_session_is_left_as_it_is_and_its_jobs_are_cancelled(state, cancelled):
    log = Log(left())
    log.append(Submitted(job="5", case="case", submitted=6.0))
    content = log.path.read_bytes().replace(b'"submitted":5', b'"submitted":4')
    log.path.write_bytes(content)
    assert list(leftovers.end_leftovers("other")) == []
    assert cancelled == {}
    (note,) = leftovers.end_leftovers("site")
    assert cancelled == {"5": 6.0}
    assert "had left jobs: 5 cancelled" in note
    assert "the line is damaged" in note
    assert log.path.read_bytes() == content
    assert not (log.directory / DOCUMENT).exists()


def test_a_concluded_session_without_its_document_stays_concluded(state, cancelled):
    """It was killed, or its disk was full, between the log's line and the document."""
    session = session_of([made_run("native", 0)], name="20260101-000000-site", outcome="WITHIN", exit_code=0)
    directory = keep(session, paths.sessions())
    (directory / DOCUMENT).unlink()
    assert list(leftovers.end_leftovers("site")) == []
    assert Log(directory).session().outcome == "WITHIN"
    assert json.loads((directory / DOCUMENT).read_text())["outcome"] == "WITHIN"


def refused(says):
    return pytest.raises(InfrastructureError, match=says)


def test_a_lock_that_is_a_link_is_refused(state):
    target = state / "target"
    target.write_text("mine", encoding="utf-8")
    (state / "measuring-site.lock").symlink_to(target)
    with refused("taken: it is a symbolic link$"), measuring(state, "site", "me", print):
        pass
    assert target.read_text() == "mine"


def test_a_lock_that_is_a_directory_is_refused(state):
    (state / "measuring-site.lock").mkdir()
    with refused("taken: Is a directory$"), measuring(state, "site", "me", print):
        pass


@as_root
def test_a_lock_of_another_user_is_refused(state):
    (state / "measuring-site.lock").touch()
    os.chown(state / "measuring-site.lock", STRANGER, -1)
    with refused("belongs to another user"), measuring(state, "site", "me", print):
        pass


@pytest.mark.parametrize(("shared", "mode"), [("", 0o644), ("1", 0o666)])
def test_others_can_write_to_the_lock_of_a_shared_state_directory_alone(state, monkeypatch, shared, mode):
    monkeypatch.setenv("VIRTQUAL_STATE_SHARED", shared)
    before = os.umask(0)
    try:
        with measuring(state, "site", "me", print) as descriptor:
            assert os.fstat(descriptor).st_mode & 0o777 == mode
    finally:
        os.umask(before)


def test_a_second_session_is_refused_at_once(state):
    """It waits only if the first one has ended."""
    says = rf"first \(process {os.getpid()} on {socket.gethostname()}, since [\d:]{{8}}\) measures on this"
    with measuring(state, "site", "first", print):
        with refused(says), measuring(state, "site", "second", pytest.fail):
            pass
        with measuring(state, "other", "second", pytest.fail):
            pass


#: Linux gives no process a number so high.
ENDED_PROCESS = 2**22 + 1


def holder(state, host, age):
    file, since = state / "measuring-site.lock", time.time() - age
    file.write_text(json.dumps({"who": "session x", "pid": ENDED_PROCESS, "host": host, "since": since}))
    os.utime(file, (since, since))
    return time.strftime("%H:%M:%S", time.localtime(since))


@pytest.fixture
def waits(state, monkeypatch):
    """Return the seconds that were waited for a heartbeat; a function in place of `beat` sends one."""
    waits, now = SimpleNamespace(seconds=0, beat=lambda: None), time.monotonic

    def wait(seconds):
        waits.seconds += seconds
        waits.beat()

    monkeypatch.setattr(lock.time, "sleep", wait)
    monkeypatch.setattr(lock.time, "monotonic", lambda: now() + waits.seconds)
    return waits


def test_a_holder_that_lives_on_another_node_is_respected(state, waits):
    """The file system may lock on one node only: its lock is free here."""
    since, notes = holder(state, "login2", age=60), []
    who = rf"session x \(process {ENDED_PROCESS} on login2, since {since}\)"
    waits.beat = lambda: waits.seconds < 10 or os.utime(state / "measuring-site.lock")
    with refused(rf"{who} measures .* locks on one node only"), measuring(state, "site", "me", notes.append):
        pass
    assert waits.seconds == 10
    (note,) = notes
    assert re.fullmatch(rf"{who} measured .* 6. s ago; waiting 2.. s to see that it has died", note)


def test_a_job_that_lost_its_node_goes_on_elsewhere(state, waits):
    """Slurm starts it again before its last heartbeat is old."""
    holder(state, "node1", age=60)
    with measuring(state, "site", "me", str):
        assert "me" in (state / "measuring-site.lock").read_text()
    assert lock.STALE_S - 70 < waits.seconds < lock.STALE_S


def test_a_session_that_was_killed_on_this_node_keeps_no_other_out(state):
    """Its name is still in the file; the kernel has freed its lock."""
    holder(state, socket.gethostname(), age=1)
    with measuring(state, "site", "me", pytest.fail):
        assert "me" in (state / "measuring-site.lock").read_text()


@pytest.mark.parametrize("since", ['"noon"', "1e300", "[" * 100_000])
def test_a_holder_that_makes_no_sense_is_another_session(state, since):
    (state / "measuring-site.lock").write_text(f'{{"who": "x", "pid": 1, "host": "h", "since": {since}}}')
    with (state / "measuring-site.lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with refused("another session measures"), measuring(state, "site", "me", pytest.fail):
            pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_whose_locks_do_not_work_is_named(state, monkeypatch, number):
    """An NFS without its lock daemon answers so: no session begins, and no line is appended."""

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.raises(InfrastructureError, match=r"measuring-site\.lock: the file system gives no lock"),
        measuring(state, "site", "me", print),
    ):
        pass
    with pytest.raises(InfrastructureError, match=rf"log\.jsonl: .*cannot be written: {os.strerror(number)}"):
        Log(state).append(Submitted(job="7", case="c", submitted=1.0))
    assert (state / "log.jsonl").read_bytes() == b""


def test_a_holder_without_a_heartbeat_is_dead(state):
    holder(state, "login2", age=lock.STALE_S + 5)
    with measuring(state, "site", "me", pytest.fail):
        assert "me" in (state / "measuring-site.lock").read_text()
    assert (state / "measuring-site.lock").read_text() == ""


def test_a_session_that_an_error_ended_leaves_no_holder(state):
    with pytest.raises(ZeroDivisionError), measuring(state, "site", "me", print):
        raise ZeroDivisionError
    assert (state / "measuring-site.lock").read_text() == ""


@pytest.mark.parametrize("was_killed", [False, True])
def test_the_end_of_what_an_ended_session_has_started_is_waited_for(state, monkeypatch, was_killed):
    """A session that ends empties the file; its ReFrame may hold the lock a little longer."""
    notes, waits, who = [], [], "another session"
    with (state / "measuring-site.lock").open("w") as file:
        if was_killed:
            since = holder(state, socket.gethostname(), age=60)
            who = f"session x (process {ENDED_PROCESS} on {socket.gethostname()}, since {since})"
        fcntl.flock(file, fcntl.LOCK_EX)

        def wait(seconds):
            waits.append(seconds)
            if len(waits) == 2:
                fcntl.flock(file, fcntl.LOCK_UN)

        monkeypatch.setattr(lock.time, "sleep", wait)
        with measuring(state, "site", "me", notes.append):
            assert notes == [f"{who} has ended; waiting until what it started has ended"]
        fcntl.flock(file, fcntl.LOCK_EX)
        monkeypatch.setattr(lock, "MAX_CLEANUP_S", -1)
        with refused("another session measures"), measuring(state, "site", "me", notes.append):
            pass


def test_a_holder_sends_heartbeats(state, monkeypatch):
    """A file system that fails once does not end them."""
    errors, utime = [OSError(errno.ESTALE, "Stale file handle")], os.utime

    def touch(descriptor):
        if errors:
            raise errors.pop()
        utime(descriptor)

    monkeypatch.setattr(lock, "TOUCH_S", 0.02)
    monkeypatch.setattr(lock.os, "utime", touch)
    file = state / "measuring-site.lock"
    with measuring(state, "site", "me", print):
        utime(file, (0, 0))
        until = time.monotonic() + 20
        while file.stat().st_mtime == 0 and time.monotonic() < until:
            time.sleep(0.01)
        assert file.stat().st_mtime > 0
