"""Files from elsewhere: bounded in time and size, and each mistake names file, key or line, and a remedy."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from calling import call
from virtqual.errors import InfrastructureError, UsageError
from virtqual.files import datafile, reading, records
from virtqual.files.datafile import DataError, DataModel, parse
from virtqual.files.wording import describe_mistakes
from virtqual.identity import host
from virtqual.session.store import load as load_session
from virtqual.stack import manifest

BOMB = "a0: &a0 [lol, lol]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)


class Inner(DataModel):
    wanted: int = 0


class Outer(DataModel):
    inner: Annotated[list[Inner], Field(default_factory=list)]
    by_name: Annotated[dict[str, list[Inner]], Field(default_factory=dict)]
    size: Inner | float = 0.0


def test_an_alias_bomb_is_refused_in_the_file_of_a_host(tmp_path):
    file = tmp_path / "bomb.yaml"
    file.write_text(BOMB)
    with pytest.raises(DataError, match=r"bomb\.yaml:2: holds the alias \*a0: aliases are not read"):
        host.load(file)


def test_a_byte_order_mark_and_the_line_ends_of_windows_are_read(tmp_path):
    file = tmp_path / "data.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: two\r\n")
    assert dict(parse(file).content) == {"a": 1, "b": "two"}


@pytest.mark.parametrize("read", [parse, lambda log: load_session(log.parent), manifest.load])
def test_a_device_or_a_pipe_is_no_file_to_read(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    for target in ("/dev/zero", tmp_path / "pipe"):
        link = tmp_path / "log.jsonl"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        with pytest.raises(
            (UsageError, InfrastructureError), match=r"log\.jsonl.*it is (no regular file|a symbolic link)"
        ):
            read(link)


def test_what_a_person_names_may_be_a_pipe_but_not_without_end(monkeypatch):
    monkeypatch.setattr(reading, "MAX_RECORD_BYTES", 2**20)
    done = call("identity", "--from", "/dev/zero", code=2)
    assert "/dev/zero" in done.output
    assert "larger than 1 MiB" in done.output
    pipe = subprocess.Popen([sys.executable, "-c", "print('{}')"], stdout=subprocess.PIPE)
    with pipe:
        assert reading.read_bytes(Path(f"/dev/fd/{pipe.stdout.fileno()}"), 10, pipes=True) == b"{}\n"


def test_a_file_of_the_largest_size_is_read_and_the_next_is_not(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"x" * 2**20)
    assert len(reading.read_bytes(file, 2**20)) == 2**20
    file.write_bytes(b"x" * (2**20 + 1))
    with pytest.raises(OSError, match="larger than 1 MiB"):
        reading.read_bytes(file, 2**20)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("inner: [{wantid: 1}]", r":1: inner\[0\]\.wantid: is not a key .* did you mean wanted\?"),
        ("by_name: {a: [{wantid: 1}]}", r"by_name\.a\[0\]\.wantid: .* did you mean wanted\?"),
        ("size: {wantid: 1}", r"size\.wantid: .* did you mean wanted\?"),
        ("iner: []", r":1: iner: .* did you mean inner"),
        ("zzz: []", r"zzz: .* known are by_name, inner, size\."),
        ("inner: 3", r"inner: 3 is no list"),
    ],
)
def test_a_misspelt_key_is_told_with_the_nearest_known(tmp_path, text, says):
    file = tmp_path / "data.yaml"
    file.write_text(text)
    with pytest.raises(DataError, match=says):
        parse(file).read(Outer)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"iner": []}', r"key iner: is not a key .* did you mean inner"),
        ('{"inner": [{"wanted": "x"}]}', r"key inner\[0\]\.wanted: 'x' is no whole number"),
        ('{"inner": ', r"Invalid JSON: EOF"),
        ("[" * 200_000, r"Invalid JSON"),
        ("[]", r"\[\] has no keys"),
    ],
)
def test_a_record_is_told_with_file_and_key(tmp_path, text, says):
    file = tmp_path / "record.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=rf"record\.json: {says}"):
        records.load(Outer, file, "record")


def test_every_mistake_is_told():
    wrong = {"inner": [{"wanted": "x"}, {"wantid": 2}], "size": []}
    with pytest.raises(ValueError) as error:  # noqa: PT011
        Outer.model_validate(wrong)
    assert len(describe_mistakes(error.value, Outer, wrong)) == 3


def mebibyte(unit, start="a:\n", end=""):
    """Return a mebibyte of short values."""
    return start + unit * ((reading.MAX_REVIEWED_BYTES - 100) // len(unit)) + end


MANY = f"holds more than {datafile.MAX_NODES} keys and values: split the file."
NO_DATE = "holds '2024-13-45', which is not a date that exists: write YYYY-MM-DD."
NO_INTEGER = f"holds '{'9' * 40}', which cannot be read as int."


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        pytest.param(BOMB, 2, "holds the alias *a0: aliases are not read, write out", id="aliases"),
        pytest.param("a: " + "[" * 100_000, 1, "is nested too deeply.", id="nesting"),
        pytest.param("a: 1\nb: x\x07y\n", 2, "holds the control character U+0007: remove it.", id="BEL"),
        pytest.param("a: 1\r\n\r\nb: \x1b[8m\r\n", 3, "holds the control character U+001B", id="ESC"),
        pytest.param("a: \u009b8m\n", 1, "holds the control character U+009B: remove it.", id="C1"),
        pytest.param("a:\n  - 2024-13-45\n", 2, NO_DATE, id="date"),
        pytest.param(f"a: 1\nb: {'9' * 5000}\n", 2, NO_INTEGER, id="integer"),
        pytest.param("a: !!bool x\n", 1, "holds 'x', which cannot be read as bool.", id="bool"),
        pytest.param(mebibyte("{a: b}, ", "a: [", "]\n"), 1, MANY, id="mappings"),
        pytest.param(mebibyte("[], ", "a: [", "]\n"), 1, MANY, id="lists"),
        pytest.param(mebibyte("- a: 1\n"), None, MANY, id="lines"),
    ],
)
def test_yaml_that_no_reviewed_file_needs_is_refused_by_its_line_within_seconds(tmp_path, text, line, says):
    file = tmp_path / "data.yaml"
    file.write_text(text, newline="")
    began = time.monotonic()
    with pytest.raises(DataError) as error:
        parse(file)
    assert str(error.value).startswith(f"{file}:{line or error.value.problems[0].line}: {says}")
    assert time.monotonic() - began < 60
