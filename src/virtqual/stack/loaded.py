"""The software that a node loads for a program, and its differences from that of another node.

``src/virtqual/job/seen.sh`` records on each node the files that the dynamic linker finds, and the versions
that they state; nothing is taken from a manifest.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

from pydantic import BaseModel, field_serializer

NOT_OBSERVABLE = "not observable"
_ADDRESS = re.compile(r" \(0x[0-9a-f]+\)$")
# Processor features by which glibc, OpenBLAS and FFTW choose their code; a guest may lack others (`vmx`).
_DECISIVE_FEATURES = re.compile(
    r"(ssse3|sse|avx|fma|f16c|bmi|amx|popcnt|movbe|lzcnt|abm|erms|fsrm|rtm|adx|vaes|vpclmul|gfni|sve|asimd)"
)
# Variables that may differ: adapters have other names in a VM, checks assert numbers of threads, and Slurm
# sets the last two in each step anew (`OMPI_MCA_orte_precondition_transports` with PMIx, since 24.11.1).
_IGNORED_VARIABLES = re.compile(
    r"NET_DEVICES|GID_INDEX|_IFACE|IBA_HCA|_if_(in|ex)clude|_NUM_THREADS$|^OPENBLAS_CORETYPE$"
    r"|_precondition_transports$|^FI_CXI_COLL_"
)
_QUESTIONS = {
    "mpi": "MPI library",
    "openblas": "OpenBLAS kernel",
    "glibc": "C library's version",
    "compiler": "compiler",
    "spack": "Spack package",
}
_SECTIONS = ("environment", "ldd", "sha256", "real", "says")


class IncompleteRecordError(ValueError):
    """A node's record of its software is not complete."""


class LoadedFile(BaseModel, extra="forbid", frozen=True):
    """A file of a node: its real path, and its SHA-256."""

    path: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.path} (sha256 {self.sha256[:12]})"


class LoadedSoftware(BaseModel, extra="forbid", frozen=True):
    """A program and its libraries as a node loads them.

    `files` are the program (``binary``), the description of its Spack package, and each shared library by the
    name that the linker asks for; None is a library that is not found.  `says` are the versions that files
    state, by question (see `_QUESTIONS`).
    """

    node: str
    program: str
    files: dict[str, LoadedFile | None]
    says: dict[str, str]
    coretype: str  # OPENBLAS_CORETYPE, empty if unset
    cpu: frozenset[str]  # features by which libraries choose their code
    environment: dict[str, str] = {}  # of libraries and the linker, and the loaded modules

    @field_serializer("cpu")
    def _sort(self, cpu: frozenset[str]) -> list[str]:
        # The order of a set differs between processes; equal records are written alike.
        return sorted(cpu)


@dataclass(frozen=True)
class SoftwareDifference:
    """A difference between two nodes: `first` and `second` state what each node has."""

    what: str
    first: str
    second: str


def is_decisive(feature: str) -> bool:
    """Return whether compilers and libraries choose their code by a feature of the processor."""
    return _DECISIVE_FEATURES.match(feature) is not None


def parse(text: str, node: str) -> LoadedSoftware:
    """Read the output of ``seen.sh`` on a node; raise IncompleteRecordError if it is not complete."""
    sections: dict[str, list[str]] = {"head": []}
    lines = sections["head"]
    for line in filter(None, text.split("\n")):
        if line in _SECTIONS:
            lines = sections.setdefault(line, [])
        else:
            lines.append(line)
    try:
        head = dict(line.partition(" ")[::2] for line in sections["head"])
        return LoadedSoftware(
            node=node,
            program=head["program"],
            files=_parse_files(head["program"], sections),
            says=_parse_answers(sections["says"]),
            coretype=head.get("coretype", ""),
            cpu=frozenset(filter(is_decisive, head["flags"].split())),
            environment=_parse_environment(sections["environment"]),
        )
    except (KeyError, ValueError) as error:
        raise IncompleteRecordError(
            f"node {node}'s record of the libraries that it loads is not complete ({error}); seen.sh needs "
            "ldd, readlink, stat and sha256sum there"
        ) from error


def _parse_files(program: str, sections: dict[str, list[str]]) -> dict[str, LoadedFile | None]:
    files_by_path = {}
    for line, real_path in zip(sections["sha256"], sections["real"], strict=True):
        sha256, _, path = line.partition("  ")
        if sha256.startswith("\\"):
            # sha256sum doubles the backslashes of this path.
            sha256, path = sha256[1:], path.replace("\\\\", "\\")
        files_by_path[path] = LoadedFile(path=real_path, sha256=sha256)
    files: dict[str, LoadedFile | None] = {"binary": files_by_path.pop(program)}
    libraries = dict(filter(None, map(_parse_library, sections["ldd"])))
    files |= {name: files_by_path[path] if path else None for name, path in libraries.items()}
    # The remaining file is the description of the Spack package.
    for path in files_by_path.keys() - libraries.values():
        files[PurePosixPath(path).name] = files_by_path[path]
    return files


def _parse_library(line: str) -> tuple[str, str | None] | None:
    """Return name and path of a line of ``ldd``; None for the kernel's own library."""
    line = _ADDRESS.sub("", line).strip()
    name, arrow, path = line.partition(" => ")
    if arrow:
        return name, path if path.startswith("/") else None
    return (PurePosixPath(line).name, line) if line.startswith("/") else None


def _parse_answers(lines: Iterable[str]) -> dict[str, str]:
    """Return the answers by question; different answers, e.g. of two MPI libraries, are joined."""
    answers: dict[str, list[str]] = {}
    for line in lines:
        _, question, answer = line.split("\t")
        answers.setdefault(question, []).append(answer)
    return {question: " and ".join(dict.fromkeys(texts)) for question, texts in answers.items()}


def _parse_environment(lines: Iterable[str]) -> dict[str, str]:
    """Return variables by name from the output of ``export -p``."""
    variables = {}
    for line in lines:
        name, _, value = line.partition(" ")[2].partition("=")
        with suppress(ValueError):  # only the first line of a value of several lines is there
            value = "".join(shlex.split(value))
        if not _IGNORED_VARIABLES.search(name):
            variables[name] = value
    return variables


def compare(reference: LoadedSoftware, other: LoadedSoftware) -> list[SoftwareDifference]:
    """Return all differences between two nodes, but for their processors', which preflight compares."""
    differences = []
    nodes = (reference, other)

    def add(what: str, first: str, second: str) -> None:
        if first != second:
            differences.append(SoftwareDifference(what, first, second))

    for question, what in _QUESTIONS.items():
        add(what, *(node.says.get(question, NOT_OBSERVABLE) for node in nodes))
    for name in sorted(reference.files.keys() | other.files.keys()):
        files = [node.files[name] or "not found" if name in node.files else "not loaded" for node in nodes]
        checksums = [file.sha256 if isinstance(file, LoadedFile) else file for file in files]
        if checksums[0] != checksums[1]:
            add(name, *map(str, files))
    add("OPENBLAS_CORETYPE", *(node.coretype or "unset" for node in nodes))
    for name in sorted({name for node in nodes for name in node.environment}):
        add(name, *(node.environment.get(name, "unset") for node in nodes))
    return differences


def compare_all(sides: Iterable[tuple[str, Sequence[LoadedSoftware]]]) -> list[str]:
    """Return a sentence for each difference of a node from the first one of the first side."""
    # Runs with the same setup refer to one record.
    unique: dict[int, tuple[str, LoadedSoftware]] = {}
    for side, nodes in sides:
        for node in nodes:
            unique.setdefault(id(node), (side, node))
    records = list(unique.values())
    sentences: dict[SoftwareDifference, str] = {}
    for side, node in records[1:]:
        first_side, first_node = records[0]
        for difference in compare(first_node, node):
            sentences.setdefault(
                difference,
                f"{difference.what}: {difference.first} on {first_side} node {first_node.node}, "
                f"{difference.second} on {side} node {node.node}",
            )
    return list(sentences.values())
