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


def write(stack: Manifest, directory: Path) -> Path:
    """Write ``sbom.cdx.json``; the same stack and Python packages give the same bytes."""
    platform = {"type": "platform", "name": f"stack {stack.name}", "version": stack.hash}
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": platform},
        "components": [*map(_describe_program, stack.programs), *_describe_python_packages()],
    }
    return records.write_file(json.dumps(bill, indent=2) + "\n", directory / FILE)


def purl(kind: str, name: str, version: str) -> str:
    """Return a package URL, such as ``pkg:deb/debian/likwid@5.2.2%2Bdfsg-1``."""
    return f"pkg:{kind}/{quote(name, safe='')}@{quote(version, safe=':')}"


def _describe_program(program: Program) -> dict[str, Any]:
    checksums = program.libraries | {str(program.data[name]): sum_ for name, sum_ in program.sums.items()}
    # The manifest's checksum of a directory is not the SHA-256 of a file.
    files = [_describe("file", path, sum_) for path, sum_ in checksums.items() if not Path(path).is_dir()]
    component = _describe("application", program.name, program.sha256)
    component |= {"version": program.version, "description": program.origin, "components": files}
    return component | ({"purl": program.purl} if program.purl else {})


def _describe(kind: str, name: str, sha256: str) -> dict[str, Any]:
    return {"type": kind, "name": name, "hashes": [{"alg": "SHA-256", "content": sha256}]}


def _describe_python_packages() -> Iterator[dict[str, str]]:
    """Yield the Python packages of this process."""
    # Python imports the first package of a name on its path.
    packages = {package.name: package for package in reversed(list(metadata.distributions()))}
    for name, package in sorted(packages.items()):
        component = {"type": "library", "name": name, "version": package.version}
        # virtqual itself is installed from the checkout, not from PyPI.
        if name != "virtqual":
            component["purl"] = purl("pypi", name.lower().replace("_", "-"), package.version)
        yield component
