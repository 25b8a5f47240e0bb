"""The manifest of programs that a centre has already, loaded by modules or found on ``PATH``."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from virtqual.errors import InfrastructureError
from virtqual.files import execute
from virtqual.files.datafile import DataError, DataModel, Document, Problem, Text, parse
from virtqual.files.wording import suggest
from virtqual.stack import sbom
from virtqual.stack.manifest import Manifest, Program, find_libraries, load_recipe

#: The copy of the file in the stack's directory.
FILE = "modules.yaml"
LOAD_TIMEOUT_S, VERSION_TIMEOUT_S = 120, 20
# A NUL ends what the profile of the login shell prints.
_PRINT_VARIABLES = 'if [ $# != 0 ]; then module load "$@" 1>&2 || exit; fi; printf "\\0"; exec env -0'
_OPEN_MPI_NAMES = ("openmpi", "hpcx-mpi")

Variables = Mapping[str, str]


class MpiLibrary(DataModel):
    """The MPI library of all programs; `srun` is known for the names in ``programs.yaml``."""

    name: Text
    modules: list[Text] = Field(default_factory=list)
    srun: list[Text] | None = None
    env: dict[str, str] = Field(default_factory=dict)


class ProgramEntry(DataModel):
    """A program, with its modules besides those of the MPI library, and what differs from its recipe."""

    modules: list[Text] = Field(default_factory=list)
    #: The name of the program on ``PATH``, or its path.
    program: Text | None = None
    version: Text | None = None
    env: dict[str, str] = Field(default_factory=dict)
    #: Other files and directories that its checks use, by name.
    data: dict[str, str] = Field(default_factory=dict)


class ModulesFile(DataModel):
    """The file that states which modules provide which programs."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    mpi: MpiLibrary | None = None
    programs: Annotated[dict[str, ProgramEntry], Field(min_length=1)]


def register(file: Path, stacks: Path) -> Manifest:
    """Write the manifest of the programs that a file names, their bill of materials, and a copy of the file.

    Raises
    ------
    DataError
        The file has mistakes, or a program is not as its entry says.
    """
    document = parse(file)
    content = document.read(ModulesFile)
    if mistakes := list(_find_mistakes(document, content)):
        raise DataError(mistakes)
    programs, problems = [], []
    for name, entry in content.programs.items():
        try:
            programs.append(_describe_program(name, entry, content.mpi))
        except InfrastructureError as error:
            problems.append(document.problem(("programs", name), f"{error}."))
    if problems:
        raise DataError(problems)
    stack = Manifest(name=content.name, programs=tuple(programs))
    directory = stacks / content.name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / FILE).write_bytes(file.read_bytes())
    sbom.write(stack, directory)
    stack.write(directory)
    return stack


def _find_mistakes(document: Document, content: ModulesFile) -> Iterator[Problem]:
    if content.name in ("registry", "spack"):
        yield document.problem(("name",), f"{content.name!r} is another stack: choose another name.")
    libraries = load_recipe("programs.yaml")["mpi"]
    if content.mpi and content.mpi.srun is None and content.mpi.name not in libraries:
        yield document.problem(
            ("mpi", "name"),
            f"no library {content.mpi.name!r} is known: {suggest(content.mpi.name, libraries)} For another "
            "one write srun's options into `mpi.srun`.",
        )
    recipes = load_recipes()
    for name, entry in content.programs.items():
        if name not in recipes and not (entry.program and entry.version):
            yield document.problem(
                ("programs", name),
                f"no check of virtqual runs {name!r}: {suggest(name, recipes)} A program for checks of your "
                "own needs `program` and `version`.",
            )


@cache
def load_recipes() -> dict[str, dict[str, Any]]:
    """Return the recipes of programs by their names, and by the names of their Spack packages."""
    registry = load_recipe("registry.yaml")
    parts = [registry, *registry.get("extras", {}).values()]
    recipes: dict[str, dict[str, Any]] = {
        # Variables of the registry stack are for its own directories.
        **{name: {**entry, "env": {}} for part in parts for name, entry in part["programs"].items()},
        **load_recipe("programs.yaml")["programs"],
    }
    packages = {entry["package"]: entry for entry in recipes.values() if "package" in entry}
    return packages | recipes


def _describe_program(name: str, entry: ProgramEntry, mpi: MpiLibrary | None) -> Program:
    modules = (*(mpi.modules if mpi else ()), *entry.modules)
    variables = {**load_modules(modules), **entry.env}
    recipe = load_recipes().get(name, {"path": "", "features": [name]})
    path = _find_program(entry.program or Path(recipe["path"]).name, variables)
    data = dict(_find_data(entry, recipe, path, variables))
    for key, file in data.items():
        if not file.exists():
            raise InfrastructureError(
                f"{file} is missing, which its checks read. State its path as `data: {{{key}: PATH}}`"
            )
    libraries = find_libraries([path], variables)
    if not _uses_mpi(path, libraries, mpi):
        mpi = None
    needs = load_recipe("programs.yaml")["mpi"].get(mpi.name, {}) if mpi else {}
    # Modules set the variables that name directories.
    mpi_env, own_env = (
        {key: value for key, value in part.get("env", {}).items() if "{prefix}" not in value}
        for part in (needs, recipe)
    )
    launch = needs.get("launch", ()) if mpi is None or mpi.srun is None else mpi.srun
    return Program.from_files(
        path,
        libraries=[*libraries, *find_libraries(data.values(), variables)],
        data=data,
        name=name,
        version=entry.version or _ask_version(path, recipe, variables),
        origin=f"modules {' '.join(modules)}" if modules else "installed by the centre",
        features=tuple(recipe["features"]),
        modules=modules,
        mpi=mpi.name if mpi else None,
        launch=tuple(launch),
        env={**mpi_env, **(mpi.env if mpi else {}), **own_env, **entry.env},
    )


@cache
def load_modules(modules: tuple[str, ...]) -> Variables:
    """Return the variables of a login shell that has loaded modules, beginning with those of a job."""
    base = {name: os.environ[name] for name in execute.BASE_VARIABLES & os.environ.keys()}
    shell = ["bash", "-lc", _PRINT_VARIABLES, "bash", *modules]
    completed = execute.run(shell, env=base, seconds=LOAD_TIMEOUT_S)
    if completed.returncode:
        # The profile may have printed other lines before, and Lmod prints advice after it.
        match = re.search(r"^.*\berror\b.*\n?.*", completed.stderr, re.IGNORECASE | re.MULTILINE)
        reason = " ".join((match[0] if match else completed.stderr[-200:]).split())
        raise InfrastructureError(
            f"`module load {' '.join(modules)}` fails in a login shell: {reason.rstrip('.')}"
        )
    printed = completed.stdout.partition("\0")[2]
    return dict(variable.split("=", 1) for variable in printed.split("\0") if "=" in variable)


def _find_program(name: str, variables: Variables) -> Path:
    path = shutil.which(name, path=variables.get("PATH", ""))
    if path is None:
        where = "is no program" if "/" in name else "is not on PATH after its modules were loaded"
        raise InfrastructureError(f"{name} {where}. State its name or its path as `program`")
    return Path(path).absolute()


def _uses_mpi(path: Path, libraries: list[Path], mpi: MpiLibrary | None) -> bool:
    """Return whether a program is linked with the MPI library; a script is if the file states one.

    Raises
    ------
    InfrastructureError
        The program is linked with another library: each rank could run as a program of one rank.
    """
    with path.open("rb") as file:
        if file.read(2) == b"#!":
            return mpi is not None
    # The names of Cray MPICH's libraries have the compiler: libmpi_gnu_91.so.12.
    linked = [library.name for library in libraries if re.match(r"libmpi(ch)?(_\w+)?\.so", library.name)]
    if not linked:
        return False
    if mpi is None:
        raise InfrastructureError(f"{path} is linked with {linked[0]}. State its MPI library as `mpi`")
    is_open_mpi = any(library.name.startswith("libopen-pal.so") for library in libraries)
    if is_open_mpi != (mpi.name in _OPEN_MPI_NAMES) and mpi.srun is None:
        kind = "Open MPI" if is_open_mpi else "another library than Open MPI"
        raise InfrastructureError(
            f"{path} is linked with {kind} ({linked[0]}), and `mpi.name` says {mpi.name!r}"
        )
    return True


def _find_data(
    entry: ProgramEntry, recipe: Mapping[str, Any], path: Path, variables: Variables
) -> Iterator[tuple[str, Path]]:
    """Yield name and path of the other files of a program: programs on ``PATH``, or files of its prefix."""
    patterns = {name: Path(text) for name, text in recipe.get("data", {}).items() if name not in entry.data}
    depth = max(len(Path(recipe["path"]).parts) - 2, 0)
    prefix = path.parents[min(depth, len(path.parents) - 1)]
    for name, pattern in patterns.items():
        if "*" in pattern.name:
            yield from _find_programs(pattern.name, path, variables).items()
        else:
            yield name, Path(str(pattern).format(prefix=prefix))
    yield from ((name, Path(text)) for name, text in entry.data.items())


def _find_programs(pattern: str, path: Path, variables: Variables) -> dict[str, Path]:
    """Return the first program of each name that matches a pattern, beside a program or on ``PATH``."""
    programs: dict[str, Path] = {}
    for directory in (path.parent, *map(Path, variables.get("PATH", "").split(":"))):
        for file in sorted(directory.glob(pattern)):
            if file.is_file() and os.access(file, os.X_OK):
                programs.setdefault(file.name, file)
    return programs


def _ask_version(path: Path, recipe: Mapping[str, Any], variables: Variables) -> str:
    """Return the version that a program prints for its recipe's option, or that its file holds."""
    question = recipe.get("version", {})
    if "option" in question:
        completed = execute.run([path, question["option"]], env=variables, seconds=VERSION_TIMEOUT_S)
        text = completed.stdout + completed.stderr
    else:
        text = path.read_bytes().decode("ascii", "replace")
    match = re.search(question.get("pattern", "$^"), text)
    if match is None:
        raise InfrastructureError(f"{path} does not say its version. State it as `version`")
    return match[1]
