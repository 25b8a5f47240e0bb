"""From installed Spack packages to the manifest that checks read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from virtqual.errors import InfrastructureError
from virtqual.files import execute
from virtqual.stack import manifest, pins, sbom
from virtqual.stack.lock import Lock, Package
from virtqual.stack.manifest import Manifest, Program

NAME = "spack"


def make(
    locked: Lock, roots: Iterable[Package], prefix_of: Callable[[Package], Path], digest: str
) -> Manifest:
    """Look at installed packages and describe their programs.

    Parameters
    ----------
    locked
        The lock.
    roots
        The packages of it that were asked for and are installed.
    prefix_of
        Where a package is installed.
    digest
        Identity of everything that decided the lock.

    Raises
    ------
    InfrastructureError
        A program is not where its package should have put it.
    """
    known = pins.programs()
    programs = []
    for name, entry in known["programs"].items():
        for root in roots:
            wanted = entry.get("variant", {}).items()
            if root.name == entry["package"] and all(_says(root, key, value) for key, value in wanted):
                programs.append(_program(name, entry, root, locked, prefix_of(root)))
    return Manifest(name=NAME, pins=digest, programs=tuple(programs))


def _says(package: Package, variant: str, value: str) -> bool:
    found = package.variant(variant)
    return value in found if isinstance(found, list) else found == value


def _program(name: str, entry: dict[str, Any], root: Package, locked: Lock, prefix: Path) -> Program:
    path = Path(entry["path"].format(prefix=prefix))
    if not path.is_file():
        # Some makefiles go on after an error, and then nothing is installed.
        raise InfrastructureError(
            f"{path} is missing: the package {root} was built, but without it; why is in {prefix}/.spack "
            f"(spack-build-out.txt.gz). Once mended: spack uninstall /{root.hash[:7]}, and build again"
        )
    mpi = _mpi(root, locked)
    needs = pins.programs()["mpi"][mpi.name] if mpi else {}
    data = dict(_data(entry.get("data", {}), prefix))
    return Program(
        name=name,
        version=root.version,
        origin=f"Spack package {root.name}@{root.version}/{root.hash}",
        path=path,
        sha256=manifest.sha256(path),
        libraries={str(library): manifest.sha256(library) for library in libraries(path)},
        features=tuple(entry["features"]),
        mpi=f"{mpi.name} {mpi.version}" if mpi else None,
        launch=tuple(needs.get("launch", ())),
        env={**needs.get("env", {}), **entry.get("env", {})},
        data=data,
        sums=manifest.checksums(data),
        purl=sbom.purl("generic", root.name, root.version),
    )


def _mpi(root: Package, locked: Lock) -> Package | None:
    """Return the MPI library of a package.

    Raises
    ------
    InfrastructureError
        It is one of which nobody says how `srun` starts its programs: they would be that many runs of one.
    """
    known = pins.programs()["mpi"]
    needed = locked.closure([root])
    unknown = {name for package in needed for name in package.providers("mpi")} - set(known)
    if unknown:
        raise InfrastructureError(
            f"{root} is linked with {', '.join(sorted(unknown))}: how srun starts programs of that MPI "
            f"library is not known (known are: {', '.join(known)}); state it under `mpi:` in "
            "src/virtqual/stack/programs.yaml"
        )
    return next((package for package in needed if package.name in known), None)


def _data(wanted: dict[str, str], prefix: Path) -> Iterable[tuple[str, Path]]:
    for name, text in wanted.items():
        place = Path(text.format(prefix=prefix))
        if "*" in place.name:
            yield from ((file.name, file) for file in sorted(place.parent.glob(place.name)) if file.is_file())
        elif place.exists():
            yield name, place


def libraries(program: Path) -> list[Path]:
    """Return the shared libraries that the dynamic linker finds for a program, by their real paths.

    Raises
    ------
    InfrastructureError
        One is not found.
    """
    env = {key: value for key, value in os.environ.items() if not key.startswith("LD_")}
    done = execute.run(["ldd", program], env=env)
    found = []
    for line in done.stdout.splitlines():
        if "not found" in line:
            raise InfrastructureError(f"{program}: the library {line.split()[0]} is not found (ldd)")
        found += [Path(word).resolve() for word in line.split() if word.startswith("/")]
    return list(dict.fromkeys(found))
