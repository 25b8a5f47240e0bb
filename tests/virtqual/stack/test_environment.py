"""The environment that Spack is given: what wins over what, and what does not count."""

import json
import shutil
from pathlib import Path

import pytest
from fakespack import lock_of
from ruamel.yaml import YAML

from virtqual.errors import UsageError
from virtqual.stack import environment, pins
from virtqual.stack.environment import Choices

ROOT = Path(__file__).parents[3]
VIRTUAL = {"mpi", "blas", "lapack"}


def load(file):
    return YAML(typ="safe").load(file.read_text())


def test_the_target_is_said_once_and_hidden_by_nothing():
    files = [*(ROOT / "config/common").rglob("*.yaml"), *(ROOT / "config/repo").rglob("*.yaml")]
    assert sum(json.dumps(load(file)).count("target=") for file in files) == 1
    # Spack leaves `all`'s requirement out for a package that has one of its own; a virtual one is no package.
    # A list would be added to by a site's, two targets then contradict each other; a string is replaced.
    required = [
        (name, entry["require"])
        for file in files
        for name, entry in (load(file) or {}).get("packages", {}).items()
        if "require" in entry
    ]
    assert {name for name, _ in required} == {"all"} | VIRTUAL
    assert [said for _, said in required if not isinstance(said, str)] == []
    # Spack takes a dependency in what is required of a virtual package for a provider, and finds no solution.
    assert [said for _, said in required if "^" in said] == []


@pytest.mark.parametrize("side", ["native", "virtual"])
def test_a_site_wins_over_the_side_and_the_side_over_what_is_common(checkout, tmp_path, side):
    site = tmp_path / "site"
    site.mkdir()
    choices = Choices(site=site, side=side)
    made = environment.prepare(checkout, tmp_path / "state", choices)
    environment.write(made, checkout, choices, tmp_path / "recipes", {})
    written = load(made.directory / "spack.yaml")["spack"]
    # `include::`, so that nothing else counts.
    assert written["include:"] == [
        "config/site",
        f"config/{side}",
        "config/common/mpi/mvapich2.yaml",
        "config/common",
    ]
    # What is written into the environment itself would win over a site: only the stack's own places.
    assert set(written["config"]) == {"install_tree", "source_cache"}
    assert set(load(checkout / f"config/{side}/config.yaml")["config"]) == {"build_jobs", "build_stage"}


def test_a_spack_yaml_that_lets_other_configuration_count_is_refused(checkout, tmp_path):
    file = checkout / "spack.yaml"
    file.write_text(file.read_text().replace("include::", "include:"))
    made = environment.prepare(checkout, tmp_path, Choices())
    with pytest.raises(UsageError, match="the key include:: is missing"):
        environment.write(made, checkout, Choices(), tmp_path / "recipes", {})


def test_a_lock_that_spack_itself_has_written_again_is_ours_as_long_as_its_packages_are(checkout, tmp_path):
    """`spack -e . install` writes the same packages on one line; `concretize --force` may find others."""
    made = environment.prepare(checkout, tmp_path, Choices())
    file = checkout / "spack.lock"
    file.write_text(json.dumps(json.loads((ROOT / "spack.lock").read_text()), sort_keys=True))
    if environment.host_system() == "debian12":
        assert environment.shipped_lock(checkout, made) == file
    file.write_text(json.dumps(lock_of()))
    with pytest.raises(UsageError, match=r"spack\.lock: has other packages.*`virtqual stack lock`"):
        environment.shipped_lock(checkout, made)
    other = environment.prepare(checkout, tmp_path, Choices(mpi="mpich"))
    assert environment.shipped_lock(checkout, other) is None


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "no word on spack.lock \\(git has it\\)"), ("{}", "inputs"), ("no JSON", "line 1")],
)
def test_what_is_said_of_the_lock_is_there(checkout, tmp_path, content, told):
    file = checkout / "config/lock.json"
    shutil.copy(ROOT / "spack.lock", checkout)
    file.unlink()
    if content is not None:
        file.write_text(content)
    made = environment.prepare(checkout, tmp_path, Choices())
    with pytest.raises(UsageError, match=rf"config/lock\.json: .*{told}"):
        environment.shipped_lock(checkout, made)


def test_the_example_of_a_site_replaces_debians_and_its_mpi_library_is_known():
    """That Spack finds such a machine's compilers can only show there."""
    found = {file.name: load(file) for file in (ROOT / "config/site.example").glob("*.yaml")}
    assert found["concretizer.yaml"] == {"concretizer": {"targets": {"host_compatible": False}}}
    packages = found["packages.yaml"]["packages"]
    provider = packages["mpi"]["require"]
    assert pins.programs()["mpi"][provider] == {"launch": ["--mpi=pmix"]}
    assert packages[provider]["buildable"] is False
    common = load(ROOT / "config/common/packages.yaml")["packages"]
    # With one colon Debian's compiler and Slurm would stay beside the site's.
    assert {name.rstrip(":") for name in packages if name.endswith(":")} == {"gcc", "slurm", "rdma-core"}
    assert {"gcc", "slurm", "rdma-core"} <= set(common)
