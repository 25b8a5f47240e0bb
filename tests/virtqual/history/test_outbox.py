"""Notices are delivered once, by every way, and never lost."""

import json
import os
import socket
import subprocess
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from virtqual.errors import UsageError
from virtqual.history import outbox
from virtqual.history.nights import Notice

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def notice(number, kind="over"):
    return Notice(
        kind,
        "site",
        "kvm",
        f"metric {number}",
        f"s{number}",
        FIRST + timedelta(days=number),
        f"news {number}",
    )


EVERY = [notice(n) for n in range(4)]
PLACE = ("site", "kvm")
SPANS = {PLACE: (FIRST, FIRST)}


@pytest.fixture
def way():
    """A way that remembers what it has sent, and fails as long as it is told to."""

    class Way:
        def __init__(self):
            self.sent, self.fails = [], False

        def __call__(self, one):
            if self.fails:
                raise OSError("nobody answers")
            self.sent.append(one.id)

    return Way()


def test_each_is_sent_once_and_later_ones_when_they_come(tmp_path, way):
    for count in (1, 1, 3, 4, 4):
        sent, failed = outbox.deliver(EVERY[:count], tmp_path, {"w": way}, SPANS)
        assert failed == []
    assert (sent, way.sent) == (0, [one.id for one in EVERY])


def test_a_way_that_fails_for_two_nights_has_all_in_the_third(tmp_path, way):
    way.fails = True
    for count in (1, 2):
        sent, failed = outbox.deliver(EVERY[:count], tmp_path, {"w": way}, SPANS)
        assert (sent, failed) == (0, ["w: nobody answers"])
    way.fails = False
    assert outbox.deliver(EVERY[:3], tmp_path, {"w": way}, SPANS) == (3, [])
    assert way.sent == [one.id for one in EVERY[:3]]


def test_one_way_does_not_wait_for_another(tmp_path, way):
    def broken(one):
        raise OSError("down")

    assert outbox.deliver(EVERY, tmp_path, {"broken": broken, "w": way}, SPANS) == (4, ["broken: down"])
    assert outbox.deliver(EVERY, tmp_path, {"w": way}, SPANS) == (0, [])


@pytest.mark.parametrize(
    "error", [ValueError("embedded null byte"), UsageError("chmod 600"), KeyError("bug")]
)
def test_whatever_goes_wrong_with_one_way_the_others_go_on(tmp_path, way, error):
    def broken(one):
        raise error

    sent, (failed,) = outbox.deliver(EVERY, tmp_path, {"broken": broken, "w": way}, SPANS)
    assert (sent, failed.startswith("broken: ")) == (4, True)


@pytest.mark.parametrize("answer", ["HTTP/1.1 301 Moved\r\nLocation: /new\r\n\r\n", "rubbish\r\n"])
def test_a_webhook_that_has_moved_or_answers_rubbish_has_no_receipt(tmp_path, answer):
    with socket.create_server(("127.0.0.1", 0)) as server:
        got = []

        def serve():
            connection, _ = server.accept()
            with connection:
                got.append(connection.recv(65536))
                connection.sendall(answer.encode())

        thread = threading.Thread(target=serve)
        thread.start()
        way = outbox.Webhook(url=f"http://127.0.0.1:{server.getsockname()[1]}/secret")
        ways = outbox.Notify(schema="virtqual-notify/1", webhook=way).ways()
        sent, (failed,) = outbox.deliver(EVERY[:1], tmp_path, ways, SPANS)
        thread.join()
    assert (sent, len(got), "secret" in failed) == (0, 1, False)


def test_a_secret_url_with_a_blank_is_not_said(tmp_path):
    url = tmp_path / "url"
    url.write_text("http://127.0.0.1:9/secret one\nsecond line\n")
    url.chmod(0o600)
    ways = outbox.Notify(schema="virtqual-notify/1", webhook=outbox.Webhook(url_file=url)).ways()
    (failed,) = outbox.deliver(EVERY[:1], tmp_path / "box", ways, SPANS)[1]
    assert failed == "webhook: its URL is none of http or https, or has blanks in it"


def test_control_characters_reach_no_header_and_no_variable(tmp_path):
    odd = replace(EVERY[0], subject="a\nBcc: x@y", text="nul\0 here")
    file = tmp_path / "notify.yaml"
    file.write_text(
        f'schema: virtqual-notify/1\ncommand: echo "$VIRTQUAL_NOTICE_SUBJECT" > {tmp_path}/told\n'
    )
    assert outbox.deliver([odd], tmp_path / "box", outbox.read(file).ways(), SPANS) == (1, [])
    assert (tmp_path / "told").read_text() == "virtqual site: OVER budget: a Bcc: x@y\n"


def test_a_crash_between_delivery_and_receipt_repeats_it_with_the_same_id(tmp_path, way):
    class Crash(BaseException):
        pass

    def crashes(one):
        way(one)
        if len(way.sent) == 2:
            raise Crash

    with pytest.raises(Crash):
        outbox.deliver(EVERY, tmp_path, {"w": crashes}, SPANS)
    outbox.deliver(EVERY, tmp_path, {"w": way}, SPANS)
    ids = [one.id for one in EVERY]
    assert way.sent == [ids[0], ids[1], ids[1], ids[2], ids[3]]


@pytest.mark.skipif(os.geteuid() != 0, reason="a full file system has to be mounted, by root")
def test_where_there_is_no_room_for_a_receipt_nothing_is_sent(tmp_path, way):
    box = tmp_path / "box"
    box.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=40", "full", box], check=True)
    try:
        assert outbox.deliver(EVERY[:1], box, {"w": way}, SPANS) == (1, [])
        fill = box / "fill"
        subprocess.run(["dd", "if=/dev/zero", f"of={fill}", "bs=4k"], stderr=subprocess.DEVNULL, check=False)
        sent, (failed,) = outbox.deliver(EVERY, box, {"w": way}, SPANS)
        assert (sent, "No space left on device" in failed) == (0, True)
        fill.unlink()
        assert outbox.deliver(EVERY, box, {"w": way}, SPANS) == (3, [])
        assert way.sent == [one.id for one in EVERY]
    finally:
        subprocess.run(["umount", box], check=True)


def test_what_was_before_the_first_time_is_no_news(tmp_path, way):
    outbox.deliver(EVERY, tmp_path, {"w": way}, {PLACE: (FIRST, EVERY[2].when)})
    outbox.deliver(EVERY, tmp_path, {"w": way}, SPANS)
    assert way.sent == [one.id for one in EVERY[2:]]


def test_each_system_has_a_first_time_of_its_own(tmp_path, way):
    late = replace(notice(1), system="late")
    outbox.deliver(EVERY[:1], tmp_path, {"w": way}, SPANS)
    outbox.deliver(
        [*EVERY[:1], late], tmp_path, {"w": way}, {**SPANS, ("late", "kvm"): (FIRST, EVERY[3].when)}
    )
    assert way.sent == [EVERY[0].id]


def test_what_the_oldest_session_shows_is_no_news_where_older_ones_were_deleted(tmp_path, way):
    outbox.deliver(EVERY[:1], tmp_path, {"w": way}, SPANS)
    oldest = [replace(notice(n), first=True) for n in (1, 2)]
    outbox.deliver([*oldest, EVERY[3]], tmp_path, {"w": way}, {PLACE: (EVERY[1].when, EVERY[3].when)})
    assert way.sent == [EVERY[0].id, EVERY[3].id]
    # The first session that there ever was is told.
    outbox.deliver(oldest[:1], tmp_path, {"new": way}, {PLACE: (EVERY[1].when, EVERY[1].when)})
    assert way.sent[-1] == oldest[0].id


def test_a_command_gets_the_sentence_and_what_it_is_about(tmp_path):
    file = tmp_path / "notify.yaml"
    file.write_text(f"schema: virtqual-notify/1\ncommand: cat > {tmp_path}/$VIRTQUAL_NOTICE_KIND\n")
    assert outbox.deliver(EVERY[:1], tmp_path / "box", outbox.read(file).ways(), SPANS) == (1, [])
    assert (tmp_path / "over").read_text() == "news 0\n"
    file.write_text("schema: virtqual-notify/1\ncommand: echo no mail here >&2; exit 3\n")
    _, failed = outbox.deliver(EVERY, tmp_path / "box", outbox.read(file).ways(), SPANS)
    assert failed == ["command: ended with 3: no mail here"]


def test_a_webhook_gets_json_and_its_secret_is_not_told(tmp_path):
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(
                (
                    self.headers["Idempotency-Key"],
                    json.loads(self.rfile.read(int(self.headers["Content-Length"]))),
                )
            )
            self.send_response(500 if len(got) == 1 else 204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = tmp_path / "url"
        url.write_text(f"http://127.0.0.1:{server.server_port}/secret\n")
        url.chmod(0o600)
        file = tmp_path / "notify.yaml"
        file.write_text(f"schema: virtqual-notify/1\nwebhook: {{url_file: {url}}}\n")
        ways = outbox.read(file).ways()
        assert outbox.deliver(EVERY[:1], tmp_path / "box", ways, SPANS) == (0, ["webhook: HTTPError 500"])
        assert outbox.deliver(EVERY[:1], tmp_path / "box", ways, SPANS) == (1, [])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert [key for key, _ in got] == [EVERY[0].id] * 2
    assert (got[1][1]["kind"], got[1][1]["metric"], got[1][1]["text"]) == ("over", "metric 0", "news 0")
    url.chmod(0o644)
    (failed,) = outbox.deliver(EVERY[1:2], tmp_path / "box", ways, SPANS)[1]
    assert "others may read it, and it holds a secret" in failed


def test_mail_has_an_id_of_its_own(tmp_path, monkeypatch):
    sent = []

    class Server:
        def __init__(self, host, port, timeout):
            assert (host, port) == ("mail", 25)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def send_message(self, message):
            sent.append(message)
            return {"lost@site": (550, b"unknown")} if len(sent) == 1 else {}

    monkeypatch.setattr(outbox.smtplib, "SMTP", Server)
    file = tmp_path / "notify.yaml"
    file.write_text("schema: virtqual-notify/1\nsmtp: {host: mail, sender: hpc@site, to: [ops@site]}\n")
    _, failed = outbox.deliver(EVERY[:1], tmp_path / "box", outbox.read(file).ways(), SPANS)
    assert failed == ["smtp: mail refuses the recipients lost@site"]
    # Who has got it does not get it again, and what comes next comes.
    assert outbox.deliver(EVERY[:2], tmp_path / "box", outbox.read(file).ways(), SPANS) == (1, [])
    assert [message["Message-ID"] for message in sent] == [f"<{e.id}@virtqual.invalid>" for e in EVERY[:2]]
    assert sent[0]["Date"]
    assert sent[0]["Subject"] == "virtqual site: OVER budget: metric 0"
    assert sent[0]["Message-ID"] == f"<{EVERY[0].id}@virtqual.invalid>"
    assert sent[0].get_content() == "news 0\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("comand: mail", r"notify.yaml:2: comand"),
        ("webhook: {url: http://a, url_file: b}", "either `url` or `url_file`"),
        ("expected_within_hours: -1", "expected_within_hours"),
        ("smtp: {host: a, sender: b, to: [c], user: d, password_file: e}", "starttls: true"),
    ],
)
def test_mistakes_are_named(tmp_path, content, told):
    file = tmp_path / "notify.yaml"
    file.write_text(f"schema: virtqual-notify/1\n{content}\n")
    with pytest.raises(UsageError, match=told):
        outbox.read(file)
