"""Mutation testing: change the code in one place at a time, and see which change no test notices.

    uv pip install mutmut==3.8.1 --constraint requirements-dev.lock
    python benchmarks/mutants/run.py src/virtqual/preflight --tests tests/virtqual/preflight --results FILE

The changes are those of mutmut. mutmut itself leaves out each decorated function, hence each rule of
preflight and each property. This program changes these, too: it gives a function the changed code after all
modules are imported. Decorators, defaults of parameters and constants of modules are not changed.

Each change is tried in a fork of one process of pytest, by the tests that call the function. Its result is a
line of FILE at once, so that a run that was stopped goes on. A result holds while the function's code is the
same. `--again` tries those again that survived; `--show` prints them and tries nothing.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import gc
import hashlib
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import libcst
import pytest
from libcst.metadata import MetadataWrapper
from mutmut.mutation import file_mutation
from mutmut.mutation.pragma_handling import IgnoredCode

SOURCE = Path(__file__).parents[2] / "src"
#: A change is given up after so many times what its tests take, and is then taken as noticed.
TIMEOUT_FACTOR, TIMEOUT_S = 10, 20
Function = tuple[str, str]


@dataclass(frozen=True)
class Mutant:
    """A change of a function: its file and name, the line and the code before and after."""

    file: Path
    function: str
    number: int
    before: str
    after: str

    @property
    def key(self) -> str:
        digest = hashlib.sha256(f"{self.before}\0{self.after}".encode()).hexdigest()[:12]
        return f"{self.file}:{self.function}:{self.number}:{digest}"

    @property
    def change(self) -> str:
        """The lines that differ."""
        lines = difflib.unified_diff(self.before.splitlines(), self.after.splitlines(), n=0, lineterm="")
        return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))

    def compile(self) -> CodeType:
        """Return the code of the changed function."""
        lines = self.after.splitlines()
        for outer in reversed(self.function.split(".")[:-1]):
            lines = [f"class {outer}:", *(f"    {line}" for line in lines)]
        text = "\n".join(["from __future__ import annotations", *lines])
        return _find_code(compile(text, str(self.file), "exec"), self.function)


def _find_code(code: CodeType, function: str) -> CodeType:
    """Return the code of a function by its qualified name."""
    for part in function.split("."):
        (code,) = (const for const in code.co_consts if isinstance(const, CodeType) and const.co_name == part)
    return code


class Visitor(file_mutation.MutationVisitor):
    """Collects mutmut's changes, of decorated functions, too."""

    def _skip_node_and_children(self, node: libcst.CSTNode) -> bool:
        if isinstance(node, libcst.Param):
            return True
        if isinstance(node, libcst.FunctionDef):
            node = node.with_changes(decorators=[])
        return super()._skip_node_and_children(node)


def find_mutants(file: Path) -> Iterator[Mutant]:
    """Yield all changes of the functions and methods of a file."""
    wrapper = MetadataWrapper(libcst.parse_module((SOURCE / file).read_text("utf-8")))
    visitor = Visitor(file_mutation.mutation_operators, IgnoredCode(set(), set(), set()))
    module = wrapper.visit(visitor)
    names = {}
    for node in wrapper.module.body:
        if isinstance(node, libcst.FunctionDef):
            names[node] = node.name.value
        elif isinstance(node, libcst.ClassDef):
            for part in node.body.body:
                if isinstance(part, libcst.FunctionDef):
                    names[part] = f"{node.name.value}.{part.name.value}"
    numbers: dict[str, int] = defaultdict(int)
    for mutation in visitor.mutations:
        function = mutation.contained_by_top_level_function
        if name := names.get(function):
            changed = function.deep_replace(mutation.original_node, mutation.mutated_node)
            before, after = (module.code_for_node(node).strip() for node in (function, changed))
            numbers[name] += 1
            yield Mutant(file, name, numbers[name], before, after)


def find_functions(module: ModuleType) -> Iterator[FunctionType]:
    """Yield the functions and methods of a module, without their decorators."""
    values = list(vars(module).values())
    for value in vars(module).values():
        if isinstance(value, type) and value.__module__ == module.__name__:
            values += vars(value).values()
    for value in values:
        for attribute in ("fget", "func", "__func__", "__wrapped__"):
            value = getattr(value, attribute, value)
        if isinstance(value, FunctionType) and value.__code__.co_filename == module.__file__:
            yield value


class Runner:
    """A plugin of pytest that runs the tests once for each mutant."""

    def __init__(self, mutants: list[Mutant], results: Path, done: dict[str, Any]) -> None:
        self.mutants, self.results, self.done = mutants, results, done
        self.functions: dict[Function, FunctionType] = {}
        #: Functions that were called in the first round of tests alone, while caches were filled.
        self.cached: set[Function] = set()
        self.tests: dict[Function, dict[str, None]] = defaultdict(dict)
        self.seconds: dict[str, float] = {}
        self.failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for file in dict.fromkeys(mutant.file for mutant in self.mutants):
            module = importlib.import_module(".".join(file.with_suffix("").parts).removesuffix(".__init__"))
            for function in find_functions(module):
                self.functions[str(file), function.__qualname__] = function
        self.trace(session.items)
        if self.failed:
            raise pytest.UsageError(f"{self.failed} fails without a change")
        items = {item.nodeid: item for item in session.items}
        noticed: dict[Function, str | None] = {}
        caches = [part for part in gc.get_objects() if isinstance(part, functools._lru_cache_wrapper)]
        # A test that fails in each fork would seem to notice each change.
        unchanged = self.try_mutant(None, session.items, caches)
        if unchanged["outcome"] != "survived":
            raise pytest.UsageError(f"a fork without a change fails: {unchanged}")
        for mutant in self.mutants:
            if mutant.key not in self.done:
                function = str(mutant.file), mutant.function
                tests = set(items) if function in self.cached else self.tests[function]
                # What noticed the last change of the function comes first.
                order = sorted(tests, key=lambda test: (test != noticed.get(function), self.seconds[test]))
                outcome = self.try_mutant(mutant, [items[test] for test in order], caches)
                noticed[function] = outcome.get("by", noticed.get(function))
                with self.results.open("a", encoding="utf-8") as out:
                    out.write(json.dumps({"mutant": mutant.key, **outcome}) + "\n")
        return True

    def trace(self, items: list[pytest.Item]) -> None:
        """Run all tests, and note which of them call each function."""
        by_code = {function.__code__: name for name, function in self.functions.items()}
        test = ""

        def note(frame: Any, event: str, _: object) -> None:
            if event == "call" and (name := by_code.get(frame.f_code)):
                self.tests[name][test] = None

        for round_number in range(2):
            before = {name: set(tests) for name, tests in self.tests.items()}
            self.tests.clear()
            for index, item in enumerate(items):
                test, begin = item.nodeid, time.monotonic()
                sys.setprofile(note)
                # The item that follows the last one keeps the fixtures of the session for the forks.
                self.run(item, items[(index + 1) % len(items)])
                sys.setprofile(None)
                self.seconds[test] = time.monotonic() - begin
            if round_number:
                self.cached = {name for name, tests in before.items() if tests - self.tests[name].keys()}
                for name in self.cached:
                    self.tests[name].update(dict.fromkeys(before[name]))

    @staticmethod
    def run(item: pytest.Item, following: pytest.Item | None) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)

    def try_mutant(
        self, mutant: Mutant | None, items: list[pytest.Item], caches: list[Any]
    ) -> dict[str, Any]:
        """Return whether a test notices a change, and which; None is no change."""
        if not items:
            return {"outcome": "no test"}
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                self.become(mutant, items, caches)
                outcome = {"outcome": "killed", "by": self.failed} if self.failed else {"outcome": "survived"}
            except BaseException as error:
                outcome = {"outcome": "not tried", "why": f"{type(error).__name__}: {error}"}
            os.write(writing, json.dumps(outcome).encode())
            os._exit(0)
        os.close(writing)
        timeout_s = TIMEOUT_S + TIMEOUT_FACTOR * sum(self.seconds[item.nodeid] for item in items)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
        signal.alarm(int(timeout_s))
        os.waitpid(child, 0)
        timed_out = not signal.alarm(0)
        with os.fdopen(reading, encoding="utf-8") as outcomes:
            text = outcomes.read()
        return json.loads(text) if text else {"outcome": "timeout" if timed_out else "killed"}

    def become(self, mutant: Mutant | None, items: list[pytest.Item], caches: list[Any]) -> None:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        if mutant is not None:
            self.functions[str(mutant.file), mutant.function].__code__ = mutant.compile()
        if mutant is None or (str(mutant.file), mutant.function) in self.cached:
            for cache in caches:
                cache.cache_clear()
        with tempfile.TemporaryDirectory() as directory:
            # Directories of tests of all mutants in one would be slow to number.
            items[0].config._tmp_path_factory._basetemp = Path(directory)
            items[0].session._setupstate.teardown_exact(items[0])
            for index, item in enumerate(items):
                self.run(item, items[(index + 1) % len(items)])
                if self.failed:
                    return


def show(mutants: list[Mutant], done: dict[str, Any]) -> None:
    """Print the number of mutants by file and outcome, and each change that no test noticed."""
    by_file: dict[Path, list[str]] = defaultdict(list)
    for mutant in mutants:
        outcome = done.get(mutant.key, {}).get("outcome", "not tried")
        by_file[mutant.file].append(outcome)
        if outcome in ("survived", "no test"):
            print(f"{mutant.file}:{mutant.function}:{mutant.number} {outcome}\n{mutant.change}\n")
    outcomes = ("killed", "timeout", "survived", "no test", "not tried")
    print("| file | mutants |", " | ".join(outcomes), "|")
    for file, of_file in by_file.items():
        print(f"| {file} | {len(of_file)} |", " | ".join(str(of_file.count(part)) for part in outcomes), "|")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, help="files or directories of src")
    parser.add_argument("--tests", nargs="+", help="files or directories of tests")
    parser.add_argument("--results", type=Path, required=True, help="file of results, which is continued")
    parser.add_argument("--again", action="store_true", help="try survivors again")
    parser.add_argument("--show", action="store_true", help="print the results, and try nothing")
    options = parser.parse_args()
    if not (options.tests or options.show):
        parser.error("state --tests, or --show")
    if foreign := [str(path) for path in options.paths if not path.resolve().is_relative_to(SOURCE)]:
        parser.error(f"{', '.join(foreign)}: not in {SOURCE}")
    files = [
        file for path in options.paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])
    ]
    mutants = [mutant for file in files for mutant in find_mutants(file.resolve().relative_to(SOURCE))]
    done = {}
    if options.results.exists():
        for line in options.results.read_text("utf-8").splitlines():
            result = json.loads(line)
            done[result.pop("mutant")] = result
    if options.show:
        show(mutants, done)
        return 0
    if options.again:
        done = {key: result for key, result in done.items() if result["outcome"] in ("killed", "timeout")}
    runner = Runner(mutants, options.results, done)
    arguments = ["-q", "-p", "no:cacheprovider", "--capture=sys", *options.tests]
    return int(pytest.main(arguments, plugins=[runner]))


if __name__ == "__main__":
    sys.exit(main())
