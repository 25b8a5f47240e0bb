"""A session from elsewhere is shown as text: it cannot hide a line or reach the clipboard."""

import csv
import io
import itertools
from operator import itemgetter

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from calling import call
from made_runs import alternating, keep, made_failure, session_of
from virtqual import cli, paths
from virtqual.files.wording import printable
from virtqual.report import junit
from virtqual.report.console import verbatim
from virtqual.report.terminal import Terminal
from virtqual.runs import Declared, Result
from virtqual.session.measured import COLUMNS
from virtqual.session.store import load

# Clear the screen, hide what follows, the same by C1, the clipboard, a bell, the direction of text, no width.
HOSTILE = "a\x1b[2J\x1b[8m\x9b8m\x1b]52;c;WA==\x07\u202e\u2066\u200b\x7f\ue000b"
FORBIDDEN = set(HOSTILE) - set("ab") - set("[2J8m]52;c;WA==")
COMMANDS = (
    ("show",),
    ("list",),
    ("status",),
    ("history",),
    ("compare", "20260101-000000-s", "20260102-000000-s"),
    ("preflight", "20260101-000000-s"),
    ("propose", "20260101-000000-s"),
    ("show", HOSTILE),
    ("report", HOSTILE),
)


def hostile_session(name):
    """Return a session every free text of which is hostile."""
    declared = Declared(unit=f"={HOSTILE}", better="lower", budget=1.05, margin=0.03)

    def results(side, pair):
        value = (1.0 if side == "native" else 2.0) * (1 + 1e-6 * pair)
        return (Result.scalar("spin", f"+{HOSTILE}", value, declared=declared),)

    hypervisor = {
        "vendor": HOSTILE, "build": HOSTILE, "accelerator": HOSTILE, "machine": HOSTILE,
        "details": {"what": HOSTILE},
    }  # fmt: skip
    failure = made_failure(check=f"{HOSTILE}2", case=HOSTILE, partition=HOSTILE, reason=HOSTILE)
    return session_of(
        alternating(results, check=HOSTILE),
        name=name,
        label=HOSTILE,
        identity={"virtual": {"hypervisor": hypervisor, "guest": {"kernel": HOSTILE}, "placement": {}}},
        stack={"name": HOSTILE, "hash": HOSTILE, "programs": []},
        failures=[failure],
        outcome="OVER",
        exit_code=1,
        conclusion=HOSTILE,
        qualified=HOSTILE,
        waivers=[HOSTILE],
        not_run=[f"{HOSTILE}: {HOSTILE}"],
    )


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path))
    for name in ("20260101-000000-s", "20260102-000000-s"):
        keep(hostile_session(name), paths.sessions())
    return tmp_path


def assert_printable(text):
    assert not FORBIDDEN & set(text), sorted(map(ascii, FORBIDDEN & set(text)))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command[0]} {len(command)}")
def test_a_command_shows_text_from_outside_as_text(state, command):
    done = CliRunner().invoke(cli.app, command)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert_printable(done.output)
    assert done.exit_code != 5, done.output


@pytest.mark.parametrize("command", [("show",), ("list",), ("status",), COMMANDS[4]], ids=itemgetter(0))
def test_text_from_outside_is_there_with_its_marks(state, command):
    done = call(*command, COLUMNS="400")
    assert "a\ufffd[2J" in done.output


@pytest.mark.parametrize("ending", [".md", ".csv", ".html"])
def test_an_export_holds_no_control_character(state, tmp_path, ending):
    file = tmp_path / f"out{ending}"
    call("report", "20260101-000000-s", "-o", file, code=0)
    text = file.read_text("utf-8")
    assert_printable(text)
    assert "\ufffd" in text
    assert_printable(junit.suite(load(paths.sessions() / "20260101-000000-s")).get("name"))


def test_no_cell_of_a_table_is_a_formula(state, tmp_path):
    file = tmp_path / "out.csv"
    call("report", "20260101-000000-s", "-o", file)
    rows = list(csv.DictReader(io.StringIO(file.read_text("utf-8"))))
    assert len(rows) == 8
    for row in rows:
        assert not [cell for cell in row.values() if cell.lstrip()[:1] in tuple("=+-@")]
        assert row["setting"].startswith("'+a")


@pytest.mark.parametrize("options", [(), ("--budget", "1.05", "--margin", "0.03")])
def test_the_names_in_a_file_of_pairs_are_text(tmp_path, options):
    file = tmp_path / "pairs.csv"
    with file.open("w", encoding="utf-8", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(COLUMNS)
        for number, (pair, side) in enumerate(itertools.product(range(6), ("native", "virtual"))):
            value = 1 + (side == "virtual") + number / 1000
            name, when = HOSTILE, (10 * number, 10 * number + 5)
            table.writerow([name, name, name, "", name, "lower", pair, side, value, *when, name, name, ""])
    done = call("judge", file, *options)
    # Native ran first in every pair.
    assert done.exit_code == (3 if options else 2), done.output
    assert_printable(done.output)
    assert "a\ufffd[2J" in done.output


def test_a_label_of_megabytes_is_shown_in_seconds():
    made = hostile_session("s").model_copy(update={"label": "x " * 5_000_000})
    file = io.StringIO()
    Terminal(verbatim(file=file, width=80)).begin(made, ())
    assert len(file.getvalue()) < 20_000


def test_the_console_makes_every_kind_of_text_printable():
    file = io.StringIO()
    table = Table(title=HOSTILE, caption=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(Text(HOSTILE))
    verbatim(file=file, width=200).print(HOSTILE, Text(HOSTILE, "bold"), table, HOSTILE, style="dim")
    assert_printable(file.getvalue())
    colours = io.StringIO()
    verbatim(file=colours, width=200, force_terminal=True, color_system="standard").print(Text("a", "red"))
    plain = io.StringIO()
    Console(file=plain, width=200, force_terminal=True, color_system="standard").print(Text("a", "red"))
    assert colours.getvalue() == plain.getvalue()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("naïve 日本 — 1.2× µs\tx\n", "naïve 日本 — 1.2× µs\tx\n"),
        (HOSTILE, "a\ufffd[2J\ufffd[8m\ufffd8m\ufffd]52;c;WA==\ufffd\ufffd\ufffd\ufffd\ufffd\ufffdb"),
        ("\r\x00\ud800\u2028\U000e0041", "\ufffd" * 5),
    ],
)
def test_what_is_printable_stays(text, shown):
    assert printable(text) == shown
    assert printable("x" * 50, 10) == "x" * 9 + "…"
