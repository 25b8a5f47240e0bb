"""The project's own files for Spack: `spack.yaml`, its lock and its configuration."""

import ast
import hashlib
import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from virtqual.stack.manifest import load_recipe

ROOT = Path(__file__).parents[3]
VIRTUAL_PACKAGES = {"mpi", "blas", "lapack"}


def load(file):
    return YAML(typ="safe").load((ROOT / file).read_text(encoding="utf-8"))


def specs():
    return [
        spec
        for sets in load("spack.yaml")["spack"]["definitions"]
        for names in sets.values()
        for spec in names
    ]


def test_spack_yaml_pins_its_programs_and_recipes():
    assert all("@=" in spec for spec in specs() if not spec.startswith("mpip"))
    packages = {spec.partition("@")[0] for spec in specs()}
    programs = load_recipe("programs.yaml")["programs"].values()
    assert packages == {entry["package"] for entry in programs if not entry.get("extra")}
    builtin = load("spack.yaml")["spack"]["repos"]["builtin"]
    # Spack does not update a clone that exists.
    assert builtin["destination"].endswith(builtin["commit"][:8])


def test_the_lock_is_of_these_specs_and_holds_nothing_of_one_machine():
    lock = json.loads((ROOT / "spack.lock").read_text(encoding="utf-8"))
    roots = [lock["concrete_specs"][root["hash"]] for root in lock["roots"]]
    locked = sorted(f"{root['name']}@={root['version']}" for root in roots)
    assert locked == sorted(spec.split()[0] for spec in specs())
    packages = lock["concrete_specs"].values()
    assert {package["arch"]["target"] for package in packages} == {"x86_64_v3"}
    assert {package["external"]["path"] for package in packages if "external" in package} == {"/usr"}


@pytest.mark.parametrize("package", ["virtqual_events", "virtqual_programs"])
def test_other_sources_are_another_package(package):
    """After a change write the sum into the recipe, and make the lock anew."""
    directory = ROOT / "config/repo/spack_repo/virtqual/packages" / package
    files = sorted(
        file for file in directory.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")
    )
    content = b"".join(file.relative_to(directory).as_posix().encode() + file.read_bytes() for file in files)
    recipe = (directory / "package.py").read_text(encoding="utf-8")
    assert f'sources_sha256 = "{hashlib.sha256(content).hexdigest()}"' in recipe


def test_every_check_is_listed_under_its_feature():
    """`virtqual stack register` lists the checks by feature."""
    features, checks = {}, {}
    for file in sorted((ROOT / "checks").glob("[a-z]*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef):
                continue
            own = [
                line.value.value
                for line in node.body
                if ast.unparse(line).startswith("feature = ") and isinstance(line.value, ast.Constant)
            ]
            inherited = [features[base] for base in map(ast.unparse, node.bases) if base in features]
            if own or inherited:
                features[node.name] = [*own, *inherited][0]
            if "overhead.simple_test" in map(ast.unparse, node.decorator_list):
                checks.setdefault(features[node.name], []).append(node.name)
    assert {name: sorted(names) for name, names in load_recipe("programs.yaml")["checks"].items()} == {
        name: sorted(names) for name, names in checks.items()
    }


def test_the_target_is_stated_once_and_hidden_by_nothing():
    files = [file.relative_to(ROOT) for file in (ROOT / "config/common").rglob("*.yaml")]
    assert sum(json.dumps(load(file)).count("target=") for file in files) == 1
    # Spack does not apply the requirement of `all` to a package with a requirement of its own.  A string is
    # replaced by a site's; lists are joined, and two targets would contradict each other.  Spack finds no
    # solution for a dependency in the requirement of a virtual package.
    required = {
        name: entry["require"]
        for file in files
        for name, entry in load(file).get("packages", {}).items()
        if "require" in entry
    }
    assert required.keys() == {"all"} | VIRTUAL_PACKAGES
    assert all(isinstance(requirement, str) and "^" not in requirement for requirement in required.values())


def test_the_example_of_a_site_replaces_debians_and_its_mpi_library_is_known():
    assert load("site.example/spack/concretizer.yaml") == {
        "concretizer": {"targets": {"host_compatible": False}}
    }
    packages = load("site.example/spack/packages.yaml")["packages"]
    # What Zen 2 and Zen 3 lack would be known only after the build.
    assert packages["all"]["require"] == "target=x86_64_v3"
    provider = packages["mpi"]["require"]
    assert load_recipe("programs.yaml")["mpi"][provider]["launch"] == ["--mpi=pmix"]
    assert packages[provider]["buildable"] is False
    # With one colon Debian's compiler and Slurm would stay beside the site's.
    replaced = {name.rstrip(":") for name in packages if name.endswith(":")}
    assert replaced == {"gcc", "slurm", "rdma-core"}
    assert replaced <= load("config/common/packages.yaml")["packages"].keys()
