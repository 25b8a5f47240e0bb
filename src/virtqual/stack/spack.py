"""The manifest of a Spack environment, made from the output of Spack's own commands."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virtqual.errors import InfrastructureError, UsageError
from virtqual.files import execute
from virtqual.stack import manifest, sbom
from virtqual.stack.loaded import is_decisive
from virtqual.stack.manifest import Manifest, ProcessorTarget, Program, find_libraries, load_recipe

NAME, FILE = "spack", "programs.yaml"


@dataclass(frozen=True)
class Package:
    """An installed package; `node` is its entry in the output of ``spack find --json``."""

    name: str
    version: str
    hash: str
    prefix: Path
    node: dict[str, Any]

    def has_variants(self, variants: dict[str, str]) -> bool:
        """Return whether the package was built with these values of variants."""
        parameters = self.node.get("parameters", {})
        return all(parameters.get(name) in (value, [value]) for name, value in variants.items())

    def __str__(self) -> str:
        return f"{self.name}@{self.version}/{self.hash[:7]}"


def register(environment: Path, directory: Path) -> Manifest:
    """Write the manifest of an environment's programs, their bill of materials, and a copy of the lock."""
    lock = environment / "spack.lock"
    if not environment.is_dir():
        raise UsageError(
            f"{environment} is no directory: name the one with the spack.yaml of the environment"
        )
    if not lock.is_file():
        raise UsageError(f"{lock} is missing: run `spack -e {environment} concretize`")
    spack = [_find_spack(), "-e", str(environment)]
    packages = _read_packages(spack)
    _check_operating_system(spack, environment, packages)
    programs = [
        (name, entry, package)
        for name, entry in load_recipe(FILE)["programs"].items()
        for package in packages.values()
        if package.name == entry["package"] and package.has_variants(entry.get("variants", {}))
    ]
    if not programs:
        raise InfrastructureError(f"no program is installed: run `spack -e {environment} install`")
    stack = Manifest(name=NAME, programs=tuple(_describe_program(*program, packages) for program in programs))
    _check_unchanged(stack, directory / manifest.FILE, packages.values())
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("spack.lock", "spack.yaml"):
        # Both may be one directory.
        (directory / name).write_bytes((environment / name).read_bytes())
    sbom.write(stack, directory)
    stack.write(directory)
    return stack


def _look_for_spack() -> str | None:
    root = os.environ.get("SPACK_ROOT")
    return shutil.which("spack", path=f"{root}/bin" if root else None)


def has_spack() -> bool:
    """Return whether there is a program ``spack``, on PATH or where SPACK_ROOT says."""
    return _look_for_spack() is not None


def _find_spack() -> str:
    root, spack = os.environ.get("SPACK_ROOT"), _look_for_spack()
    if spack is None:
        where = f"in {root}/bin (SPACK_ROOT)" if root else "on PATH"
        raise UsageError(f"there is no program spack {where}: run `. SPACK/share/spack/setup-env.sh`")
    return spack


def _read_packages(spack: list[str]) -> dict[str, Package]:
    """Return the installed packages of the environment by hash."""
    nodes = json.loads(execute.run_checked([*spack, "find", "--json"], "spack find failed"))
    lines = execute.run_checked([*spack, "find", "--format", "{hash} {prefix}"], "spack find failed")
    prefixes = dict(line.split(" ", maxsplit=1) for line in lines.splitlines() if line)
    packages = [
        Package(node["name"], str(node["version"]), node["hash"], Path(prefixes[node["hash"]]), node)
        for node in nodes
    ]
    return {package.hash: package for package in packages}


def _check_operating_system(spack: list[str], environment: Path, packages: dict[str, Package]) -> None:
    """Refuse packages of another operating system: Spack installs any lock, with this machine's compilers."""
    system = execute.run_checked([spack[0], "arch", "--operating-system"], "spack arch failed").strip()
    systems = {package.node["arch"]["platform_os"] for package in packages.values()}
    if other_systems := " ".join(sorted(systems - {system})):
        raise InfrastructureError(
            f"{environment}/spack.lock is for {other_systems}, and this machine is {system}. "
            f"Run `spack -e {environment} concretize --force` and `spack -e {environment} install`"
        )


def _check_unchanged(stack: Manifest, file: Path, packages: Iterable[Package]) -> None:
    """Refuse files that have another checksum in the earlier manifest: a path in Spack's store has a hash."""
    try:
        earlier = manifest.load(file)
    except InfrastructureError:
        return
    recorded, current = (
        {path: sum_ for program in programs for path, sum_ in program.checksums_by_path.items()}
        for programs in (earlier.programs, stack.programs)
    )
    prefixes = [package.prefix for package in packages if "external" not in package.node]
    changes = [
        path
        for path, sum_ in current.items()
        if recorded.get(path, sum_) != sum_ and any(path.is_relative_to(prefix) for prefix in prefixes)
    ]
    if changes:
        raise InfrastructureError(
            f"{', '.join(map(str, changes))}: changed since the stack was registered. Install the package "
            f"again (`spack install --overwrite /HASH`), or remove {file} if the change is intended"
        )


def _describe_program(
    name: str, entry: dict[str, Any], root: Package, packages: dict[str, Package]
) -> Program:
    path = Path(entry["path"].format(prefix=root.prefix))
    if not path.is_file():
        # Some makefiles continue after an error.
        raise InfrastructureError(
            f"{path} is missing, although Spack installed {root}. The reason is in {root.prefix}/.spack "
            f"(spack-build-out.txt.gz). Correct it, run `spack uninstall /{root.hash[:7]}`, and install again"
        )
    mpi = _find_mpi(root, packages)
    own_env = _fill_in_prefix(entry.get("env", {}), root)
    env = {key: value for key, value in os.environ.items() if not key.startswith("LD_")} | own_env
    data = dict(_find_data(entry.get("data", {}), root.prefix))
    libraries = find_libraries([path, *data.values()], env)
    target = _find_target(root.node["arch"]["target"])
    needs = load_recipe(FILE)["mpi"][mpi.name] if mpi else {}
    mpi_env = _fill_in_prefix(needs.get("env", {}), mpi) if mpi else {}
    return Program.from_files(
        path,
        libraries=libraries,
        data=data,
        name=name,
        version=root.version,
        origin=f"Spack package {root.name}@{root.version}/{root.hash}",
        features=tuple(entry["features"]),
        mpi=f"{mpi.name} {mpi.version}" if mpi else None,
        launch=tuple(needs.get("launch", ())),
        env={**mpi_env, **own_env, **_choose_openblas_kernel(libraries, target)},
        target=target,
        purl=sbom.purl("generic", root.name, root.version),
    )


def _fill_in_prefix(env: dict[str, str], package: Package) -> dict[str, str]:
    """Return variables whose values may name the directory of a package."""
    return {key: value.format(prefix=package.prefix) for key, value in env.items()}


def _find_target(target: str | dict[str, Any]) -> ProcessorTarget:
    """Return a package's target: Spack describes one of a vendor, and only names x86_64_v3 and the like."""
    if isinstance(target, str):
        return ProcessorTarget(name=target, features=load_recipe(FILE)["targets"].get(target, ()))
    return ProcessorTarget(name=target["name"], features=tuple(filter(is_decisive, target["features"])))


def _choose_openblas_kernel(libraries: Iterable[Path], target: ProcessorTarget) -> dict[str, str]:
    """Return the variable that selects OpenBLAS's kernel for a target's instructions, if there is one."""
    if not any(library.name.startswith("libopenblas") for library in libraries):
        return {}
    kernels = load_recipe(FILE)["openblas_kernels"].items()
    return next(({"OPENBLAS_CORETYPE": name} for feature, name in kernels if feature in target.features), {})


def _find_mpi(root: Package, packages: dict[str, Package]) -> Package | None:
    """Return the MPI library that a package, or one that it needs to run, is linked with.

    Raises
    ------
    InfrastructureError
        The recipe does not say how `srun` starts programs of the library.
    """
    mpi, needed = None, [root.hash]
    for package in (packages[hash_] for hash_ in needed if hash_ in packages):
        for dependency in package.node.get("dependencies", ()):
            parameters = dependency["parameters"]
            if "mpi" in parameters.get("virtuals", ()):
                mpi = mpi or packages[dependency["hash"]]
            if {"link", "run"} & {*parameters["deptypes"]} and dependency["hash"] not in needed:
                needed.append(dependency["hash"])
    libraries = load_recipe(FILE)["mpi"]
    if mpi and mpi.name not in libraries:
        # Started in a wrong way, each rank would run as a program of one rank.
        raise InfrastructureError(
            f"{root} is linked with {mpi.name}: how srun starts its programs is not known (known are: "
            f"{', '.join(libraries)}). State it under `mpi:` in src/virtqual/stack/programs.yaml"
        )
    return mpi


def _find_data(patterns: dict[str, str], prefix: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and path of the files of a program."""
    for name, pattern in patterns.items():
        path = Path(pattern.format(prefix=prefix))
        if "*" in path.name:
            yield from ((file.name, file) for file in sorted(path.parent.glob(path.name)) if file.is_file())
        elif path.exists():
            yield name, path
