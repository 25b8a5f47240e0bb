"""`virtqual stack` as people start it, with a stand-in for Spack."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from fakespack import provider
from typer.testing import CliRunner

from virtqual.commands.stack import app
from virtqual.errors import InfrastructureError
from virtqual.stack import bring, environment, lock, manifest, wheels

MICRO = ("--set", "micro", "--without", "hpl", "--without", "perftest")


@pytest.fixture
def stack(fake, checkout, tmp_path, monkeypatch):
    """Start the command in a checkout without a lock, where no network is."""
    (tmp_path / "recipes/a/b").mkdir(parents=True)
    monkeypatch.setenv("VIRTQUAL_ROOT", str(checkout))
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "none")
    monkeypatch.delenv("VIRTQUAL_SPACK_SITE", raising=False)
    monkeypatch.setattr(bring, "packages", lambda *_, **__: tmp_path / "recipes/a/b")

    def start(*arguments, code=0):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == code, done.output
        return done.output

    return start


def test_a_plan_without_a_lock_says_what_a_person_must_do(stack, fake, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None if name in ("csh", "patch") else f"/bin/{name}")
    said = stack("build", "--dry-run")
    assert said.startswith("set all: stream, osu-micro-benchmarks, hpl, perftest, lammps")
    assert re.search(r"not known yet.* \d+ GiB free", said)
    assert "TO SUPPLY BY HAND: namd needs NAMD_2.14_Source.tar.gz: get it from https://" in said
    assert "MISSING: Spack needs patch (Debian: apt-get install patch)" in said
    assert "MISSING: namd needs csh (Debian: apt-get install tcsh)" in said
    assert not (tmp_path / "state").exists()
    assert not (fake.path / "asked").exists()
    said = stack("build", "--dry-run", "--without", "namd")
    assert "BY HAND" not in said
    assert "csh" not in said


def test_a_plan_says_what_a_site_states_and_its_machine_has_not(stack, checkout, tmp_path):
    site = checkout / "config/site"
    site.mkdir()
    sinfo = tmp_path / "slurm/bin/sinfo"
    sinfo.parent.mkdir(parents=True)
    sinfo.write_text("#!/bin/sh\necho slurm 22.05.8\n")
    sinfo.chmod(0o755)
    (tmp_path / "slurm/include/slurm").mkdir(parents=True)
    (tmp_path / "slurm/include/slurm/pmi2.h").touch()
    (site / "packages.yaml").write_text(
        "packages:\n"
        f"  slurm::\n    externals:\n    - {{spec: slurm@23.11.10, prefix: {tmp_path}/slurm}}\n"
        "  hpcx-mpi:\n    externals:\n    - {spec: hpcx-mpi@2.20, prefix: /opt/nowhere/ompi}\n"
    )
    said = stack("build", "--dry-run")
    assert "MISSING: hpcx-mpi is taken from /opt/nowhere/ompi, which is not there: say in config/site" in said
    assert f"MISSING: {sinfo} -V says that it is 22.05.8, the configuration has slurm@23.11.10" in said
    (site / "packages.yaml").write_text("packages: [slurm]\n")
    assert "not a Spack configuration of packages" in stack("build", "--dry-run", code=2)


def test_a_site_may_write_umlauts_whatever_the_locale(checkout, tmp_path):
    (checkout / "config/site").mkdir()
    (checkout / "config/site/packages.yaml").write_text("packages: {}  # für uns\n", encoding="utf-8")
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    env = {
        **os.environ,
        **ascii_only,
        "VIRTQUAL_ROOT": str(checkout),
        "VIRTQUAL_STATE": str(tmp_path / "state"),
    }
    command = [sys.executable, "-c", "from virtqual.cli import app; app()", "stack", "build", "--dry-run"]
    done = subprocess.run(command, env=env, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    assert "set all: stream" in done.stdout


def test_a_build_shows_its_plan_as_soon_as_there_is_one(stack, tmp_path):
    said = stack("build", *MICRO)
    steps = (
        "not known yet",
        "concretising",
        "set micro: stream@5.10, osu-micro-benchmarks@7.5.2\n3 packages to install, 0 there, 1 from",
        "that were tried; not timed: 1",
        "] mpich-4.3.2",
        "osu 7.5.2 (Spack package",
    )
    places = [said.find(step) for step in steps]
    assert -1 not in places
    assert places == sorted(places)
    (made,) = manifest.installed(tmp_path / "state/stack")
    assert f"Spack stack {made.hash}" in said
    assert "0 packages to install, 3 there" in stack("build", *MICRO, "--dry-run")
    assert made.hash in stack("check")
    provider(made, "osu").data["osu_bw"].write_text("another")
    assert "osu_bw has changed" in stack("check", code=5)


def test_exit_codes(stack, fake):
    assert "'native'" in stack("build", "--side", "vritual", code=2)
    assert "no mpi" in stack("build", "--mpi", "mpi2", code=2).lower()
    fake.breaks("mpich")
    assert "mpich@4.3.2/mmmmmmm could not be built" in stack("build", *MICRO, code=5)


def test_a_mirror_lists_what_it_lacks(stack, tmp_path, monkeypatch):
    def no_index(root, target):
        raise InfrastructureError("pip could not have all")

    monkeypatch.setattr(wheels, "gather", no_index)
    said = stack("mirror", str(tmp_path / "mirror"), *MICRO, code=5)
    assert "LACKING: spack.git: " in said
    assert "LACKING: wheels: pip could not have all" in said
    assert "is not complete" in said


def test_a_lock_is_worked_out_anew(stack, fake, tmp_path):
    stack("lock")
    shipped = environment.shipped(tmp_path / "checkout")
    assert shipped.packages == lock.load(tmp_path / "checkout/spack.lock").digest
    assert (fake.path / "asked").read_text() == "concretize\n"
