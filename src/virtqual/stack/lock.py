"""A Spack lock file: which packages, of which hash, from where."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virtqual.errors import InfrastructureError


@dataclass(frozen=True)
class Package:
    """One concrete package of a lock.

    Attributes
    ----------
    name, version, hash
        ``hash`` is the DAG hash: equal exactly when the package and all that it depends on are.
    external
        The machine's own prefix that is used instead of building it, or None.
    raw
        The package's whole entry in the lock file.
    """

    name: str
    version: str
    hash: str
    external: Path | None
    raw: dict[str, Any]

    @property
    def links(self) -> Iterator[str]:
        """Hashes of what it needs to run."""
        return (d["hash"] for d in self.raw.get("dependencies", ()) if {"link", "run"} & self._types(d))

    @property
    def needs(self) -> Iterator[str]:
        """Hashes of all that it depends on, also only to be built."""
        return (dependency["hash"] for dependency in self.raw.get("dependencies", ()))

    def providers(self, virtual: str) -> Iterator[str]:
        """Return the names of what it depends on for a virtual package such as ``mpi``."""
        for dependency in self.raw.get("dependencies", ()):
            if virtual in dependency["parameters"].get("virtuals", ()):
                yield dependency["name"]

    @staticmethod
    def _types(dependency: dict[str, Any]) -> set[str]:
        return set(dependency["parameters"]["deptypes"])

    def variant(self, name: str) -> Any:
        """Return the value of a variant, None if the package has none of that name."""
        return self.raw.get("parameters", {}).get(name)

    def __str__(self) -> str:
        return f"{self.name}@{self.version}/{self.hash[:7]}"


@dataclass(frozen=True)
class Lock:
    """A lock file.

    Attributes
    ----------
    packages
        The packages by hash.
    roots
        Hashes of the specs that were asked for, in that order.
    spack
        Version of Spack that wrote it.
    store
        Where its packages were installed, where a build has kept it; else None.
    """

    packages: dict[str, Package]
    roots: tuple[str, ...]
    spack: str
    store: Path | None = None

    @property
    def digest(self) -> str:
        """Identity of all packages, however the file is written."""
        return hashlib.sha256(" ".join([*self.roots, *sorted(self.packages)]).encode()).hexdigest()[:12]

    def of(self, names: Iterable[str]) -> list[Package]:
        """Return the roots of some package names."""
        wanted = set(names)
        return [self.packages[hash_] for hash_ in self.roots if self.packages[hash_].name in wanted]

    def closure(
        self, roots: Iterable[Package], *, without: Iterable[str] = (), run: bool = False
    ) -> list[Package]:
        """Return packages with all that building them needs, leaves first.

        Parameters
        ----------
        roots
            Where to begin.
        without
            Hashes of packages that are there already: what only they need is left out too.
        run
            Only with all that running them needs.
        """
        seen: dict[str, Package] = {}
        done = set(without)

        def visit(package: Package) -> None:
            if package.hash in seen or package.hash in done:
                return
            done.add(package.hash)
            if package.external is None:
                for hash_ in package.links if run else package.needs:
                    visit(self.packages[hash_])
            seen[package.hash] = package

        for root in roots:
            visit(root)
        return list(seen.values())

    def find(self, root: Package, name: str) -> Package | None:
        """Return the package of a name among all that a root depends on."""
        return next((package for package in self.closure([root]) if package.name == name), None)

    @property
    def system(self) -> str:
        """Operating system and target, e.g. ``debian12-x86_64_v3``; empty for a lock of nothing."""
        if not self.roots:
            return ""
        arch = self.packages[self.roots[0]].raw["arch"]
        target = arch["target"]
        return f"{arch['platform_os']}-{target if isinstance(target, str) else target['name']}"


def load(path: Path) -> Lock:
    """Read a lock file.

    Raises
    ------
    InfrastructureError
        The file is not there, or is no lock file.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        packages = {
            hash_: Package(
                entry["name"],
                str(entry["version"]),
                hash_,
                Path(entry["external"]["path"]) if entry.get("external", {}).get("path") else None,
                entry,
            )
            for hash_, entry in raw["concrete_specs"].items()
        }
        roots = tuple(root["hash"] for root in raw["roots"])
        spack = re.sub(r"\s.*", "", raw.get("spack", {}).get("version", "unknown"))
        ours = raw.get("virtqual", {})
        store = Path(ours["store"]) if "store" in ours else None
        return Lock(packages, roots, spack, store)
    except OSError as error:
        raise InfrastructureError(f"{path}: no lock file ({error.strerror})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InfrastructureError(f"{path}: no lock file of Spack 1.x ({error!r})") from error


def copy(source: Path, target: Path, store: Path | None) -> None:
    """Copy a lock file; where `store` has its packages, that is said in it, too, which Spack does not do."""
    content = json.loads(source.read_text(encoding="utf-8"))
    if store is not None:
        content["virtqual"] = {"store": str(store)}
    target.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def installed(store: Path) -> frozenset[str]:
    """Return the hashes that a store's database has as installed; none where there is no store.

    Raises
    ------
    InfrastructureError
        The database is of another form.
    """
    index = store / ".spack-db/index.json"
    if not index.is_file():
        return frozenset()
    try:
        installs = json.loads(index.read_text(encoding="utf-8"))["database"]["installs"]
        return frozenset(hash_ for hash_, entry in installs.items() if entry.get("installed"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InfrastructureError(f"{index}: no database of Spack 1.x ({error!r})") from error
