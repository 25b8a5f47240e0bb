"""The software bill of materials of a stack, in the JSON format of CycloneDX."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

from virtqual.files import records
from virtqual.stack.manifest import Manifest, Program

FILE = "sbom.cdx.json"


def write(made: Manifest, directory: Path) -> Path:
    """Write ``sbom.cdx.json``; the same stack and the same Python packages give the same bytes."""
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "platform", "name": f"stack {made.name}", "version": made.hash}},
        "components": [*map(_describe_program, made.programs), *_describe_python()],
    }
    return records.write_file(json.dumps(bill, indent=2) + "\n", directory / FILE)


def purl(kind: str, name: str, version: str) -> str:
    """Return a package URL, such as ``pkg:deb/debian/likwid@5.2.2%2Bdfsg-1``."""
    return f"pkg:{kind}/{quote(name, safe='')}@{quote(version, safe=':')}"


def _describe_program(program: Program) -> dict[str, Any]:
    checksums = program.libraries | {str(program.data[name]): sum_ for name, sum_ in program.sums.items()}
    # The manifest's checksum of a directory is not the SHA-256 of a file.
    files = [_describe("file", path, sum_) for path, sum_ in checksums.items() if not Path(path).is_dir()]
    described = _describe("application", program.name, program.sha256)
    described |= {"version": program.version, "description": program.origin, "components": files}
    return described | ({"purl": program.purl} if program.purl else {})


def _describe(kind: str, name: str, sha256: str) -> dict[str, Any]:
    return {"type": kind, "name": name, "hashes": [{"alg": "SHA-256", "content": sha256}]}


def _describe_python() -> Iterator[dict[str, str]]:
    """Yield the Python packages that virtqual runs with."""
    # The first of a name on the path is the one that Python imports.
    packages = {package.name: package for package in reversed(list(metadata.distributions()))}
    for name, package in sorted(packages.items()):
        described = {"type": "library", "name": name, "version": package.version}
        # virtqual itself is installed from the checkout, not from PyPI.
        if name != "virtqual":
            described["purl"] = purl("pypi", name.lower().replace("_", "-"), package.version)
        yield described
