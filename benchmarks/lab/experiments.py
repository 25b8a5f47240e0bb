"""The experiments as experiments.yaml states them."""

from __future__ import annotations

import ast
import hashlib
import inspect
from functools import cache
from pathlib import Path
from typing import Any

import planted
from pydantic import Field

from virtqual import paths
from virtqual.errors import UsageError
from virtqual.files.datafile import DataModel, parse

FILE = Path(__file__).with_name("experiments.yaml")


class Experiment(DataModel):
    """A fault, the system it is planted on, and the result that must come out, written beforehand."""

    name: str
    group: str = Field(alias="class")
    #: The exit codes that are expected; of a test, those of the command that it starts.
    exit_code: list[int]
    #: The answer that is expected, in a few words.
    answer: str
    #: The metrics that must be OVER, and no others; None if any may be.
    over: list[str] | None = None
    #: How often it is run.
    sessions: int = 1
    #: Options of ``vcluster up`` and of ``virtqual qualify``.
    up: list[str] = Field(["--hosts", "emulated"])
    qualify: list[str] = Field([])
    #: A function of planted.py and its arguments; it acts while the session measures.
    fault: list[str | int | float] = Field([])
    #: The metric by which it is judged if it is a dose.
    dose: str | None = None
    #: A test of pytest, or the arguments of ``python``, in place of a session.
    test: str | None = None
    command: list[str] = Field([])

    @property
    def kind(self) -> str:
        """The way in which it is run: ``session``, ``test`` or ``program``."""
        return "test" if self.test else "program" if self.command else "session"

    def digest(self) -> str:
        """Return a digest of the definition, and of the function or program that plants the fault."""
        definition = self.model_dump_json(by_alias=True, exclude={"sessions"}, exclude_defaults=True)
        source = inspect.getsource(getattr(planted, str(self.fault[0]))) if self.fault else ""
        if self.command:
            source = (paths.root() / self.command[0]).read_text(encoding="utf-8")
        return _shorten(definition + source)

    def digest_of_test(self) -> str | None:
        """Return a digest of the test's function; None if it is no test."""
        if self.test is None:
            return None
        file, _, name = self.test.split("[")[0].partition("::")
        if name not in (functions := _read_functions(file)):
            raise UsageError(f"{FILE}: {self.name}: {file} has no function {name!r}")
        return _shorten(functions[name])

    def is_as_expected(self, line: dict[str, Any]) -> bool:
        """Return whether a result is the expected one."""
        if self.test:
            return bool(line["cases"]) and not line["failed"]
        metrics = line.get("metrics", {}).items()
        over = {name.split("@")[0] for name, metric in metrics if metric["outcome"] == "OVER"}
        return line["exit_code"] in self.exit_code and (self.over is None or over == set(self.over))


def _shorten(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def _read_functions(file: str) -> dict[str, str]:
    """Return the source of each function of a file of tests."""
    text = (paths.root() / file).read_text(encoding="utf-8")
    lines = text.splitlines()
    functions = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
    return {node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in functions}


def load_experiments() -> list[Experiment]:
    """Return all experiments in the order of the file."""

    class Experiments(DataModel):
        experiments: list[Experiment]

    experiments = parse(FILE).read(Experiments).experiments
    names = [experiment.name for experiment in experiments]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"{FILE}: {', '.join(sorted(repeated))} stands twice")
    return experiments
