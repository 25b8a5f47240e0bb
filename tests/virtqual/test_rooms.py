"""The rooms of src/virtqual: imports go downwards only, there is no cycle, and few modules lie loose."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src/virtqual"

#: The lowest first; rooms of one floor do not know each other (docs/architecture.md).
FLOORS = [
    {"errors", "trust"},
    {"paths"},
    {"files"},
    {"identity", "programs", "verdict"},
    {"stack"},
    {"job", "site", "references", "inputs"},
    {"runs"},
    {"preflight"},
    {"session"},
    {"history", "harness", "formats"},
    {"report"},
    {"pair", "qualify"},
    {"checks", "commands"},
    {"cli"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


def imports(file):
    """Yield the modules of virtqual that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("virtqual."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "virtqual":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(dotted):
    return dotted.split(".")[1] if "." in dotted else "virtqual"


FILES = [file for file in SRC.rglob("*.py") if file != SRC / "__init__.py"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SRC)))
def test_imports_go_downwards(file):
    own = file.relative_to(SRC).with_suffix("").parts[0]
    for other in map(room, imports(file)):
        assert other == own or FLOOR[other] < FLOOR[own], f"{file.name} of {own} imports {other}"


def test_there_is_no_cycle_in_a_room_either():
    graph = {}
    for file in FILES:
        name = ".".join(("virtqual", *file.relative_to(SRC).with_suffix("").parts)).removesuffix(".__init__")
        graph[name] = set(imports(file))
    known = set(graph)
    edges = {
        name: {
            target if target in known else target.rpartition(".")[0]
            for target in targets
            if target in known or target.rpartition(".")[0] in known
        }
        - {name}
        for name, targets in graph.items()
    }
    done, path = set(), []

    def visit(name):
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name in done:
            return
        path.append(name)
        for target in edges[name]:
            # A package's __init__ imports its modules, and they are in it.
            if not name.startswith(f"{target}."):
                visit(target)
        path.pop()
        done.add(name)

    for name in edges:
        visit(name)


def test_every_room_has_a_floor_and_few_modules_lie_loose():
    rooms = {path.stem for path in SRC.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - {"__init__"} == set(FLOOR)
    assert len([path for path in SRC.glob("*.py") if path.stem != "__init__"]) <= 6
