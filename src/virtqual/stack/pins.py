"""The commits and package sets that ``spack.yaml`` and its companions pin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

from virtqual.errors import UsageError


class Repository(NamedTuple):
    """A commit of a git repository: where from, and under which name it is released."""

    url: str
    commit: str
    release: str


#: The Spack that is supported; newer ones of major version 1 are tried.
SPACK = Repository("https://github.com/spack/spack.git", "2e907202bcc8209a6a62243aab50c179b524cc3b", "v1.1.0")


class Stack(NamedTuple):
    """The content of ``spack.yaml``.

    Attributes
    ----------
    sets
        Package names by set.
    packages
        The repository of upstream's recipes.
    """

    sets: dict[str, tuple[str, ...]]
    packages: Repository

    def members(self, name: str) -> tuple[str, ...]:
        """Return the package names of a set.

        Raises
        ------
        UsageError
            ``spack.yaml`` has no such set.
        """
        every = {**self.sets, "all": tuple(dict.fromkeys(n for names in self.sets.values() for n in names))}
        if name not in every:
            raise UsageError(f"no set {name!r} in spack.yaml (there are: {', '.join(every)})")
        return every[name]


def stack(root: Path) -> Stack:
    """Read ``spack.yaml`` of a checkout.

    Raises
    ------
    UsageError
        The file is not there, or does not pin its package repository by commit.
    """
    file = root / "spack.yaml"
    try:
        said = read(file)["spack"]
        sets = {
            name: tuple(dict.fromkeys(map(name_of, specs)))
            for definition in said["definitions"]
            for name, specs in definition.items()
        }
        builtin = said["repos"]["builtin"]
        packages = Repository(builtin["git"], str(builtin.get("commit", "")), "")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; run this from a checkout of virtqual") from error
    except KeyError as error:
        raise UsageError(f"{file}: the key {error} is missing") from None
    except (TypeError, AttributeError):
        raise UsageError(
            f"{file}: spack, definitions and repos.builtin do not have their form (docs/stack.md)"
        ) from None
    if not re.fullmatch(r"[0-9a-f]{40}", packages.commit):
        raise UsageError(f"{file}: repos.builtin.commit: the package repository is not pinned by a commit")
    return Stack(sets, packages)


def read(file: Path) -> Any:
    """Return what a YAML file of Spack's says.

    Raises
    ------
    UsageError
        The file is no YAML (the message has the line), or a key in it is no text, as all keys of Spack's are.
    """
    try:
        said = YAML(typ="safe").load(file.read_text(encoding="utf-8"))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise UsageError(f"{file} line {mark.line + 1 if mark else 1}: {error.problem}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: no text in UTF-8 ({error.reason})") from None
    for place in _no_text(said):
        raise UsageError(f"{file}: {place}: this key is no text; put it in quotes")
    return said


def _no_text(said: Any, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the place of every key that is no text, e.g. ``packages.gcc.12``."""
    if isinstance(said, dict):
        for key, value in said.items():
            place = (*above, str(key))
            if not isinstance(key, str):
                yield ".".join(place)
            yield from _no_text(value, place)
    elif isinstance(said, list):
        for number, value in enumerate(said):
            yield from _no_text(value, (*above, str(number)))


def name_of(spec: str) -> str:
    """Return the package's name of a spec."""
    match = re.match(r"[\w-]+", spec)
    if match is None:
        raise UsageError(f"spack.yaml: {spec!r} is no spec: it begins with no package's name")
    return match[0]


@cache
def programs() -> dict[str, Any]:
    """Return ``programs.yaml``: what packages give to checks, and what building them needs."""
    loaded: dict[str, Any] = YAML(typ="safe").load(
        resources.files(__package__).joinpath("programs.yaml").read_text(encoding="utf-8")
    )
    return loaded
