"""Comparison of the software of two nodes: what each saw of a program, and every difference by name.

``src/virtqual/job/seen.sh`` writes on each node which binary and shared libraries the dynamic linker resolves
there and what they say of themselves; nothing is taken from a manifest.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from pydantic import BaseModel, ConfigDict, field_serializer

UNSEEN = "not observable"
_ADDRESS = re.compile(r" \(0x[0-9a-f]+\)$")
# Features by which glibc, OpenBLAS, FFTW and others choose their code; a guest may lack some others (`vmx`).
_CHOSEN_BY = re.compile(
    r"(ssse3|sse|avx|fma|f16c|bmi|amx|popcnt|movbe|lzcnt|abm|erms|fsrm|rtm|adx|vaes|vpclmul|gfni|sve|asimd)"
)
# Names of adapters and their addresses, which a VM calls otherwise.
# And numbers of threads, which checks state and assert: several VMs of one host have less each than a node.
_LEFT_ASIDE = re.compile(r"NET_DEVICES|GID_INDEX|_IFACE|IBA_HCA|_if_(in|ex)clude|_NUM_THREADS$")
_QUESTIONS = {
    "mpi": "MPI library",
    "openblas": "OpenBLAS kernel",
    "glibc": "C library's version",
    "compiler": "compiler",
    "spack": "Spack package",
}


class SeenError(ValueError):
    """A node's record of the libraries that it loads is not whole."""


class LoadedFile(BaseModel):
    """A file as a node has it: where it really is, and its SHA-256."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.path} (sha256 {self.sha256[:12]})"


class Seen(BaseModel):
    """One node's record of one program and its libraries.

    Attributes
    ----------
    node, program
        Host name, and the program as it was started.
    files
        The binary (as ``binary``), its Spack package's description, and every shared library by the name
        that the linker was asked for; None where a library was not found.
    says
        Answers of the files themselves, by question: MPI, OpenBLAS's kernel, the C library, the compiler,
        the Spack package with its DAG hash.  A question that no file could answer is absent.
    coretype
        ``OPENBLAS_CORETYPE`` as the task had it, empty if unset.
    cpu
        Features of the processor by which libraries choose their code.
    environment
        The variables that libraries and the linker read, and the loaded modules, as ``seen.sh`` chooses them;
        without names of devices and numbers of threads.  None in records of before this was written down.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    node: str
    program: str
    files: dict[str, LoadedFile | None]
    says: dict[str, str]
    coretype: str
    cpu: frozenset[str]
    environment: dict[str, str] | None = None

    @field_serializer("cpu")
    def _sorted(self, cpu: frozenset[str]) -> list[str]:
        # A set has another order in each process; equal records are to be written alike.
        return sorted(cpu)


ABSENT = LoadedFile(path="", sha256="")


@dataclass(frozen=True)
class Difference:
    """One thing that two nodes see differently.

    Attributes
    ----------
    kind
        ``software`` must never differ; the ``processor`` differs on emulated CPUs by nature.
    what
        The name of the thing, such as that of a library.
    first, second
        How each of the two nodes sees it.
    """

    kind: Literal["software", "processor"]
    what: str
    first: str
    second: str


def parse(text: str, node: str) -> Seen:
    """Read what ``seen.sh`` wrote on a node.

    Raises
    ------
    SeenError
        The record is not whole.
    """
    parts = _sections(text)
    head = dict(line.partition(" ")[::2] for line in parts["head"])
    try:
        sums = [line.partition("  ")[::2] for line in parts["sha256"]]
        files = {
            # sha256sum doubles the backslashes of a path, and says so by one before the sum.
            path.replace("\\\\", "\\") if sha.startswith("\\") else path: LoadedFile(
                path=real, sha256=sha.removeprefix("\\")
            )
            for (sha, path), real in zip(sums, parts["real"], strict=True)
        }
        program = head["program"]
        named: dict[str, LoadedFile | None] = {"binary": files[program]}
        linked = dict(filter(None, map(_linked, parts["ldd"])))
        named |= {name: files[path] if path else None for name, path in linked.items()}
        # The file that is left is the description of the Spack package.
        rest = files.keys() - {program, *linked.values()}
        named |= {PurePosixPath(path).name: files[path] for path in rest}
        says: dict[str, str] = {}
        for line in parts["says"]:
            _, question, answer = line.split("\t")
            # Two answers to one question, such as two MPI libraries, are both kept.
            says[question] = " and ".join(
                dict.fromkeys([*says.get(question, "").split(" and "), answer])
            ).removeprefix(" and ")
        return Seen(
            node=node,
            program=program,
            files=named,
            says=says,
            coretype=head.get("coretype", ""),
            cpu=frozenset(flag for flag in head["flags"].split() if _CHOSEN_BY.match(flag)),
            environment=_environment(parts["environment"]) if "environment" in parts else None,
        )
    except (KeyError, ValueError) as error:
        raise SeenError(
            f"node {node}'s record of the libraries that it loads is not whole ({error}); seen.sh needs ldd, "
            "readlink, stat and sha256sum there"
        ) from error


def _sections(text: str) -> dict[str, list[str]]:
    """Return the lines of each section by its name; those before the first name are the ``head``."""
    parts: dict[str, list[str]] = {}
    section = parts.setdefault("head", [])
    for line in text.split("\n"):
        if line in ("environment", "ldd", "sha256", "real", "says"):
            section = parts.setdefault(line, [])
        elif line:
            section.append(line)
    return parts


def _environment(lines: Iterable[str]) -> dict[str, str]:
    """Return variables by name from the shell's ``export -p``."""
    found = {}
    for line in lines:
        _, _, assignment = line.partition(" ")
        name, _, value = assignment.partition("=")
        with suppress(ValueError):  # of a value of several lines only the first is there
            value = "".join(shlex.split(value))
        if not _LEFT_ASIDE.search(name):
            found[name] = value
    return found


def _linked(line: str) -> tuple[str, str] | None:
    """Return name and path of one line of ``ldd``; an empty path for what was not found."""
    line = _ADDRESS.sub("", line).strip()
    name, arrow, path = line.partition(" => ")
    if arrow:
        return name, path if path.startswith("/") else ""
    if line.startswith("/"):
        return PurePosixPath(line).name, line
    return None  # the kernel's own, or no dynamic program


def differences(left: Seen, right: Seen) -> list[Difference]:
    """Return everything in which two nodes' software and processor differ, empty if in nothing."""
    found = []

    def compare(kind: Literal["software", "processor"], what: str, first: str, second: str) -> None:
        if first != second:
            found.append(Difference(kind, what, first, second))

    for question, what in _QUESTIONS.items():
        compare("software", what, left.says.get(question, UNSEEN), right.says.get(question, UNSEEN))
    for name in sorted(left.files.keys() | right.files.keys()):
        first, second = (seen.files.get(name) if name in seen.files else ABSENT for seen in (left, right))
        if _sum(first) != _sum(second):
            found.append(Difference("software", name, _describe(first), _describe(second)))
    compare("software", "OPENBLAS_CORETYPE", left.coretype or "unset", right.coretype or "unset")
    if left.environment is not None and right.environment is not None:
        for name in sorted((left.environment.keys() | right.environment.keys()) - {"OPENBLAS_CORETYPE"}):
            had, has = left.environment.get(name, "unset"), right.environment.get(name, "unset")
            compare("software", name, had, has)
    compare(
        "processor",
        "CPU features",
        " ".join(sorted(left.cpu - right.cpu)) or "no other",
        " ".join(sorted(right.cpu - left.cpu)) or "no other",
    )
    return found


def _sum(file: LoadedFile | None) -> str:
    return file.sha256 if file else "not found"


def _describe(file: LoadedFile | None) -> str:
    if file is None:
        return "not found"
    return str(file) if file is not ABSENT else "not loaded"


def among(sides: Iterable[tuple[str, Sequence[Seen]]]) -> list[tuple[Difference, str]]:
    """Compare everything that was seen with the first of it.

    Parameters
    ----------
    sides
        ``(side, records)``, the reference side first.

    Returns
    -------
    list
        Each difference once, with a sentence that names the nodes.
    """
    every = [(side, seen) for side, records in sides for seen in records]
    found: dict[Difference, str] = {}
    for side, seen in every[1:]:
        first_side, first = every[0]
        for difference in differences(first, seen):
            found.setdefault(
                difference,
                f"{difference.what}: {difference.first} on {first_side} node {first.node}, "
                f"{difference.second} on {side} node {seen.node}",
            )
    return list(found.items())
