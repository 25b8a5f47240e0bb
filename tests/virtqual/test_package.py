import ast
import tomllib
from pathlib import Path

import pytest

import virtqual

ROOT = Path(__file__).parents[2]


def test_the_version_is_stated_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert virtqual.__version__ == project["version"]


def locale_decides(source):
    """Yield the lines of calls whose text is encoded as the locale says.

    ruff's PLW1514 sees those of them whose object it knows to be a path: half.
    """
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        modes = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
        text = name in ("read_text", "write_text") or (name == "open" and not {"rb", "wb", "ab"} & {*modes})
        given = {keyword.arg for keyword in call.keywords}
        of_os = name == "open" and ast.unparse(call.func) == "os.open"
        if "encoding" not in given and ((name == "run" and "text" in given) or (text and not of_os)):
            yield call.lineno


def test_no_locale_decides_how_text_is_read_and_written():
    files = [file for room in ("src", "checks", "reframe") for file in (ROOT / room).rglob("*.py")]
    assert len(files) > 100
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in files
        for line in locale_decides(file.read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize("call", ["a.read_text()", "a.open()", "open(a, 'w')", "run(a, text=True)"])
def test_text_of_the_locale_is_found(call):
    assert list(locale_decides(call)) == [1]
