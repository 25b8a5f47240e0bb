"""What a build is of: a site's choices, whose lock counts, and the side that only installs."""

import json
import shutil
from pathlib import Path

import distro
import pytest
from fakespack import lock_of, provider

from virtqual.errors import UsageError
from virtqual.stack import build, environment, jobs, pins
from virtqual.stack.environment import Choices


def silent(_line):
    pass


def worked_out(job, **how):
    """Return the lock of a job's environment."""
    spack, _ = build.begun(job, silent)
    return build.concretised(job, spack, silent, **how)


def test_another_mpi_is_another_environment(checkout, tmp_path):
    state = tmp_path / "state"
    ours = environment.prepare(checkout, state, Choices())
    other = environment.prepare(checkout, state, Choices(mpi="mpich"))
    assert ours.directory != other.directory
    assert (ours.plain, other.plain) == (True, False)
    environment.write(other, checkout, Choices(mpi="mpich"), tmp_path / "recipes", {})
    written = (other.directory / "spack.yaml").read_text()
    assert "config/common/mpi/mpich.yaml" in written
    assert "mvapich2.yaml" not in written.partition("definitions")[0]
    with pytest.raises(UsageError, match="there are: mpich, mvapich, mvapich2"):
        environment.prepare(checkout, state, Choices(mpi="openmpi"))


def test_a_lock_that_is_named_counts_for_that_build_only(fake, start, tmp_path):
    given = tmp_path / "given.lock"
    given.write_text(json.dumps(lock_of()).replace("o" * 32, "p" * 32))
    assert "p" * 32 in provider(build.build(start(lock=given), silent), "osu").origin
    assert "o" * 32 in provider(build.build(start(), silent), "osu").origin
    with pytest.raises(UsageError, match="no such file"):
        start(lock=tmp_path / "none")


@pytest.mark.parametrize(
    ("release", "system"),
    [
        ("ID=debian\nVERSION_ID=12", "debian12"),
        ("ID=ubuntu\nVERSION_ID=24.04", "ubuntu24.04"),
        ("ID=rhel\nVERSION_ID=9.4", "rhel9"),
        ("ID=sles\nVERSION_ID=15.5", "sles15"),
        ("ID=ol\nVERSION_ID=9.3", "oracle9"),
        ("ID=opensuse-leap\nVERSION_ID=15.6", "opensuse15"),
        ("ID=azurelinux\nVERSION_ID=3.0", "azurelinux3"),
    ],
)
def test_operating_systems_have_spacks_own_names(tmp_path, monkeypatch, release, system):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text(release + "\n")
    known = distro.LinuxDistribution(root_dir=str(tmp_path))
    monkeypatch.setattr(environment.distro, "id", known.id)
    monkeypatch.setattr(environment.distro, "version", known.version)
    assert environment.host_system() == system


def test_a_lock_for_another_operating_system_is_refused(fake, start, tmp_path):
    here = environment.host_system()
    given = tmp_path / "given.lock"
    given.write_text(json.dumps(lock_of()).replace(here, "rocky9"))
    with pytest.raises(UsageError, match=rf"given\.lock is a lock for rocky9, and this is {here}"):
        start(lock=given)


def test_a_shipped_lock_is_used_for_what_it_was_made_from_only(fake, start, checkout, tmp_path):
    job = start(set="all")
    worked_out(job)
    environment.ship(job.made, checkout)
    assert environment.shipped_lock(checkout, job.made) == checkout / "spack.lock"
    # Worked out anew, neither it nor the environment's own counts; it stays until there is another.
    fake.lock(json.loads(json.dumps(lock_of()).replace("o" * 32, "p" * 32)))
    assert "p" * 32 not in worked_out(start(set="all")).packages
    assert "p" * 32 in worked_out(start(set="all"), anew=True).packages
    assert "o" * 32 in (checkout / "spack.lock").read_text()
    text = (checkout / "spack.yaml").read_text()
    (checkout / "spack.yaml").write_text("# a comment\n" + text)
    assert environment.shipped_lock(checkout, environment.prepare(checkout, tmp_path, Choices()))
    (checkout / "spack.yaml").write_text(text.replace("mpi/mvapich2.yaml", "mpi/mpich.yaml"))
    assert environment.shipped_lock(checkout, environment.prepare(checkout, tmp_path, Choices())) is None


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("config/site/packages.yaml", "", "packages:\n  gcc: {a: b\n", r"packages\.yaml line \d: "),
        ("config/site/packages.yaml", "", "a: b\na: c\n", r"packages\.yaml line 2: .*duplicate key"),
        ("config/site/packages.yaml", "", "packages: {a: {}, 12: {}}\n", r"yaml: packages\.12: .* no text"),
        ("config/site/packages.yaml", "", "a: [{b: {null: c}}]\n", r"yaml: a\.0\.b\.None: .* no text"),
        ("spack.yaml", "    builtin:\n", "    builtin: [\n", r"spack\.yaml line \d+: "),
        ("spack.yaml", "  repos:", "  others:", r"spack\.yaml: the key 'repos' is missing"),
        ("spack.yaml", "      commit: ", "      tag: ", "not pinned by a commit"),
        ("spack.yaml", "      git: ", "      from: ", "the key 'git' is missing"),
        ("spack.yaml", "  definitions:", "  definitions: 1\n  others:", "do not have their form"),
    ],
)
def test_a_mistake_in_yaml_is_named(checkout, tmp_path, file, old, new, told):
    path = checkout / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(path.read_text().replace(old, new, 1) if old else new)
    choices = Choices(site=environment.site_directory(checkout, None))
    with pytest.raises(UsageError, match=told):
        jobs.make(jobs.BuildRequest(choices=choices), checkout, tmp_path / "stacks")


def test_the_side_changes_no_hash(checkout, tmp_path):
    sides = [environment.prepare(checkout, tmp_path, Choices(side=side)) for side in ("native", "virtual")]
    assert sides[0] == sides[1]


def test_the_virtual_side_installs_the_same_lock_and_builds_nothing(fake, start, tmp_path):
    compiler = tmp_path / "gcc"
    compiler.write_text("#!/bin/sh\necho 12.2.0\n")
    compiler.chmod(0o755)
    said = lock_of()
    said["concrete_specs"]["g" * 32]["external"]["extra_attributes"] = {"compilers": {"c": str(compiler)}}
    fake.lock(said)
    native = build.build(start(without=("hpl", "perftest")), silent)
    shipped = tmp_path / "stacks/spack/spack.lock"
    (tmp_path / "shipped").mkdir()
    kept = shutil.copy(shipped, tmp_path / "shipped/spack.lock")
    shutil.rmtree(tmp_path / "stacks")
    fake.lock({"concrete_specs": {}, "roots": []})  # concretising again would give this
    with pytest.raises(UsageError, match="needs --buildcache"):
        start(choices=Choices(side="virtual"), lock=kept)
    # What only builds need may be lacking here.
    kept.write_text(kept.read_text().replace(str(compiler), "/none/gcc"))
    job = start(
        choices=Choices(side="virtual"), lock=kept, buildcache=str(tmp_path), without=("hpl", "perftest")
    )
    virtual = build.build(job, silent)
    assert "--use-buildcache=only" in (fake.path / "asked").read_text()
    assert virtual.hash == native.hash
    assert [p.origin for p in virtual.programs] == [p.origin for p in native.programs]
    written = (job.made.directory / "spack.yaml").read_text()
    assert "config/virtual" in written
    assert f"url: {tmp_path.as_uri()}\n" in written


def test_the_virtual_side_is_refused_at_another_path(fake, start, checkout, tmp_path):
    build.build(start(without=("hpl", "perftest")), silent)
    native = tmp_path / "stacks/spack/spack.lock"
    request = jobs.BuildRequest(
        set="micro", choices=Choices(side="virtual"), lock=native, buildcache=str(tmp_path), without=("hpl",)
    )
    with pytest.raises(UsageError, match=f"Set VIRTQUAL_STATE to {tmp_path} here too"):
        jobs.make(request, checkout, tmp_path / "other/stacks")
    # Spack's own lock says no place.
    with pytest.raises(UsageError, match="does not say where"):
        start(choices=Choices(side="virtual"), lock=fake.path / "lock.json", buildcache=str(tmp_path))


def test_spack_yaml_is_read_once(checkout, monkeypatch):
    asked, read = [], Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda self, **how: asked.append(self.name) or read(self, **how))
    pins.stack(checkout)
    assert asked == ["spack.yaml"]


def test_what_spack_yaml_pins():
    root = Path(__file__).parents[3]
    said = pins.stack(root)
    assert set(said.members("micro")) == {"stream", "osu-micro-benchmarks", "hpl", "perftest"}
    assert {"namd", "wrf", "lammps", "npb", "milc"} <= set(said.members("all"))
    known = {entry["package"] for entry in pins.programs()["programs"].values()}
    assert known == set(said.members("all"))
    lines = (root / "spack.yaml").read_text().splitlines()
    assert all("@=" in line for line in lines if line.strip().startswith("- ") and "@" in line)
