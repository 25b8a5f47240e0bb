"""What programs read of a session: by parsers that are not ours, and by `virtqual judge`."""

import csv
import io

import pytest
from made_reports import DECLARED, make_session, session_slow_by, slow_by
from markdown_it import MarkdownIt
from prometheus_client.parser import text_string_to_metric_families

from calling import call
from made_runs import made_failure
from virtqual.commands import report
from virtqual.report import machines
from virtqual.runs import Result


def test_every_sample_is_a_row_that_judge_reads(tmp_path):
    """What a gate refused is left out there, too."""

    def results(side, number):
        invalid = ("no answer",) if (side, number) == ("virtual", 2) else ()
        value = (1.5 if side == "virtual" else 1) * (1 + 0.001 * number)
        return (
            Result.scalar("x", 'a "quoted", setting', value, invalid, declared=DECLARED),
            Result.curve("mpi_latency", "two nodes", {8.0: value, 64.0: 2 * value}),
        )

    session = make_session(results, pairs=12)
    file = tmp_path / "samples.csv"
    file.write_text(machines.csv_of(session))
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    assert len(rows) == 2 * 12 * 3
    assert [row["value"] for row in rows].count("nan") == 1
    said = call("judge", file, "--budget", "1.05", "--margin", "0.1", "--same-host").stdout
    assert "pair 2 left out" in " ".join(said.split())
    assert 'OVER x@a "quoted", setting' in " ".join(said.split())


def test_a_check_that_was_refused_gives_no_good_samples():
    """A job that Slurm ended leaves nothing of its check that may be judged, by this session or by others."""
    session = session_slow_by(1.0, pairs=12)
    check = session.runs[0].check
    session.failures.append(made_failure(check=check, side="native", pair=11, kind="failed"))
    rows = list(csv.DictReader(io.StringIO(machines.csv_of(session))))
    assert rows
    assert {row["value"] for row in rows} == {"nan"}


def test_markdown_is_a_table_and_nothing_else_in_it_is_markup():
    def results(side, number):
        setting = "a | b `c` <b> *d* [e](f)"
        value = (1.5 if side == "virtual" else 1) * (1 + 0.001 * number)
        return (Result.scalar("x_y", setting, value, declared=DECLARED),)

    written = machines.markdown_of(make_session(results, pairs=12))
    tokens = MarkdownIt("commonmark").enable("table").parse(written)
    cells = [tokens[i + 1] for i, token in enumerate(tokens) if token.type == "td_open"]
    table, sides = cells[:8], cells[8:]
    assert [table[1].content, table[3].content, table[-1].content] == ["OVER", "at most 5%", "4 of 12"]
    assert sides[0].content == "hypervisor"
    assert cells[0].children is not None
    assert {child.type for child in cells[0].children} <= {"text", "text_special"}
    assert "".join(child.content for child in cells[0].children) == "x_y a | b `c` <b> *d* [e](f)"
    assert written.startswith("**OVER**: ")


def test_prometheus_reads_verdicts_and_any_label():
    setting = 'a "quoted" \\ setting'
    judged = make_session(slow_by(1.5, setting), pairs=12)
    families = {family.name: family for family in text_string_to_metric_families(machines.metrics_of(judged))}
    (code,) = families["virtqual_exit_code"].samples
    assert code.value == judged.exit_code == 1
    assert code.labels == {"system": "site", "class": "kvm", "build": "unknown"}
    outcomes = {sample.labels["outcome"]: sample.value for sample in families["virtqual_verdicts"].samples}
    assert (outcomes["OVER"], outcomes["WITHIN"]) == (1, 0)
    (within,) = families["virtqual_within"].samples
    assert (within.value, within.labels["metric"], within.labels["setting"]) == (0, "x", setting)
    bounds = {sample.labels["bound"]: sample.value for sample in families["virtqual_cost_log"].samples}
    assert bounds["lower"] < bounds["estimate"] < bounds["upper"]
    assert bounds["estimate"] == pytest.approx(judged.verdicts[0].overhead.log)


def test_the_end_of_the_name_says_which(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "find", lambda *_: tmp_path)
    monkeypatch.setattr(report, "load", lambda _: session_slow_by(1.0, pairs=12))
    for name, begins in (("a.html", "<!doctype html>"), ("a.csv", "session,metric"), ("a.prom", "# HELP")):
        call("report", "-o", tmp_path / name, code=0)
        assert (tmp_path / name).read_text().lstrip().startswith(begins)
    done = call("report", "-o", tmp_path / "a.pdf", code=2)
    assert "the name has to end with .html, .csv, .json, .md, .prom" in " ".join(done.output.split())
