"""The site directory: what belongs to a centre lies outside what an update changes."""

import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from calling import call
from virtqual import paths
from virtqual.errors import UsageError
from virtqual.references import load_references
from virtqual.references.marks import load_marks
from virtqual.site import configuration

ROOT = Path(__file__).parents[3]
#: Examples that are commented out: what is to be put in their place, and how the file then reads.
IN_PLACE = re.compile(r"^\w+: \[\]\n# In place of the last line:\n((?:# .*\n)+)", re.MULTILINE)


def test_a_site_directory_that_is_named_must_exist(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_ROOT", str(tmp_path))
    monkeypatch.delenv("VIRTQUAL_SITE", raising=False)
    assert paths.site() == tmp_path / "site"
    monkeypatch.setenv("VIRTQUAL_SITE", str(tmp_path / "gone"))
    with pytest.raises(UsageError, match=r"VIRTQUAL_SITE: .*/gone does not exist; .*virtqual site init"):
        paths.site()
    (tmp_path / "gone").touch()
    with pytest.raises(UsageError, match=r"VIRTQUAL_SITE: .*/gone is no directory"):
        paths.site()
    monkeypatch.setenv("VIRTQUAL_SITE", str(tmp_path))
    assert paths.site() == tmp_path


def test_plain_reframe_names_a_site_directory_that_is_not_there(site):
    done = site.run("reframe", "-l", "--system", "testsite", VIRTQUAL_SITE=str(site.path / "gone"), code=1)
    assert "VIRTQUAL_SITE: " in done.stdout + done.stderr


@pytest.mark.parametrize("variable", ["SYSTEMS", "REFERENCES", "SHARED", "SPACK_SITE"])
def test_a_variable_that_is_not_read_any_more_is_refused(monkeypatch, variable):
    monkeypatch.setenv(f"VIRTQUAL_{variable}", "/anywhere")
    with pytest.raises(UsageError, match=rf"VIRTQUAL_{variable} is not read any more: docs/updating.md"):
        paths.site()


@pytest.fixture
def made(tmp_path):
    """A site directory as `virtqual site init` makes it."""
    done = call("site", "init", tmp_path / "made", code=0)
    assert f"export VIRTQUAL_SITE={tmp_path}/made" in done.output
    return tmp_path / "made"


def test_a_directory_that_is_not_empty_is_left_as_it_is(made):
    (made / "README.md").write_text("mine")
    for directory in (made, made / "README.md"):
        done = call("site", "init", directory, code=2)
        assert done.output == (
            f"virtqual: {directory} is not an empty directory: name one that does not exist yet\n"
        )
    assert (made / "README.md").read_text() == "mine"


def test_the_example_of_a_system_and_of_references_is_right(made, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_SITE", str(made))
    with pytest.raises(UsageError, match="there is no system 'example'"):
        configuration.load_system("example")
    (made / "systems/_example.py").rename(made / "systems/example.py")
    assert configuration.load_system("example").name == "example"
    assert len((made / "README.md").read_text().splitlines()) <= 12
    for name in ("waivers.yaml", "marks.yaml"):
        file = made / "references" / name
        text, count = IN_PLACE.subn(lambda match: re.sub("^# ", "", match[1], flags=re.M), file.read_text())
        assert count == 1
        file.write_text(text)
    (waiver,) = load_references(paths.references(), paths.site_references()).waivers
    assert (waiver.metric, waiver.place[0]) == ("memory_triad", str(made / "references/waivers.yaml"))
    (mark,) = load_marks((paths.site_references(), paths.references()))
    assert mark.what == "BIOS 2.4 on all nodes"


def test_the_example_of_a_check_is_judged_once_it_is_asked_for(made, site):
    (site.path / "site/checks").mkdir()
    check = shutil.copy(made / "checks/example.py", site.path / "site/checks/example.py")
    assert "copy_rate" not in site.run("reframe", "-L", "--mode=full", "--system", "testsite").stdout
    text = check.read_text()
    check.write_text(text.replace("# judge(", "judge("))
    done = site.qualify("--full", "-n", "copy_rate", "--max-pairs", "4")
    assert [verdict["metric"] for verdict in site.session()["verdicts"]] == ["copy_rate_rate"], done.stderr
    values = [run["results"][0]["values"][0] for run in site.session()["runs"]]
    assert min(values) > 1


# What the stand-ins' times differ by, and more: with it two pairs of an earlier session are enough.
NOISE = """schema: virtqual-noise/1
noise:
  - {family: application, sigma: 0.005, df: 20, between: 0.001, between_df: 20, source: the tests}
"""
OLD_CHECK = """import reframe

from ..judged import judge
from .names import TRIAD

judge(TRIAD, metrics={"triad_bw": "memory_triad"})
"""
COMMANDS = re.findall(r"^    (?!git )(.*)$", (ROOT / "docs/updating.md").read_text("utf-8"), re.MULTILINE)


@pytest.fixture
def older(site):
    """A checkout with the files of a centre of the older way, and with a session that was made there."""
    root = site.path / "checkout"
    for name in ("checks", "reframe", "references"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "site"))
    new, stack = site.path / "site", root / ".virtqual/stack"
    shutil.copytree(new / "stacks", stack)
    manifest = stack / "fake/manifest.json"
    manifest.write_text(manifest.read_text().replace(str(new / "stacks"), str(stack)))
    shutil.copy(new / "systems/testsite.py", root / "reframe/systems")
    rules = root / "references/preflight.yaml"
    refusal = re.compile(r"(item: (?:steal|foreign-load)\n.*?default: )refuse", re.DOTALL)
    rules.write_text(refusal.sub(r"\1report", rules.read_text()))
    write(root, "references/systems/testsite/noise.yaml", NOISE)
    (root / "state").symlink_to(".virtqual")
    env = {**site.env, "VIRTQUAL_ROOT": str(root), "VIRTQUAL_STATE": str(root / ".virtqual")}
    env |= {"VIRTQUAL_SITE": "", "RFM_CONFIG_FILES": str(root / "reframe/settings.py")}
    centre = replace(site, path=root, env=env)
    # The session alone is made with the stack in its new place.
    (root / "site").mkdir()
    (root / "site/stacks").symlink_to(stack)
    centre.qualify("-n", "lj", code=0)
    shutil.rmtree(root / "site")
    write(root, "references/inputs/site.yaml", "schema: virtqual-inputs/1\ninputs: []\n")
    write(root, "references/waivers.yaml", "schema: virtqual-waivers/1\nwaivers: []\n")
    write(root, "references/marks.yaml", "schema: virtqual-marks/1\nmarks: []\n")
    write(root, "config/site/packages.yaml", "packages: {}\n")
    write(root, "checks/site/__init__.py", "")
    write(root, "checks/site/memory.py", OLD_CHECK)
    write(root, "checks/site/names.py", f"TRIAD = {str(ROOT / 'tests/foreign/triad.py:triad')!r}\n")
    write(root, ".virtqual/inputs/case/list.json", "{}")
    write(root, ".virtqual/notify.yaml", "schema: virtqual-notify/1\ncommand: 'true'\n")
    return centre


def write(root, name, text):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, encoding="utf-8")


def test_a_centre_of_the_older_way_is_moved_by_the_page_and_its_session_can_be_named(older):
    (first,) = (directory.name for directory in (older.path / ".virtqual/sessions").glob("2*"))
    line = ("qualify", "--system", "testsite", "-n", "lj", "--against", first)
    refused = older.virtqual(*line, code=2)
    assert f"stack is not read any more: move it to {older.path}/site/stacks" in refused.stderr
    commands = "\n".join(COMMANDS).replace("mysite", "testsite")
    older.run("bash", "-ec", commands, code=0)
    # Nothing of the centre is left in virtqual's own directories.
    assert [path.name for path in (older.path / "reframe/systems").glob("*.py")] == ["vcluster.py"]
    for name in ("references/systems", "references/waivers.yaml", "config/site", "checks/site"):
        assert not (older.path / name).exists()
    time.sleep(1.1)
    older.virtqual(*line, code=0)
    session = older.session()
    assert (session["against"], {verdict["gate"] for verdict in session["verdicts"]}) == (
        first,
        {"overhead", "change"},
    )
    older.virtqual("status", "--notify", code=0)
    listed = older.run("reframe", "-L", "--mode=full", "--system", "testsite", "-n", "^triad")
    assert "2 checks, 2 with a verdict" in listed.stdout, listed.stdout + listed.stderr
