"""The example sessions that the package ships: shown, reported and checked without a cluster."""

import gzip
import json
import shutil

import pytest

from calling import call as run
from virtqual import paths
from virtqual.session.packed import list_examples

OUTCOMES = {"example:over": ("OVER", 1), "example:refused": ("INVALID", 4), "example:within": ("WITHIN", 0)}


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path / "state"))


def test_there_is_one_example_of_each_kind():
    assert list_examples() == sorted(OUTCOMES)


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_example_is_judged_again_as_it_was(name, tmp_path):
    """If it is not: ``python tests/record_examples.py`` records it with today's code."""
    assert run("check", name, code=0).output.strip() == "1 session checked: as they were written"
    file = tmp_path / "example.json"
    run("report", name, "-o", str(file), code=0)
    document = json.loads(file.read_text("utf-8"))
    assert (document["outcome"], document["exit_code"]) == OUTCOMES[name]
    assert "made up" in document["label"]


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_example_is_shown_without_a_place_that_is_gone_when_it_is_read(name):
    shown = run("show", name, code=0).output
    assert OUTCOMES[name][0] in shown or "Refused" in shown
    assert "virtqual-" not in shown
    assert "results:" not in shown


def test_a_report_of_an_example_is_a_file_that_is_named(tmp_path):
    assert "name a file by -o" in run("report", "example:over", code=2).output
    run("report", "example:over", "-o", str(tmp_path / "report.html"), code=0)
    assert "over the overhead budget" in (tmp_path / "report.html").read_text("utf-8")


def test_an_example_that_is_not_there_names_those_that_are():
    said = " ".join(run("show", "example:withn", code=2).output.split())
    assert "there is no 'example:withn'" in said
    assert "example:within" in said


def test_without_any_session_the_examples_are_named():
    said = " ".join(run("show", code=5).output.split())
    assert "To look at examples: virtqual show example:over or example:refused or example:within" in said


def test_a_packed_session_is_read_by_its_path(tmp_path):
    file = shutil.copy(paths.examples() / "over.jsonl.gz", tmp_path / "ours.jsonl.gz")
    assert "over the overhead budget on 6 of 6 metrics" in run("show", str(file), code=0).output
    assert run("check", str(file), code=0).output.strip() == "1 session checked: as they were written"


def test_a_packed_session_that_was_changed_is_refused(tmp_path):
    log = gzip.decompress((paths.examples() / "over.jsonl.gz").read_bytes())
    file = tmp_path / "ours.jsonl.gz"
    file.write_bytes(gzip.compress(log.replace(b'"OVER"', b'"WITHIN"')))
    assert "damaged" in run("check", str(file), code=4).output
    file = tmp_path / "other.jsonl.gz"
    file.write_bytes(log)
    assert "cannot be unpacked: Not a gzipped file" in run("show", str(file), code=2).output


@pytest.mark.parametrize("command", ["show", "report", "check"])
def test_a_file_that_is_not_a_session_is_for_judge(command, tmp_path):
    file = tmp_path / "ours.csv"
    file.write_text("metric,value\n", encoding="utf-8")
    said = " ".join(run(command, str(file), code=2).output.split())
    assert f"`virtqual judge {file}` judges a file of measured values" in said
