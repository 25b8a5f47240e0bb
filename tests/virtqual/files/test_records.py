"""A document is the old one or the new one, whatever happens, and is never written through a link."""

import errno
import os
import threading

import pytest

from virtqual.files import records
from virtqual.files.locking import hold_lock
from virtqual.files.records import open_directory, open_no_link, write_file


def test_a_link_at_the_name_is_replaced_and_not_followed(tmp_path):
    target, file = tmp_path / "authorized_keys", tmp_path / "report.html"
    target.write_text("mine", encoding="utf-8")
    for name in ("report.html", "report.html.part"):
        (tmp_path / name).symlink_to(target)
    write_file("page", file)
    assert (target.read_text(), file.read_text(), file.is_symlink()) == ("mine", "page", False)


def test_a_device_or_a_pipe_is_not_replaced(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "stdout"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for file in (pipe, link):
        with pytest.raises(OSError, match="it is no regular file"):
            write_file("page", file)
    assert pipe.is_fifo()
    assert link.is_symlink()


def test_no_reader_gets_half_of_it_and_no_writer_fails(tmp_path):
    file, errors = tmp_path / "summary.json", []
    contents = [letter * 200_000 for letter in "abcd"]
    write_file(contents[0], file)

    def write(content):
        try:
            for _ in range(20):
                write_file(content, file)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert file.read_text() in contents
    assert not errors
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_disk_that_is_full_leaves_the_old_one_and_nothing_else(tmp_path, monkeypatch, call):
    file = tmp_path / "session.json"
    write_file("old", file)

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if call == "fsync":
        monkeypatch.setattr(records.os, "fsync", fail)
    else:
        monkeypatch.setattr(records.os, "rename", fail)
    with pytest.raises(OSError, match="No space left") as raised:
        write_file("new", file)
    assert raised.value.filename == str(file)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_file_is_as_open_as_the_umask_and_the_state_directory_allow(tmp_path, monkeypatch):
    before = os.umask(0o027)
    try:
        write_file("x", tmp_path / "private")
        os.umask(0o002)
        write_file("x", tmp_path / "file")
        monkeypatch.setenv("VIRTQUAL_STATE_SHARED", "1")
        write_file("x", tmp_path / "shared")
        (tmp_path / "file").chmod(0o600)
        write_file("y", tmp_path / "file")
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("file", "shared", "private")]
    assert modes == [0o600, 0o664, 0o640]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_the_mode_of_a_file_of_another_user_is_not_kept(tmp_path):
    file = tmp_path / "report.html"
    file.touch()
    file.chmod(0o666)
    os.chown(file, 65534, -1)
    write_file("page", file)
    assert (file.stat().st_mode & 0o022, file.stat().st_uid) == (0, 0)


def test_a_file_is_written_to_the_directory_that_was_opened(tmp_path):
    opened, other = tmp_path / "opened", tmp_path / "other"
    opened.mkdir()
    other.mkdir()
    with open_directory(opened) as descriptor:
        opened.rename(tmp_path / "moved")
        opened.symlink_to(other)
        write_file("page", opened / "report.html", descriptor)
    assert (list(other.iterdir()), (tmp_path / "moved/report.html").read_text()) == ([], "page")


def test_a_log_that_is_written_piece_by_piece_follows_no_link(tmp_path):
    target, log = tmp_path / "target", tmp_path / "round-1.log"
    target.write_text("mine", encoding="utf-8")
    log.symlink_to(target)
    with (
        pytest.raises(OSError, match="symbolic links"),
        open(log, "w", encoding="utf-8", opener=open_no_link),
    ):
        pass
    assert target.read_text("utf-8") == "mine"


def test_a_lock_waits_for_its_holder_and_follows_no_link(tmp_path):
    events = []

    def hold_later():
        with hold_lock(tmp_path / "lock"):
            events.append("second")

    with hold_lock(tmp_path / "lock"):
        thread = threading.Thread(target=hold_later)
        thread.start()
        thread.join(0.2)
        events.append("first")
    thread.join()
    assert events == ["first", "second"]
    (tmp_path / "link").symlink_to(tmp_path / "lock")
    with pytest.raises(OSError, match="symbolic links"), hold_lock(tmp_path / "link"):
        pass
