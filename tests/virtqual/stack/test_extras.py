"""Extras of the registry stack: set up if they are asked for, and kept."""

import pytest

from virtqual.errors import InfrastructureError, UsageError
from virtqual.stack import registry

SCRIPT = 'echo "of $(cat "$(dirname "$0")/part.txt")" > "$1"\n'


@pytest.fixture
def stacks(tmp_path, monkeypatch):
    """A stack with a program of its own, and the extra `large`, which a script builds of two files."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "build.sh").write_text(SCRIPT)
    (sources / "part.txt").write_text("one part")
    (tmp_path / "program").touch()
    entry = {"features": [], "version": "1"}
    programs = {"small": {**entry, "package": "small", "path": str(tmp_path / "program")}}
    built = {**entry, "source": "sources/build.sh", "path": "{prefix}/large"}
    large = {"packages": ["builder"], "programs": {"large": built}}
    recipe = {"wheels": ["w==1"], "packages": ["small"], "programs": programs, "extras": {"large": large}}
    monkeypatch.setattr(registry, "load_recipe", lambda file: recipe)
    monkeypatch.setattr(registry, "_read_version", lambda package: "1")
    monkeypatch.setattr(registry.platform, "freedesktop_os_release", lambda: {"ID": "debian"})
    monkeypatch.setattr(registry.paths, "root", lambda: tmp_path)
    library = tmp_path / "registry/prefix/lib/libmpi.so.12"
    library.parent.mkdir(parents=True)
    library.touch()
    return tmp_path


def test_an_extra_is_set_up_if_it_is_asked_for_and_kept_after_that(stacks):
    without = registry.choose_recipe(stacks)
    assert (without["packages"], list(without["programs"])) == (["small"], ["small"])
    registry.write_manifest(stacks, without)
    extended = registry.choose_recipe(stacks, ["large"])
    assert (extended["packages"], extended["wheels"]) == (["small", "builder"], ["w==1"])
    assert registry.load_current(stacks, extended) is None
    registry.write_manifest(stacks, extended)
    assert (stacks / "registry/prefix/large").read_text() == "of one part\n"
    assert registry.choose_recipe(stacks) == extended
    assert registry.load_current(stacks, extended)


def test_a_change_of_any_of_its_sources_builds_it_again(stacks):
    recipe = registry.choose_recipe(stacks, ["large"])
    registry.write_manifest(stacks, recipe)
    (stacks / "sources/part.txt").write_text("another part")
    assert registry.load_current(stacks, recipe) is None
    (stacks / "sources/build.sh").write_text("echo no compiler >&2; exit 1\n")
    with pytest.raises(InfrastructureError, match=r"could not build .*build\.sh.*\n.*no compiler"):
        registry.write_manifest(stacks, recipe)


@pytest.mark.parametrize(("installed", "missing"), [("0", ("w==1",)), ("1", ())])
def test_a_wheel_is_missing_unless_its_version_is_installed(stacks, monkeypatch, installed, missing):
    monkeypatch.setattr(registry.shutil, "which", lambda name: name)
    recipe = registry.choose_recipe(stacks)
    assert registry.plan(stacks, recipe).wheels == ("w==1",)
    site_packages = registry._find_site_packages(stacks / "registry/prefix")
    (site_packages / "w.dist-info").mkdir(parents=True)
    (site_packages / "w.dist-info/METADATA").write_text(f"Name: w\nVersion: {installed}\n")
    assert registry.plan(stacks, recipe).wheels == missing


def test_an_unknown_extra_is_refused(stacks):
    with pytest.raises(UsageError, match=r"no extra 'larg': did you mean large\?"):
        registry.choose_recipe(stacks, ["larg"])
