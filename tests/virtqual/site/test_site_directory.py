"""The site directory: what belongs to a centre lies outside what an update changes."""

import re
import shutil

import pytest

from calling import call
from virtqual import paths
from virtqual.errors import UsageError
from virtqual.references import load_references
from virtqual.references.marks import load_marks
from virtqual.site import configuration

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


@pytest.fixture
def made(tmp_path):
    """A site directory as `virtqual site init` makes it."""
    done = call("site", "init", tmp_path / "made", code=0)
    assert f"export VIRTQUAL_SITE={tmp_path}/made" in done.output
    return tmp_path / "made"


def test_what_a_site_directory_has_stays_and_what_it_lacks_is_added(made):
    (made / "README.md").write_text("mine")
    (made / "stacks").mkdir()
    # docs/add-kvm-hosts.md has people make these.
    (made / "hosts").mkdir()
    (made / "ask-hosts").touch()
    (made / "references/marks.yaml").unlink()
    call("site", "init", made, code=0)
    assert (made / "README.md").read_text() == "mine"
    assert (made / "references/marks.yaml").is_file()


def test_only_its_user_can_write_to_it_whatever_the_modes_of_the_checkout(tmp_path, monkeypatch):
    """A checkout may have been made for a group, or for everybody as runners of containers do."""
    shutil.copytree(paths.root() / "site.example", tmp_path / "site.example")
    for path in (tmp_path / "site.example", *(tmp_path / "site.example").rglob("*")):
        path.chmod(path.stat().st_mode | 0o022)
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    call("site", "init", tmp_path / "made", code=0)
    modes = {
        path.relative_to(tmp_path / "made").as_posix(): oct(path.stat().st_mode & 0o777)
        for path in (tmp_path / "made", *(tmp_path / "made").rglob("*"))
    }
    assert set(modes.values()) == {"0o755", "0o644"}
    assert (modes["ask-hosts"], modes["systems/_example.py"]) == ("0o755", "0o644")


def test_a_directory_of_something_else_is_left_as_it_is(made):
    (made / "thesis.tex").touch()
    for directory in (made, made / "README.md"):
        done = call("site", "init", directory, code=2)
        assert done.output == (
            f"virtqual: {directory} is no site directory: name one that does not exist yet\n"
        )
    done = call("site", "init", made / "README.md/site", code=2)
    assert done.output == f"virtqual: {made}/README.md/site cannot be made: Not a directory\n"


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
    (mark,) = load_marks(paths.site_references())
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
