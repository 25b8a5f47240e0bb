"""`virtqual schema` prints the form of what is written and read, and documents are of this form."""

import json
from functools import cache

import pytest
from jsonschema import Draft202012Validator, ValidationError
from made_reports import make_session, session_slow_by, slow_by

from calling import call
from virtqual.report import machines
from virtqual.session.log import document_of


@cache
def validator(name):
    return Draft202012Validator(json.loads(call("schema", name).stdout))


def test_documents_are_listed_and_another_name_is_a_usage_error():
    listed = call("schema")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["session", "verdict", "sample"]
    unknown = call("schema", "sesion", code=2)
    assert "did you mean session?" in unknown.stderr


@pytest.mark.parametrize("times", [1.0, 1.5, 0.3])
def test_sessions_are_of_their_form(times):
    document = json.loads(document_of(session_slow_by(times, pairs=12)))
    validator("session").validate(document)
    for wrong in ({"outcome": 7}, {"failures": [{}]}, {"more": 1}):
        with pytest.raises(ValidationError):
            validator("session").validate({**document, **wrong})


def test_lines_of_judge_are_of_their_form(tmp_path):
    file = tmp_path / "samples.csv"
    file.write_text(machines.csv_of(make_session(slow_by(1.5), pairs=8)))
    options = ["--budget", "1.05", "--margin", "0.1", "--json"]
    lines = call("judge", file, *options).stdout.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["series", "session"]
    for line in lines:
        validator("verdict").validate(json.loads(line))


def test_the_columns_of_samples_are_those_that_judge_reads():
    assert list(validator("sample").schema["properties"]) == list(machines.COLUMNS)
    row = {"session": "s", "metric": "m", "setting": "default", "unit": "s", "better": "lower"}
    row |= {"pair": 0, "side": "native"}
    validator("sample").validate({**row, "value": 1.5})
    with pytest.raises(ValidationError):
        validator("sample").validate({**row, "value": 1.5, "side": "guest"})
