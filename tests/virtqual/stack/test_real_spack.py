"""Our files for Spack, used by a real Spack, if ``SPACK_ROOT`` or ``PATH`` names one."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[3]
RECIPES = ("milc", "mpip", "perftest", "stream", "stress-ng", "virtqual-programs")


@pytest.fixture(scope="module")
def spack():
    """Return the path of Spack's program."""
    root = os.environ.get("SPACK_ROOT")
    program = shutil.which("spack", path=f"{root}/bin" if root else None)
    return program or pytest.skip("no Spack here: neither SPACK_ROOT nor PATH has one")


@pytest.fixture
def ask(spack, tmp_path, monkeypatch):
    """Run Spack in an environment with some of our specs, and return its output."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    content = YAML(typ="safe").load((ROOT / "spack.yaml").read_text(encoding="utf-8"))
    builtin = content["spack"]["repos"]["builtin"]
    recipes = Path(builtin["destination"].replace("$env", str(ROOT)))
    if not recipes.is_dir():
        pytest.skip(f"no clone of Spack's package repository in {recipes}: ci/build-stack makes it")
    builtin["destination"] = str(recipes)
    monkeypatch.delenv("VIRTQUAL_SITE", raising=False)

    def run(*arguments, specs=None, env=None, code=0):
        if specs:
            content["spack"]["specs"] = specs
        YAML().dump(content, tmp_path / "spack.yaml")
        done = subprocess.run(
            [spack, "-e", tmp_path, *arguments],
            env={**os.environ, "SPACK_COLOR": "never", **(env or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    return run


def concretize(ask, directory, specs=None):
    ask("concretize", "--force", specs=specs)
    lock = json.loads((directory / "spack.lock").read_text(encoding="utf-8"))
    return list(lock["concrete_specs"].values())


@pytest.mark.parametrize(("mpi", "version"), [("mvapich", "4.1"), ("mpich", "4.3.2"), ("openmpi", "4.1.8")])
def test_another_mpi_for_all_programs(ask, tmp_path, mpi, version):
    requirement = (ROOT / f"config/common/mpi/{mpi}.yaml").read_text(encoding="utf-8")
    (tmp_path / "site/spack").mkdir(parents=True)
    (tmp_path / "site/spack/packages.yaml").write_text(requirement, encoding="utf-8")
    packages = concretize(ask, tmp_path, ["$micro"])
    providers = {
        f"{package['name']} {package['version']}"
        for package in packages
        if package["name"] in ("mvapich2", "mvapich", "mpich", "openmpi")
    }
    assert providers == {f"{mpi} {version}"}
    # Without these UCX would use TCP on a fabric, too.
    for ucx in (package for package in packages if package["name"] == "ucx"):
        wanted = ("verbs", "rc", "ud", "dc", "mlx5_dv", "rdmacm", "cma")
        assert [name for name in wanted if ucx["parameters"][name] is not True] == []
        assert "rdma-core" in {dependency["name"] for dependency in ucx["dependencies"]}
    assert (mpi != "mpich") == any(package["name"] == "ucx" for package in packages)


def test_a_site_overrides_target_size_and_scratch(ask, tmp_path):
    (tmp_path / "site/spack").mkdir(parents=True)
    (tmp_path / "site/spack/packages.yaml").write_text(
        "packages:\n"
        "  all:\n"
        "    require: target=x86_64_v2\n"
        "  stream:\n"
        "    variants: stream_array_size=20000000\n"
    )
    settings = "config: {build_jobs: 3, build_stage: [/scratch/site], install_tree: {root: /apps/stack}}\n"
    (tmp_path / "site/spack/config.yaml").write_text(settings)
    packages = concretize(ask, tmp_path, ["stream@=5.10 +openmp"])
    assert {package["arch"]["target"] for package in packages} == {"x86_64_v2"}
    (stream,) = (package for package in packages if package["name"] == "stream")
    assert stream["parameters"]["stream_array_size"] == "20000000"
    config = YAML(typ="safe").load(ask("config", "get", "config"))["config"]
    assert (config["build_jobs"], config["build_stage"][0]) == (3, "/scratch/site")
    assert config["install_tree"]["root"] == "/apps/stack"


@pytest.mark.parametrize("named", [True, False])
def test_the_store_lies_in_the_site_directory(ask, tmp_path, named):
    place = tmp_path / ("elsewhere" if named else "site")
    shutil.copytree(ROOT / "site.example", place)
    env = {"VIRTQUAL_SITE": str(place)} if named else {}
    scopes = ask("config", "scopes", "-pv", env=env)
    assert re.findall(r"^virtqual-site .* active +(\S+)$", scopes, re.MULTILINE) == [f"{place}/spack/"], (
        scopes
    )
    program = "import spack.store; print(spack.store.STORE.root)"
    assert ask("python", "-c", program, env=env).strip() == f"{place}/stacks/spack/store"
    ask("config", "--scope", "virtqual-site", "add", "config:build_jobs:3", env=env)
    assert "build_jobs: 3" in (place / "spack/config.yaml").read_text(encoding="utf-8")


def test_a_site_directory_that_is_not_there_is_no_place_to_write_to(ask):
    """Spack has a scope of its own called `site`, which does not count here."""
    ask("config", "--scope", "virtqual-site", "add", "config:build_jobs:3", code=2)


def test_a_bootstrap_mirror_is_a_choice_of_the_site(ask, tmp_path):
    (tmp_path / "site/spack").mkdir(parents=True)
    for kind in ("binaries", "sources"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "metadata.yaml").write_text("type: buildcache\ninfo: {url: none}\n")
    ask("bootstrap", "add", "--trust", "ours", str(tmp_path / "binaries"))
    assert "ours" in (tmp_path / "site/spack/bootstrap.yaml").read_text(encoding="utf-8")


def test_no_other_configuration_counts(ask, tmp_path):
    (tmp_path / "system").mkdir()
    (tmp_path / "system/packages.yaml").write_text("packages: {zlib: {buildable: false}}\n")
    env = {"SPACK_SYSTEM_CONFIG_PATH": str(tmp_path / "system")}
    assert str(tmp_path / "system") not in ask("config", "blame", "packages", env=env)
    scopes = ask("config", "scopes", "-v", env=env).splitlines()[1:]
    active = {line.split()[0].partition(":")[0] for line in scopes if "active" in line.split()}
    assert active == {"command_line", "env", "defaults", "_builtin"}


@pytest.mark.slow
def test_the_shipped_lock_is_reproduced(ask, tmp_path):
    packages = {package["hash"]: package for package in concretize(ask, tmp_path)}
    lock = json.loads((ROOT / "spack.lock").read_text(encoding="utf-8"))
    shipped = lock["concrete_specs"]
    ours, theirs = (next(iter(nodes.values()))["arch"]["platform_os"] for nodes in (packages, shipped))
    if ours != theirs:
        pytest.skip(f"it concretizes; the shipped lock is for {theirs}, and this is {ours}")
    assert packages == shipped


def test_the_overlay_recipes_pass_spacks_own_checks(ask, spack, tmp_path):
    ask("audit", "packages", *RECIPES)
    assert set(RECIPES) <= set(ask("list", "--repo", "virtqual", "--format", "name_only").split())
    for name in RECIPES:
        # Outside its own directory Spack knows a recipe, which imports all of spack.package, by this name.
        recipe = tmp_path / f"{name}-ci-package.py"
        shutil.copy(
            ROOT / f"config/repo/spack_repo/virtqual/packages/{name.replace('-', '_')}/package.py", recipe
        )
        command = [spack, "style", "--tool", "import", recipe]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "import checks were clean" in done.stdout + done.stderr
