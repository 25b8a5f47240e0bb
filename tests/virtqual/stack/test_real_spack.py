"""Every set concretises with a real Spack and the pinned package repository, wherever there is one."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from virtqual.errors import InfrastructureError
from virtqual.stack import bring, build, environment, jobs, lock, pins
from virtqual.stack.environment import Choices
from virtqual.stack.jobs import BuildRequest

ROOT = Path(__file__).parents[3]
OURS = ("milc", "mpip", "perftest", "stream")


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
    return prepare(BuildRequest())


def ask(spack, *command, env=None):
    """Return what Spack says."""
    done = subprocess.run(
        [spack.program, *command], env=env or spack.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def target(package):
    said = package.raw["arch"]["target"]
    return said if isinstance(said, str) else said["name"]


@pytest.mark.parametrize(("mpi", "version"), [("mvapich", "4.1"), ("mpich", "4.3.2")])
def test_another_mpi_for_every_program(prepare, mpi, version):
    job, spack = prepare(BuildRequest(set="micro", choices=Choices(mpi=mpi)))
    made = build.concretised(job, spack, print)
    libraries = {p.name: p.version for p in made.packages.values() if p.name in pins.programs()["mpi"]}
    assert libraries == {mpi: version}
    programs = {root.name for root in made.of(job.names) if made.find(root, mpi)}
    assert programs == {"osu-micro-benchmarks", "hpl"}
    # Without these UCX carries everything by TCP on a fabric too.
    for ucx in (p for p in made.packages.values() if p.name == "ucx"):
        wanted = ("verbs", "rc", "ud", "dc", "mlx5_dv", "rdmacm", "cma")
        assert [name for name in wanted if ucx.variant(name) is not True] == []
        assert "rdma-core" in {made.packages[hash_].name for hash_ in ucx.links}
    assert (mpi == "mvapich") == any(p.name == "ucx" for p in made.packages.values())


@pytest.mark.parametrize("name", ["micro", "apps"])
def test_a_set_by_itself(prepare, name):
    job, spack = prepare(BuildRequest(set=name))
    made = build.concretised(job, spack, print)
    assert {made.packages[hash_].name for hash_ in made.roots} == set(pins.stack(ROOT).members(name))
    assert {target(p) for p in made.packages.values()} == {"x86_64_v3"}


def test_a_site_sets_target_size_and_scratch_in_files_of_its_own(prepare, tmp_path):
    (tmp_path / "packages.yaml").write_text(
        "packages:\n"
        "  all:\n"
        "    require: target=x86_64_v2\n"
        "  stream:\n"
        "    variants: stream_array_size=20000000\n"
    )
    (tmp_path / "config.yaml").write_text("config: {build_jobs: 3, build_stage: [/scratch/site]}\n")
    others = tuple(name for name in pins.stack(ROOT).members("micro") if name != "stream")
    job, spack = prepare(BuildRequest(set="micro", without=others, choices=Choices(site=tmp_path)))
    made = build.concretised(job, spack, print)
    assert {target(p) for p in made.packages.values()} == {"x86_64_v2"}
    assert made.of(["stream"])[0].variant("stream_array_size") == "20000000"
    said = YAML(typ="safe").load(ask(spack, "-e", job.made.directory, "config", "get", "config"))["config"]
    assert (said["build_jobs"], said["build_stage"][0]) == (3, "/scratch/site")


def test_nothing_but_the_project_and_spacks_defaults_counts(real, tmp_path):
    job, spack = real
    # Of the same kind as etc/spack and etc/spack/site in Spack's own directory, and can be put elsewhere.
    (tmp_path / "packages.yaml").write_text("packages: {zlib: {buildable: false}}\n")
    env = {**spack.env, "SPACK_SYSTEM_CONFIG_PATH": str(tmp_path)}
    env.pop("SPACK_DISABLE_LOCAL_CONFIG")
    blame = ["config", "blame", "packages"]
    assert str(tmp_path) in ask(spack, *blame, env=env)
    assert str(tmp_path) not in ask(spack, "-e", job.made.directory, *blame, env=env)
    scopes = ask(spack, "-e", job.made.directory, "config", "scopes", "-v", env=env).splitlines()[1:]
    active = {line.split()[0].partition(":")[0] for line in scopes if "active" in line.split()}
    assert active == {"command_line", "env", "defaults", "_builtin"}


def test_the_shipped_lock_is_what_every_set_concretises_to(real):
    job, spack = real
    made = build.concretised(job, spack, print)
    for name in ("micro", "apps", "all"):
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
    said = ask(spack, "-e", job.made.directory, *command)
    if command[0] == "list":
        assert set(OURS) <= set(said.split())


@pytest.mark.parametrize("tool", ["import", "isort", "black", "flake8"])
def test_the_overlay_recipes_pass_spack_style(prepare, tmp_path, tool):
    _, spack = prepare(BuildRequest())
    if tool != "import" and shutil.which(tool, path=spack.env["PATH"]) is None:
        pytest.skip(f"`spack style` would fetch {tool}: not on PATH")
    recipes = []
    for name in OURS:
        # By this name outside its own directory Spack knows a recipe, which may import all of spack.package.
        recipes.append(tmp_path / f"{name}-ci-package.py")
        shutil.copy(ROOT / f"config/repo/spack_repo/virtqual/packages/{name}/package.py", recipes[-1])
    assert f"{tool} checks were clean" in ask(spack, "style", "--tool", tool, *recipes)


def test_the_shipped_lock_is_whole():
    locked = lock.load(ROOT / "spack.lock")
    assert {root.name for root in locked.of(pins.stack(ROOT).members("all"))} == set(
        pins.stack(ROOT).members("all")
    )
    assert locked.system.endswith("-x86_64_v3")
    now = environment.prepare(ROOT, ROOT / ".virtqual", Choices()).digest
    assert environment.shipped(ROOT).inputs == now, (
        "spack.yaml or config/ has changed: run `virtqual stack lock`"
    )
    text = json.dumps([package.raw for package in locked.packages.values()])
    # Of this machine nothing but what every Debian has may be in it.
    assert {str(p.external) for p in locked.packages.values() if p.external} == {"/usr"}, text[:200]
