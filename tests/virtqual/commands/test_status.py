"""`virtqual status`: a line for each system, an exit code for monitoring, and notices once."""

from datetime import date, timedelta

import pytest

from calling import call
from virtqual.session import summary
from virtqual.session.log import DOCUMENT, LOG, Log, Submitted
from virtqual.session.summary import file_of


def said(*options):
    done = call("status", *options)
    return done.exit_code, " ".join(done.output.split())


def remove_conclusion(directory):
    (directory / DOCUMENT).unlink()
    lines = (directory / LOG).read_text().splitlines(keepends=True)
    (directory / LOG).write_text("".join(line for line in lines if '"concluded"' not in line))


def praise(summary_file):
    """Return the content of a summary with a better outcome."""
    content = summary_file.read_bytes()
    return content.replace(b"OVER", b"WITHIN").replace(b'"exit_code":1', b'"exit_code":0')


def expect_within(directory, hours):
    text = f"schema: virtqual-notify/1\nexpected_within_hours: {hours}\n"
    (directory / "notify.yaml").write_text(text)


def test_the_worst_system_decides(nights):
    assert said()[0] == 5
    for day, times in ((1, 1.0), (2, 1.5), (3, 1.5)):
        nights(date(2026, 1, day), times)
    code, line = said()
    assert code == 1
    assert "site kvm: OVER since 2026-01-02 (2 in a row)" in line
    assert "OVER: x y" in line
    nights(date(2026, 1, 4), 1.0)
    assert said()[0] == 0


def test_a_summary_of_another_version_or_none_is_made_again(nights):
    directory = nights(date(2026, 1, 1), 1.5)
    before = said()
    for content in ("{}", "", None):
        file_of(directory).unlink()
        if content is not None:
            file_of(directory).write_text(content)
        assert said() == before


def test_a_night_without_a_session_is_unknown(nights, tmp_path):
    nights(date(2026, 1, 1), 1.0)
    expect_within(tmp_path, "30")
    code, line = said()
    assert code == 5
    assert "NO SESSION that came to an end since 2026-01-01 22:00" in line


def test_a_session_that_still_runs_changes_nothing(nights):
    nights(date(2026, 1, 1), 1.5)
    before = said()
    directory = nights(date(2026, 1, 2), 1.0)
    remove_conclusion(directory)
    code, line = said()
    assert (code, "OVER since 2026-01-01" in line) == (before[0], True)
    assert "one of 2026-01-02 22:00 has not come to an end" in line


def test_a_summary_follows_a_session_that_went_on_while_it_was_read(nights):
    directory = nights(date(2026, 1, 1), 1.5)
    said()
    old = praise(file_of(directory))
    Log(directory).append(Submitted(job="1", case="case", submitted=5.0))
    file_of(directory).write_bytes(old)
    assert said()[0] == 1, "written later than the session, but not of it"


def test_a_summary_does_not_hide_that_a_byte_of_its_log_has_changed(nights):
    directory = nights(date(2026, 1, 1), 1.0)
    assert said()[0] == 0
    content = bytearray((directory / LOG).read_bytes())
    content[len(content) // 2] ^= 1
    (directory / LOG).write_bytes(content)
    code, line = said()
    assert code != 0
    assert "the line is damaged" in line


def test_a_summary_that_comes_with_a_session_is_not_read(nights):
    directory = nights(date(2026, 1, 1), 1.5)
    said()
    (directory / "summary.json").write_bytes(praise(file_of(directory)))
    file_of(directory).unlink()
    assert said()[0] == 1


def test_weeks_of_nights_that_come_to_no_end_are_no_good_news(nights, tmp_path):
    expect_within(tmp_path, "1e6")
    nights(date(2026, 1, 1), 1.0)
    assert said()[0] == 0
    expect_within(tmp_path, "30")
    for day in range(2, 5):
        directory = nights(date(2026, 1, day), 1.0)
        remove_conclusion(directory)
    code, line = said()
    assert (code, "NO SESSION that came to an end since 2026-01-01" in line) == (5, True)


def test_a_newest_session_that_cannot_be_read_is_no_good_news(nights, tmp_path):
    nights(date(2026, 1, 1), 1.0)
    assert said()[0] == 0
    (tmp_path / "sessions/20260102-220000-site").mkdir()
    (tmp_path / "sessions/20260102-220000-site" / LOG).write_text("{}\n")
    code, line = said()
    assert (code, "left out: " in line) == (3, True)


@pytest.mark.parametrize("system", ["other", "my-site"])
def test_a_session_of_another_system_that_cannot_be_read_says_nothing_of_this_one(nights, tmp_path, system):
    (tmp_path / f"sessions/20251231-220000-{system}").mkdir(parents=True)
    (tmp_path / f"sessions/20251231-220000-{system}" / LOG).write_text("{}\n")
    nights(date(2026, 1, 1), 1.0)
    code, line = said("--system", "site")
    assert (code, "left out: " in line) == (0, False)
    # A later session of this system does not hide it.
    code, line = said()
    assert (code, "left out: " in line) == (3, True)


def test_a_session_that_makes_no_sense_hides_no_other(nights, monkeypatch):
    nights(date(2026, 1, 1), 1.5)
    odd = nights(date(2026, 1, 2), 1.0)
    file_of(odd).unlink(missing_ok=True)
    read = summary.Summary.of

    def of(session, **more):
        if session.session == odd.name:
            raise ValueError("3 values for 2 points")
        return read(session, **more)

    monkeypatch.setattr(summary.Summary, "of", of)
    code, line = said()
    assert (code, "OVER since 2026-01-01" in line, "3 values for 2 points" in line) == (1, True, True)


def test_a_session_that_ended_by_a_mistake_is_no_good_news(nights, monkeypatch):
    odd = nights(date(2026, 1, 1), 1.0)
    file_of(odd).unlink(missing_ok=True)
    read, broken = summary.Summary.of, {"exit_code": 2, "outcome": "BROKEN"}
    monkeypatch.setattr(summary.Summary, "of", lambda *a, **more: read(*a, **more).model_copy(update=broken))
    assert said()[0] == 2


def test_notices_are_sent_once(nights, tmp_path):
    assert "names the channels" in said("--notify")[1]
    told = tmp_path / "told"
    (tmp_path / "notify.yaml").write_text(f"schema: virtqual-notify/1\ncommand: cat >> {told}\n")
    first = date(2026, 1, 1)
    for number, times in enumerate((1.0, 1.5, 1.5, 1.0)):
        nights(first + timedelta(days=number), times)
        assert said("--notify")[0] == (1 if times > 1 else 0)
        said("--notify")
    lines = told.read_text().splitlines()
    assert [line.partition(":")[0] for line in lines if "x y" in line] == ["x y", "x y"]
    assert len(lines) == 4
    (tmp_path / "notify.yaml").write_text("schema: virtqual-notify/1\ncommand: exit 1\n")
    nights(first + timedelta(days=4), 1.5)
    code, line = said("--notify")
    assert code == 5
    assert "notices were not delivered: command: ended with 1" in line
