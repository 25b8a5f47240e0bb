"""Outputs of other people's runs: ``tests/outputs/corpus/PROGRAM/``, where PROGRAM is the parser's module.

Each file is named VERSION-BUILD[-what].out and has an entry in its folder's ``index.yaml``:

    program: HPL                    # its name in the table of docs/checks.md
    code: HPL_pdtest.c of 2.0 to 2.3    # source that was read as well (optional)
    outputs:
      2.3-netlib.out:
        version: "2.3"
        build: netlib, OpenBLAS
        source: stackhpc/hpc-tests  # public place; no person's name
        at: path or page there      # optional
        changed: what is not verbatim (optional; names of hosts, users and paths are always replaced)
        parser: parse               # the default
        arguments: {}               # keyword arguments of the parser, the default
        reads:                      # what a careful reader takes from it, written by hand
          n: 115584
      21-nvidia.out:
        version: "21"
        build: NVIDIA
        source: ...
        refused: words of the message
        why: a rate per GPU         # if the version or build is refused, not this one run

``reads`` names fields of the parser's result; of a mapping it may name some of the keys.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

OUTPUTS = Path(__file__).parents[2] / "outputs"
CORPUS = OUTPUTS / "corpus"
KEYS = {"version", "build", "source", "at", "changed", "parser", "arguments", "reads", "refused", "why"}


def load_index(folder: Path) -> dict[str, Any]:
    return YAML(typ="safe", pure=True).load(folder / "index.yaml")


FOLDERS = sorted(path for path in CORPUS.iterdir() if path.is_dir())
INDEXES = {folder.name: load_index(folder) for folder in FOLDERS}
#: Entries by the file's name below tests/outputs.
ENTRIES: dict[str, dict[str, Any]] = {
    f"corpus/{module}/{file}": entry
    for module, index in INDEXES.items()
    for file, entry in index["outputs"].items()
}


def get_parser(name: str) -> Callable[[str], object]:
    module = importlib.import_module(f"virtqual.programs.{Path(name).parent.name}")
    entry = ENTRIES[name]
    return partial(getattr(module, entry.get("parser", "parse")), **entry.get("arguments", {}))


READ = {name: get_parser(name) for name, entry in ENTRIES.items() if "reads" in entry}
REFUSED = {name: get_parser(name) for name, entry in ENTRIES.items() if "refused" in entry}


def find_differences(reads: Any, result: Any, place: str = "") -> Iterator[str]:
    """Yield each value of `reads` that a parser's result does not have."""
    if isinstance(reads, Mapping):
        for key, value in reads.items():
            there = result.get(key) if isinstance(result, Mapping) else getattr(result, key)
            yield from find_differences(value, there, f"{place}.{key}")
    elif isinstance(reads, list):
        if not isinstance(result, list | tuple) or len(result) != len(reads):
            yield f"{place}: {result}, not {reads}"
        else:
            for number, pair in enumerate(zip(reads, result, strict=True)):
                yield from find_differences(*pair, f"{place}.{number}")
    elif isinstance(reads, float) and isinstance(result, int | float):
        # Readers write the printed digits; a parser may convert units.
        if abs(result - reads) > 1e-9 * abs(reads):
            yield f"{place}: {result}, not {reads}"
    elif result != reads:
        yield f"{place}: {result!r}, not {reads!r}"
