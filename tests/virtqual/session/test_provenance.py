"""What judged a session: each change of the code or of the reviewed data is another provenance."""

import platform
import subprocess
from types import SimpleNamespace

import numpy
import pytest

import virtqual
from virtqual.session import provenance as module
from virtqual.session.session import Provenance

FILES = (
    "root/references/budgets/kvm.yaml",
    "root/references/README.md",
    "root/reframe/systems/lab.py",
    "site/references/budgets/kvm.yaml",
    "site/references/folder.yaml/README.md",
    "site/systems/own.py",
    "site/checks/more/own.py",
)


def git(directory, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    command = ["git", "-C", directory, *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return the directory of a checkout (root) and of a site."""
    for file in FILES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(file, encoding="utf-8")
    git(tmp_path, "init", "--quiet", "root")
    git(tmp_path / "root", "add", ".")
    git(tmp_path / "root", "commit", "--quiet", "--message=first")
    monkeypatch.setenv("VIRTQUAL_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("VIRTQUAL_SITE", str(tmp_path / "site"))
    return tmp_path


def read():
    return module.provenance.__wrapped__()


def find_differences(one, other):
    return {name for name in Provenance.model_fields if getattr(one, name) != getattr(other, name)}


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("root/references/budgets/kvm.yaml", {"references", "modified"}),
        ("root/references/README.md", {"modified"}),
        ("root/references/new.yaml", {"references"}),
        ("root/reframe/systems/lab.py", {"site", "modified"}),
        ("root/checks/new.py", set()),
        ("site/references/budgets/kvm.yaml", {"references"}),
        ("site/systems/own.py", {"site"}),
        ("site/checks/more/own.py", {"site"}),
        ("site/checks/more/new.py", {"site"}),
        ("site/checks/more/README.md", set()),
    ],
)
def test_a_changed_or_new_file_is_another_provenance(place, file, changed):
    before = read()
    assert (before.version, before.modified) == (virtqual.__version__, False)
    assert before.commit == git(place / "root", "rev-parse", "HEAD")
    (place / file).parent.mkdir(exist_ok=True)
    (place / file).write_text("changed", encoding="utf-8")
    assert find_differences(before, read()) == changed


def test_a_commit_is_another_provenance_and_a_place_of_the_files_is_none(place, monkeypatch):
    before = read()
    git(place / "root", "commit", "--quiet", "--allow-empty", "--message=second")
    assert find_differences(before, read()) == {"commit"}
    monkeypatch.setenv("VIRTQUAL_SITE", str((place / "site").rename(place / "moved")))
    assert find_differences(before, read()) == {"commit"}
    (place / "moved/systems/own.py").rename(place / "moved/systems/other.py")
    assert find_differences(before, read()) == {"commit", "site"}


def test_a_checkout_of_another_user_names_its_commit(place, monkeypatch):
    before = read()
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    (place / "root/references/README.md").write_text("changed", encoding="utf-8")
    assert find_differences(before, read()) == {"modified"}


def test_other_code_is_another_provenance_without_git(place, monkeypatch):
    monkeypatch.setenv("PATH", "")
    before = read()
    monkeypatch.setattr(module.virtqual, "__file__", str(place / "root/virtqual/__init__.py"))
    assert find_differences(before, read()) == {"packages"}


@pytest.mark.parametrize("lacking", ["git", "repository", "commit"])
def test_without_a_commit_there_is_none(place, monkeypatch, lacking):
    if lacking == "git":
        monkeypatch.setenv("PATH", "")
    else:
        (place / "root/.git").rename(place / "git")
    if lacking == "commit":
        git(place, "init", "--quiet", "root")
    assert (read().commit, read().modified) == ("", False)


def test_another_version_of_a_package_is_another_provenance_and_another_order_is_none(place, monkeypatch):
    def install(*packages):
        found = [SimpleNamespace(name=name, version=version) for name, version in packages]
        monkeypatch.setattr(module, "distributions", lambda: found)
        return read().packages

    both = install(("a", "1"), ("b", "2"))
    others = {install(("a", "1"), ("b", "3")), install(("a", "1"), ("c", "2")), install(("a", "1"))}
    assert len(others - {both}) == 3
    assert install(("b", "2"), ("a", "1")) == both


def test_the_versions_of_what_judges_are_recorded(place):
    versions = read().versions
    assert versions["python"] == platform.python_version()
    assert versions["numpy"] == numpy.__version__
    assert {"scipy", "pydantic", "reframe-hpc"} < versions.keys()
