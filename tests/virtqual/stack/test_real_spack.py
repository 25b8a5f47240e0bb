"""Every set concretises with a real Spack and the pinned package repository, wherever there is one."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from virtqual.errors import InfrastructureError
from virtqual.stack import bring, build, environment, jobs, lock, pins
from virtqual.stack.environment import Choices
from virtqual.stack.jobs import Request

ROOT = Path(__file__).parents[3]
OURS = ("lammps", "milc", "perftest", "stream")


@pytest.fixture(scope="module")
def prepare(tmp_path_factory):
    """Prepare what a request asks for, with a real Spack; the package repository is brought once."""
    if not (os.environ.get("SPACK_ROOT") or shutil.which("spack")):
        pytest.skip("no Spack here: neither SPACK_ROOT nor PATH has one")
    state = tmp_path_factory.mktemp("state")
    root = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "config", root / "config", ignore=shutil.ignore_patterns("site"))
    shutil.copy(ROOT / "spack.yaml", root)

    def prepared(request):
        job = jobs.make(request, root, state)
        try:
            spack = bring.spack(job.state)
            recipes = bring.packages(job.state, pins.stack(root).packages)
        except InfrastructureError as error:
            pytest.skip(f"Spack is here, but not all that it needs: {error}")
        environment.write(job.made, root, job.request.choices, recipes, {})
        return job, spack

    return prepared


@pytest.fixture(scope="module")
def real(prepare):
    """A job of the set `all`, and Spack."""
    return prepare(Request())


@pytest.mark.parametrize(("mpi", "version"), [("mvapich", "4.1"), ("mpich", "4.3.2")])
def test_another_mpi_for_every_program(prepare, mpi, version):
    job, spack = prepare(Request(set="micro", choices=Choices(mpi=mpi)))
    made = build.concretised(job, spack, print)
    libraries = {p.name: p.version for p in made.packages.values() if p.name in pins.programs()["launch"]}
    assert libraries == {mpi: version}
    programs = {root.name for root in made.of(job.names) if made.find(root, mpi)}
    assert programs == {"osu-micro-benchmarks", "hpl"}


def test_the_shipped_lock_is_what_every_set_concretises_to(real):
    job, spack = real
    made = build.concretised(job, spack, print)
    for name in pins.SETS:
        members = pins.stack(ROOT).members(name)
        assert {root.name for root in made.of(members)} == set(members)
    shipped = lock.load(ROOT / "spack.lock")
    if shipped.system != made.system:
        pytest.skip(f"it concretises; the shipped lock is for {shipped.system}, this is {made.system}")
    if not spack.version.startswith("1.1."):
        pytest.skip(f"it concretises; the shipped lock is Spack 1.1's, this is {spack.version}")
    assert sorted(map(str, made.packages.values())) == sorted(map(str, shipped.packages.values()))
    assert set(made.packages) == set(shipped.packages)


@pytest.mark.parametrize(
    "command", [["audit", "packages", *OURS], ["list", "--repo", "virtqual", "--format", "name_only"]]
)
def test_the_overlay_recipes_pass_spacks_own_checks(real, command):
    job, spack = real
    done = subprocess.run(
        [spack.program, "-e", job.made.directory, *command],
        env=spack.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if command[0] == "list":
        assert set(OURS) <= set(done.stdout.split())


def test_the_shipped_lock_is_whole():
    locked = lock.load(ROOT / "spack.lock")
    assert {root.name for root in locked.of(pins.stack(ROOT).members("all"))} == set(
        pins.stack(ROOT).members("all")
    )
    assert locked.system.endswith("-x86_64_v3")
    now = environment.prepare(ROOT, ROOT / ".virtqual", Choices()).digest
    assert locked.inputs == now, "spack.yaml or config/ has changed: run `virtqual stack lock`"
    text = json.dumps([package.raw for package in locked.packages.values()])
    # Of this machine nothing but what every Debian has may be in it.
    assert {str(p.external) for p in locked.packages.values() if p.external} == {"/usr"}, text[:200]
