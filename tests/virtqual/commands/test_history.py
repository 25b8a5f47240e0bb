"""`virtqual history`: over stored sessions, in 80 columns and as a page."""

import csv
from datetime import date, timedelta

import pytest

from calling import call
from virtqual.paths import root
from virtqual.report import history_table

FIRST = date(2026, 1, 1)


def said(*options):
    done = call("history", *options)
    return done.exit_code, done.output


def hypervisor(build):
    return {"virtual": {"hypervisor": {"vendor": "QEMU", "build": build}}}


@pytest.fixture
def builds(nights):
    """Four builds of three nights; the third one is slower by 6 %."""
    for night in range(12):
        build = night // 3
        wobble = 1 + 0.002 * (night % 3 - 1)
        nights(
            FIRST + timedelta(days=night),
            (1.06 if build >= 2 else 1.0) * wobble,
            noise=0.01,
            identity=hypervisor(f"9.{build}"),
        )


@pytest.mark.usefixtures("builds")
def test_a_slower_build_is_named_though_each_night_was_within_its_budget():
    code, output = said()
    text = " ".join(output.split())
    assert code == 0
    assert "site kvm: 12 sessions of 4 builds, 2026-01-01 to 2026-01-12" in text
    assert "x y 12 -0.1% 5.9% 5+10% 1 step" in text
    assert "between QEMU 9.1 and QEMU 9.2 x y: 6.0% slower (5.7% to 6." in text
    assert "test next: a build from between these two" in text
    assert [line for line in output.splitlines() if len(line) > 80] == []


@pytest.mark.usefixtures("builds")
def test_it_is_a_page_too(tmp_path):
    code, output = said("--output", str(tmp_path / "history.html"))
    assert code == 0
    assert output.strip() == str(tmp_path / "history.html")
    text = (tmp_path / "history.html").read_text("utf-8")
    assert "1 metric has changed: x y on site" in text
    assert "Between QEMU 9.1 and QEMU 9.2" in text


@pytest.mark.usefixtures("builds")
def test_it_is_a_table_for_programs_too(tmp_path):
    code, output = said("-o", str(tmp_path / "history.csv"))
    assert code == 0, output
    with (tmp_path / "history.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["session"] for row in rows] == sorted(row["session"] for row in rows)
    assert len(rows) == 12
    first, last = rows[0], rows[-1]
    assert tuple(last) == history_table.COLUMNS
    assert (last["system"], last["class"], last["build"], last["metric"]) == ("site", "kvm", "QEMU 9.3", "x")
    assert (last["created"], last["gate"], last["budget"]) == (
        "2026-01-12T22:00:00+00:00",
        "overhead",
        "0.05",
    )
    assert float(last["slower"]) == pytest.approx(0.06, abs=0.01)
    assert float(last["lower"]) < float(last["slower"]) < float(last["upper"])
    for row in (first, last):
        assert float(row["virtual"]) / float(row["native"]) == pytest.approx(float(row["ratio"]), rel=1e-6)
        assert float(row["ratio"]) - 1 == pytest.approx(float(row["slower"]), abs=2e-6)
    page = (root() / "docs/history.md").read_text("utf-8")
    assert [column for column in history_table.COLUMNS if f"`{column}`" not in page] == []


@pytest.mark.usefixtures("builds")
def test_a_history_of_another_form_is_refused(tmp_path):
    code, output = said("-o", str(tmp_path / "history.parquet"))
    assert code == 2
    assert "has to end with .html or .csv" in " ".join(output.split())


@pytest.mark.usefixtures("builds")
def test_sessions_of_older_formats_are_said_to_be_left_out(tmp_path):
    old = tmp_path / "sessions/20250101-220000-site"
    old.mkdir()
    (old / "session.json").write_text('{"schema": "virtqual-session/1"}', encoding="utf-8")
    code, output = said()
    assert code == 0
    assert "left out: " in output
    assert "it has a session.json and no log.jsonl" in " ".join(output.split())
