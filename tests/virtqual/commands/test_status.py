"""`virtqual status`: a line for each system, an exit code for monitoring, and notices once."""

from datetime import date, timedelta

from typer.testing import CliRunner

from virtqual.commands import status
from virtqual.session.summary import FILE


def said(*options):
    done = CliRunner().invoke(status.app, options)
    return done.exit_code, " ".join(done.output.split())


def test_the_worst_system_decides(nights):
    assert said()[0] == 3
    for day, times in ((1, 1.0), (2, 1.5), (3, 1.5)):
        nights(date(2026, 1, day), times)
    code, line = said()
    assert code == 2
    assert "site kvm: OVER since 2026-01-02 (2 in a row)" in line
    assert "OVER: x y" in line
    nights(date(2026, 1, 4), 1.0)
    assert said()[0] == 0
    # A file of another version, or none, is made again from the session.
    assert said() == said()


def test_what_is_in_short_is_made_again_from_the_session(nights, tmp_path):
    directory = nights(date(2026, 1, 1), 1.5)
    before = said()
    for content in ("{}", "", None):
        (directory / FILE).unlink()
        if content is not None:
            (directory / FILE).write_text(content)
        assert said() == before


def test_a_night_without_a_session_is_unknown(nights, tmp_path):
    nights(date(2026, 1, 1), 1.0)
    (tmp_path / "notify.yaml").write_text("schema: virtqual-notify/1\nexpected_within_hours: 30\n")
    code, line = said()
    assert code == 3
    assert "NO SESSION since 2026-01-01 22:00" in line


def test_notices_are_sent_once(nights, tmp_path):
    assert "says whom to tell" in said("--notify")[1]
    told = tmp_path / "told"
    (tmp_path / "notify.yaml").write_text(f"schema: virtqual-notify/1\ncommand: cat >> {told}\n")
    first = date(2026, 1, 1)
    for number, times in enumerate((1.0, 1.5, 1.5, 1.0)):
        nights(first + timedelta(days=number), times)
        assert said("--notify")[0] == (2 if times > 1 else 0)
        said("--notify")
    lines = told.read_text().splitlines()
    assert [line.partition(":")[0] for line in lines if "x y" in line] == ["x y", "x y"]
    assert len(lines) == 4
    (tmp_path / "notify.yaml").write_text("schema: virtqual-notify/1\ncommand: exit 1\n")
    nights(first + timedelta(days=4), 1.5)
    code, line = said("--notify")
    assert code == 5
    assert "not all could be told: command: ended with 1" in line
