"""The schemas below docs/ are those of what is written, and documents are of their form."""

import json

import pytest
from jsonschema import Draft202012Validator, ValidationError
from test_page import DECLARED, one, session
from typer.testing import CliRunner

from virtqual import paths
from virtqual.commands import judge
from virtqual.report import machines, schemas
from virtqual.runs import Result
from virtqual.session.log import document_of
from virtqual.session.measured import SampleRow

WHERE = paths.root() / "docs/schemas"


def valid(name, document):
    Draft202012Validator(json.loads((WHERE / f"{name}.json").read_text())).validate(document)


def test_they_are_written_down_as_they_are():
    for name, content in schemas.documents():
        told = "`python -m virtqual.report.schemas docs/schemas` writes them again"
        assert json.loads((WHERE / name).read_text()) == content, told
    assert {file.name for file in WHERE.iterdir()} == {name for name, _ in schemas.documents()}


@pytest.mark.parametrize("times", [1.0, 1.5, 0.3])
def test_sessions_are_of_their_form(times):
    document = json.loads(document_of(one(times, pairs=12)))
    valid("session", document)
    for wrong in ({"outcome": 7}, {"failures": [{}]}, {"more": 1}):
        with pytest.raises(ValidationError):
            valid("session", {**document, **wrong})


def test_lines_of_judge_are_of_their_form(tmp_path):
    def results(side, number):
        return (Result.scalar("x", "y", 1.5 if side == "virtual" else 1, declared=DECLARED),)

    file = tmp_path / "samples.csv"
    file.write_text(machines.csv_of(session(results, pairs=8)))
    options = ["--budget", "1.05", "--margin", "0.1", "--json"]
    lines = CliRunner().invoke(judge.app, [str(file), *options]).stdout.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["series", "session"]
    for line in lines:
        valid("verdict", json.loads(line))


def test_the_columns_of_samples_are_those_that_judge_reads():
    assert tuple(SampleRow.model_fields) == machines.COLUMNS
    row = {
        "session": "s",
        "metric": "m",
        "setting": "default",
        "unit": "s",
        "better": "lower",
        "pair": 0,
        "side": "native",
    }
    valid("sample", {**row, "value": 1.5})
    with pytest.raises(ValidationError):
        valid("sample", {**row, "value": 1.5, "side": "guest"})
