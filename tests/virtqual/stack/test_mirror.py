"""What an isolated site needs is gathered, and used from there alone."""

import json
import subprocess

import pytest

from virtqual.errors import InfrastructureError, UsageError
from virtqual.stack import build, environment, jobs, lock, mirror, repositories
from virtqual.stack.pins import Repository


def git(path, *arguments):
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-C", path, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def published(tmp_path):
    """A repository with two commits, the first of which is pinned."""
    root = tmp_path / "published"
    root.mkdir()
    git(root, "init", "--quiet")
    for content in ("first", "second"):
        (root / "recipe").write_text(content)
        git(root, "add", "recipe")
        git(root, "commit", "--quiet", "--message", content)
    return Repository(root.as_uri(), git(root, "rev-parse", "HEAD~1"), "1")


def test_a_commit_is_brought_whole(published, tmp_path):
    repositories.checkout(published, tmp_path / "have", mirrored=None, offline=False)
    assert (tmp_path / "have/recipe").read_text() == "first"
    assert not list(tmp_path.glob("*.part"))
    # It is there: neither network nor mirror is asked again.
    gone = published._replace(url="file:///nowhere")
    repositories.checkout(gone, tmp_path / "have", mirrored=None, offline=True)


def test_from_checkout_to_mirror_to_checkout(published, tmp_path):
    repositories.checkout(published, tmp_path / "have", mirrored=None, offline=False)
    repositories.bare(published, tmp_path / "have", tmp_path / "mirror.git")
    gone = published._replace(url="file:///nowhere")
    repositories.bare(gone, tmp_path / "none", tmp_path / "mirror.git")
    repositories.checkout(gone, tmp_path / "isolated", mirrored=tmp_path / "mirror.git", offline=True)
    assert (tmp_path / "isolated/recipe").read_text() == "first"


def test_what_is_not_there_leaves_nothing_behind(published, tmp_path):
    other = published._replace(commit="0" * 40)
    with pytest.raises(InfrastructureError, match="git fetch failed"):
        repositories.checkout(other, tmp_path / "have", mirrored=None, offline=False)
    assert not (tmp_path / "have").exists()
    with pytest.raises(InfrastructureError, match="is no mirror"):
        repositories.checkout(published, tmp_path / "have", mirrored=tmp_path / "none", offline=True)


def test_what_a_mirror_lacks_is_listed(fake, start, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "none")
    (tmp_path / "recipes").mkdir()
    job = start(set="apps", without=("lammps", "npb", "milc", "mpip", "wrf"))
    lacking = mirror.gather(job, tmp_path / "mirror", lambda line: None)
    assert [text.split(":")[0] for text in lacking] == [
        "spack-packages.git",
        "spack.git",
        "namd needs NAMD_2.14_Source.tar.gz",
    ]
    assert json.loads((tmp_path / "mirror/mirror.json").read_text())["lacking"] == lacking


def test_a_mirror_brings_the_lock_of_the_same_configuration(fake, start, checkout, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "none")
    (tmp_path / "recipes").mkdir()
    job = start(without=("hpl", "perftest"))
    mirror.gather(job, tmp_path / "mirror", lambda line: None)
    # A site's own mirror has what must not be published too: NAMD.
    asked = (fake.path / "asked").read_text().splitlines()
    assert [line.split()[2] for line in asked if line.startswith("mirror create")] == ["--private"]
    assert not any(line.startswith("buildcache") for line in asked)
    build.build(job, lambda line: None)
    mirror.gather(job, tmp_path / "mirror", lambda line: None)
    (push,) = (line for line in (fake.path / "asked").read_text().splitlines() if "buildcache" in line[:12])
    assert "--private" in push
    assert push.count("/" + "s" * 32) == 1
    assert lock.load(tmp_path / "mirror/spack.lock").store == job.made.store
    request = jobs.BuildRequest(set="micro", without=("hpl", "perftest"), mirror=tmp_path / "mirror")
    elsewhere = jobs.make(request, checkout, tmp_path / "elsewhere")
    assert jobs.known_lock(elsewhere) is not None
    locked, here = tmp_path / "mirror/spack.lock", environment.host_system()
    kept = locked.read_text()
    locked.write_text(kept.replace(here, "rocky9"))
    with pytest.raises(UsageError, match=rf"spack\.lock is a lock for rocky9, and this is {here}"):
        jobs.known_lock(elsewhere)
    locked.write_text(kept)
    (checkout / "config/common/config.yaml").write_text("config: {deprecated: false}\n")
    assert jobs.known_lock(jobs.make(request, checkout, tmp_path / "elsewhere")) is None
