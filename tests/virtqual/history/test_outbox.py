"""Notices are delivered once over every channel, and never lost."""

import os
import socket
import subprocess
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from virtqual.errors import UsageError
from virtqual.history import outbox
from virtqual.history.channels import read_notify
from virtqual.history.nights import Notice

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def notice(number):
    when = FIRST + timedelta(days=number)
    return Notice("over", "site", "kvm", f"metric {number}", f"s{number}", when, f"news {number}")


NOTICES = [notice(n) for n in range(4)]
IDS = [item.id for item in NOTICES]
PLACE = ("site", "kvm")
SPANS = {PLACE: (FIRST, FIRST)}


class Channel:
    """A channel that remembers what it has sent, and fails while it is told to."""

    def __init__(self):
        self.sent, self.fails = [], False

    def __call__(self, item):
        if self.fails:
            raise OSError("nobody answers")
        self.sent.append(item.id)


@pytest.fixture
def channel():
    return Channel()


@pytest.fixture
def senders_of(tmp_path):
    """Return how to read the senders of a ``notify.yaml``."""

    def read(content):
        file = tmp_path / "notify.yaml"
        file.write_text(f"schema: virtqual-notify/1\n{content}\n")
        return read_notify(file).senders()

    return read


def test_each_is_sent_once_and_later_ones_when_they_come(tmp_path, channel):
    for count in (1, 1, 3, 4, 4):
        sent, failures = outbox.deliver(NOTICES[:count], tmp_path, {"w": channel}, SPANS)
        assert failures == []
    assert (sent, channel.sent) == (0, IDS)


def test_a_channel_that_fails_for_two_nights_has_all_in_the_third(tmp_path, channel):
    channel.fails = True
    for count in (1, 2):
        result = outbox.deliver(NOTICES[:count], tmp_path, {"w": channel}, SPANS)
        assert result == (0, ["w: nobody answers"])
    channel.fails = False
    assert outbox.deliver(NOTICES[:3], tmp_path, {"w": channel}, SPANS) == (3, [])
    assert channel.sent == IDS[:3]


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (OSError("down"), "broken: down"),
        (UsageError("chmod 600"), "broken: chmod 600"),
        (ValueError("embedded null byte"), "broken: ValueError"),
        (KeyError("bug"), "broken: KeyError"),
    ],
)
def test_other_channels_go_on_if_one_fails(tmp_path, channel, error, failure):
    def broken(_):
        raise error

    channels = {"broken": broken, "w": channel}
    assert outbox.deliver(NOTICES, tmp_path, channels, SPANS) == (4, [failure])
    assert outbox.deliver(NOTICES, tmp_path, {"w": channel}, SPANS) == (0, [])


def test_a_crash_between_delivery_and_receipt_repeats_it_with_the_same_id(tmp_path, channel):
    class CrashError(BaseException):
        pass

    def crashes(item):
        channel(item)
        if len(channel.sent) == 2:
            raise CrashError

    with pytest.raises(CrashError):
        outbox.deliver(NOTICES, tmp_path, {"w": crashes}, SPANS)
    outbox.deliver(NOTICES, tmp_path, {"w": channel}, SPANS)
    assert channel.sent == [IDS[0], IDS[1], IDS[1], IDS[2], IDS[3]]


@pytest.mark.skipif(os.geteuid() != 0, reason="a full file system has to be mounted, by root")
def test_nothing_is_sent_without_room_for_a_receipt(tmp_path, channel):
    box = tmp_path / "box"
    box.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=40", "full", box], check=True)
    try:
        assert outbox.deliver(NOTICES[:1], box, {"w": channel}, SPANS) == (1, [])
        fill = box / "fill"
        subprocess.run(["dd", "if=/dev/zero", f"of={fill}", "bs=4k"], stderr=subprocess.DEVNULL, check=False)
        sent, (failure,) = outbox.deliver(NOTICES, box, {"w": channel}, SPANS)
        assert (sent, "No space left on device" in failure) == (0, True)
        fill.unlink()
        assert outbox.deliver(NOTICES, box, {"w": channel}, SPANS) == (3, [])
        assert channel.sent == IDS
    finally:
        subprocess.run(["umount", box], check=True)


def test_what_was_before_the_first_time_is_no_news(tmp_path, channel):
    outbox.deliver(NOTICES, tmp_path, {"w": channel}, {PLACE: (FIRST, NOTICES[2].when)})
    outbox.deliver(NOTICES, tmp_path, {"w": channel}, SPANS)
    assert channel.sent == IDS[2:]


def test_each_system_has_a_first_time_of_its_own(tmp_path, channel):
    late = replace(notice(1), system="late")
    outbox.deliver(NOTICES[:1], tmp_path, {"w": channel}, SPANS)
    spans = {**SPANS, ("late", "kvm"): (FIRST, NOTICES[3].when)}
    outbox.deliver([*NOTICES[:1], late], tmp_path, {"w": channel}, spans)
    assert channel.sent == IDS[:1]


def test_the_oldest_session_is_no_news_if_older_ones_were_deleted(tmp_path, channel):
    outbox.deliver(NOTICES[:1], tmp_path, {"w": channel}, SPANS)
    oldest = [replace(notice(n), first=True) for n in (1, 2)]
    spans = {PLACE: (NOTICES[1].when, NOTICES[3].when)}
    outbox.deliver([*oldest, NOTICES[3]], tmp_path, {"w": channel}, spans)
    assert channel.sent == [IDS[0], IDS[3]]
    # The first session of a place is sent.
    outbox.deliver(oldest[:1], tmp_path, {"new": channel}, {PLACE: (NOTICES[1].when, NOTICES[1].when)})
    assert channel.sent[-1] == oldest[0].id


def test_a_command_gets_the_sentence_and_the_facts(tmp_path, senders_of):
    senders = senders_of(f"command: cat > {tmp_path}/$VIRTQUAL_NOTICE_KIND")
    assert outbox.deliver(NOTICES[:1], tmp_path / "box", senders, SPANS) == (1, [])
    assert (tmp_path / "over").read_text() == "news 0\n"
    odd = replace(NOTICES[1], subject="a\nBcc: x@y", text="nul\0 here")
    senders = senders_of(f'command: echo "$VIRTQUAL_NOTICE_SUBJECT" > {tmp_path}/subject')
    assert outbox.deliver([odd], tmp_path / "box", senders, SPANS) == (1, [])
    assert (tmp_path / "subject").read_text() == "virtqual site: OVER budget: a Bcc: x@y\n"
    senders = senders_of("command: echo no mail here >&2; exit 3")
    _, failures = outbox.deliver(NOTICES, tmp_path / "box", senders, SPANS)
    assert failures == ["command: ended with 3: no mail here"]


@pytest.mark.parametrize("place", ["file", "variable"])
def test_a_webhook_gets_json_by_apprise_and_its_secret_is_not_shown(
    tmp_path, senders_of, monkeypatch, capfd, webhook, place
):
    url = f"json://127.0.0.1:{webhook.server_port}/secret"
    file = tmp_path / "url"
    file.write_text(f"{url}\n")
    file.chmod(0o600)
    monkeypatch.setenv("CHAT", url)
    senders = senders_of(f"channels: {{chat: {{url_{place}: {file if place == 'file' else 'CHAT'}}}}}")
    webhook.fails = True
    sent, (failure,) = outbox.deliver(NOTICES[:1], tmp_path / "box", senders, SPANS)
    assert (sent, failure.startswith("chat: "), "503" in failure) == (0, True, True)
    assert "secret" not in failure + "".join(capfd.readouterr())
    webhook.fails = False
    assert outbox.deliver(NOTICES[:1], tmp_path / "box", senders, SPANS) == (1, [])
    assert webhook.requests == [("/secret", IDS[0])] * 2
    (content,) = webhook.taken
    assert (content["id"], content["kind"], content["metric"]) == (IDS[0], "over", "metric 0")
    assert content["message"] == f"news 0\n[{IDS[0]}]"
    assert content["title"] == "virtqual site: OVER budget: metric 0"
    file.chmod(0o644)
    monkeypatch.delenv("CHAT")
    (failure,) = outbox.deliver(NOTICES[1:2], tmp_path / "box", senders, SPANS)[1]
    assert ("it holds a secret: chmod 600" if place == "file" else "CHAT is not set") in failure


@pytest.mark.parametrize("answer", ["HTTP/1.1 301 Moved\r\nLocation: /new\r\n\r\n", "rubbish\r\n"])
def test_a_webhook_that_has_moved_or_answers_rubbish_has_no_receipt(tmp_path, senders_of, answer):
    with socket.create_server(("127.0.0.1", 0)) as server:
        received = []

        def serve():
            connection, _ = server.accept()
            with connection:
                received.append(connection.recv(65536))
                connection.sendall(answer.encode())

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"json://127.0.0.1:{server.getsockname()[1]}/secret"
        senders = senders_of(f"channels: {{chat: {{url: '{url}'}}}}")
        sent, (failure,) = outbox.deliver(NOTICES[:1], tmp_path / "box", senders, SPANS)
        thread.join()
    assert (sent, len(received), "secret" in failure) == (0, 1, False)


@pytest.mark.parametrize("url", ["secret one", "gopher://secret", "slack://secret"])
def test_a_url_that_apprise_cannot_read_is_not_shown(tmp_path, senders_of, capfd, monkeypatch, url):
    monkeypatch.setenv("CHAT", url)
    senders = senders_of("channels: {chat: {url_variable: CHAT}}")
    (failure,) = outbox.deliver(NOTICES[:1], tmp_path / "box", senders, SPANS)[1]
    assert failure == "chat: apprise cannot read its URL: see https://github.com/caronc/apprise/wiki"
    assert "secret" not in "".join(capfd.readouterr())


#: Forms of apprise's documentation and of the services', with made-up secrets.
URLS_WITH_SECRETS = (
    "slack://TMADEUP00/BMADEUP00/madeupmadeupmadeupmadeup/#hpc",
    "https://hooks.slack.com/services/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",
    "tgram://123456789:madeup_madeup_madeup/12345678/",
    "discord://1234567890/madeupmadeupmadeup_madeup",
    "https://discord.com/api/webhooks/1234567890/madeupmadeupmadeup_madeup",
    "matrixs://bot:madeup@matrix.site.org/#room",
    "gotify://push.site.org/madeupmadeup",
    "workflows://prod-1.westeurope.logic.azure.com:443/0123456789abcdef0123456789abcdef/madeupmadeup/",
    "mailtos://virtqual:madeup@site.org",
    "jsons://monitoring.site.org/hook?+Authorization=Bearer%20madeup",
    "jsons://monitoring.site.org/hook?+X-Api-Key=madeup",
    "forms://monitoring.site.org/hook?-token=madeup",
)


@pytest.mark.parametrize("url", URLS_WITH_SECRETS)
def test_a_secret_does_not_belong_into_notify_yaml(senders_of, capfd, url):
    """Its directory is a git repository."""
    with pytest.raises(
        UsageError, match=r"notify.yaml:2: channels.chat: the URL holds a secret.*url_file"
    ) as e:
        senders_of(f"channels: {{chat: {{url: '{url}'}}}}")
    said = str(e.value) + "".join(capfd.readouterr())
    assert "madeup" not in said


@pytest.mark.parametrize(
    "url",
    [
        "jsons://monitoring.site.org/virtqual",
        "json://virtqual@127.0.0.1:8080/hook?:team=hpc&+X-Source=virtqual",
        "syslog://",
        "mailto://hpc-ops@localhost",
        "ntfy://ntfy.site.org/builds",
    ],
)
def test_a_url_without_a_secret_may_be_in_notify_yaml(senders_of, url):
    assert list(senders_of(f"channels: {{chat: {{url: '{url}'}}}}")) == ["chat"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_file_of_a_url_belongs_to_its_user(tmp_path, senders_of):
    """Another user would have the notices sent elsewhere."""
    file = tmp_path / "url"
    file.write_text("json://127.0.0.1:1/hook")
    file.chmod(0o600)
    os.chown(file, 65534, -1)
    senders = senders_of(f"channels: {{chat: {{url_file: {file}}}}}")
    (failure,) = outbox.deliver(NOTICES[:1], tmp_path / "box", senders, SPANS)[1]
    assert failure == f"chat: {file}: it belongs to user 65534: name a file of your own"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("comand: mail", r"notify.yaml:2: comand"),
        ("expected_within_hours: -1", "expected_within_hours"),
        ("channels: {chat: {url: 'json://a', url_file: b}}", "one of `url`, `url_file` and `url_variable`"),
        ("channels: {mail: {url: 'mailtos://a:b@c'}}", "the URL holds a secret"),
        ("channels: {../mail: {url: 'mailtos://c'}}", "channels"),
        ("channels: {command: {url: 'json://c'}}\ncommand: id", "choose another name"),
    ],
)
def test_mistakes_are_named(senders_of, content, message):
    with pytest.raises(UsageError, match=message):
        senders_of(content)
