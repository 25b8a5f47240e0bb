"""Ninety nights as a site has them, told by the real `virtqual status --notify` to a webhook."""

import os
import subprocess
from datetime import UTC, date, datetime, time, timedelta

import pytest

from calling import call
from virtqual.session.log import Log, Resumed
from virtqual.session.session import Resumption

FIRST, NIGHTS = date(2026, 1, 1), 90
SLOWER = range(20, 40)
REQUEUED, WITHOUT_SESSION, SILENT, FULL = 50, 60, (20, 21), 40


@pytest.fixture
def box(tmp_path):
    """The outbox, on a file system of its own."""
    place = tmp_path / "outbox"
    place.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k,nr_inodes=500,mode=755", "small", place], check=True
    )
    yield place
    subprocess.run(["umount", place], check=True)


class Morning(datetime):
    """A clock that stands at eight in the morning after a night."""

    night = 0

    @classmethod
    def now(cls, tz=None):
        return datetime.combine(FIRST + timedelta(days=cls.night + 1), time(8), tzinfo=UTC)


@pytest.mark.skipif(os.geteuid() != 0, reason="a full file system has to be mounted, by root")
def test_each_change_is_told_once_whatever_fails(nights, box, webhook, tmp_path, monkeypatch):
    monkeypatch.setattr("virtqual.commands.status.datetime", Morning)
    (tmp_path / "notify.yaml").write_text(
        "schema: virtqual-notify/1\nexpected_within_hours: 30\n"
        f"channels: {{chat: {{url: 'json://127.0.0.1:{webhook.server_port}/'}}}}\n"
    )
    told, codes = {}, {}
    for night in range(NIGHTS):
        Morning.night = night
        if night != WITHOUT_SESSION:
            directory = nights(FIRST + timedelta(days=night), 1.5 if night in SLOWER else 1.0)
        if night == REQUEUED:
            log, again = Log(directory), Resumption(time="2026-02-20T23:00:00+00:00", ended="requeued")
            found = log.session()
            log.append(Resumed(resumption=again))
            found.resumed.append(again)
            log.conclude(found)
        webhook.fails = night in SILENT
        fill, before = box / "fill", len(webhook.taken)
        if night == FULL:
            subprocess.run(
                ["dd", "if=/dev/zero", f"of={fill}", "bs=4k"], stderr=subprocess.DEVNULL, check=False
            )
        codes[night] = call("status", "--notify").exit_code
        fill.unlink(missing_ok=True)
        if new := [(one["kind"], one.get("metric", "")) for one in webhook.taken[before:]]:
            told[night] = new
    print(*(f"night {night}: {', '.join(map(' '.join, new))}" for night, new in told.items()), sep="\n")
    assert told == {
        # The two nights before nobody answered, and nothing is lost.
        22: [("over", ""), ("over", "x y")],
        # In the night before there was no room for a receipt.
        41: [("resolved", ""), ("resolved", "x y")],
        60: [("none", "")],
    }
    assert {night for night, code in codes.items() if code == 5} == {*SILENT, FULL, WITHOUT_SESSION}
    assert {night for night, code in codes.items() if code == 1} == {*SLOWER} - {*SILENT}
    assert len({one["id"] for one in webhook.taken}) == len(webhook.taken) == 5
