import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.testing import CliRunner

import vcluster.cli
import virtqual
from virtqual import cli

ROOT = Path(__file__).parents[2]


def test_the_version_is_stated_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert virtqual.__version__ == project["version"]


def read_lock(name):
    """Return the text of a lock, and its versions by the name of the package."""
    text = (ROOT / name).read_text(encoding="utf-8")
    pins = re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)
    return text, {canonicalize_name(package): version for package, version in pins}


@pytest.mark.parametrize(("name", "app"), [("virtqual", cli.app), ("vcluster", vcluster.cli.app)])
def test_each_command_prints_its_version(name, app):
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.output) == (0, f"{name} {virtqual.__version__}\n")


def test_a_broken_installation_says_nothing_about_a_build(tmp_path):
    """Python's own exit code is 1, which is that of OVER."""
    (tmp_path / "typer.py").write_text("from packages import none")
    done = subprocess.run(
        [sys.executable, "-c", "import virtqual.cli"],
        env={"PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "No module named 'packages'" in done.stderr) == (5, True)


@pytest.mark.parametrize("group", ["inputs", "site", "stack", "system"])
def test_a_group_of_commands_offers_no_completion(group):
    """It would be that of the group's name, which is no command of a shell."""
    done = CliRunner().invoke(cli.app, [group, "--help"])
    assert done.exit_code == 0
    assert "completion" not in done.output


@pytest.mark.parametrize(
    ("name", "extras"),
    [("requirements.lock", ()), ("requirements-dev.lock", ("dev",))],
    ids=["product", "dev"],
)
def test_a_lock_agrees_with_pyproject_toml(name, extras):
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    required = [*pyproject["build-system"]["requires"], *pyproject["project"]["dependencies"]]
    for extra in extras:
        required += pyproject["project"]["optional-dependencies"][extra]
    versions = read_lock(name)[1]
    for requirement in map(Requirement, required):
        version = versions.get(canonicalize_name(requirement.name), "no version")
        assert requirement.specifier.contains(version), (
            f"run ci/lock: {name} has {version}, not {requirement}"
        )


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_a_lock_has_wheels_with_hashes_and_names_no_index(name):
    text, versions = read_lock(name)
    packages = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)
    assert len(packages) == len(versions) + 1
    assert packages[0].endswith("\n--only-binary :all:\n\n")
    for package in packages[1:]:
        assert re.fullmatch(r"\S+==.*( \\\n    --hash=sha256:[0-9a-f]{64})+\n", package)
    assert "://" not in text


def test_both_locks_have_the_same_version_of_a_package():
    product, dev = read_lock("requirements.lock")[1], read_lock("requirements-dev.lock")[1]
    assert product.items() <= dev.items()


def locale_decides(source):
    """Yield the lines of calls whose text is encoded as the locale says.

    ruff's PLW1514 sees those of them whose object it knows to be a path: half.
    """
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        modes = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
        text = name in ("read_text", "write_text") or (
            name == "open" and not {"rb", "wb", "ab", "ab+"} & {*modes}
        )
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
