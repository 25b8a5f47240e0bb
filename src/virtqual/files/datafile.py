"""Reviewed data in YAML: read against a model, with every error naming file, line and key.

Metrics, budgets, noise, waivers and published claims are data that people edit. What pydantic and
ruamel.yaml say about a mistake is turned here into one sentence per mistake that points at the line to
change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from io import StringIO
from pathlib import Path
from textwrap import shorten
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError

Key = tuple[str | int, ...]


class Entry(BaseModel):
    """Base of every model read from a data file: immutable, and a key it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


EntryT = TypeVar("EntryT", bound=Entry)


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake in one data file.

    Parameters
    ----------
    file
        The file as it was given, so that the path can be clicked.
    line
        Line of the key, from 1.
    key
        Dotted path of the key, such as ``budgets[2].margin``; empty for the file as a whole.
    message
        What is wrong and what to do.
    """

    file: str
    line: int
    key: str
    message: str

    def __str__(self) -> str:
        key = f" {self.key}:" if self.key else ""
        return f"{self.file}:{self.line}:{key} {self.message}"


class DataError(ValueError):
    """Data files that cannot be used.

    Attributes
    ----------
    problems : tuple of Problem
        Every mistake found, in order of file and line.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems))
        super().__init__("\n".join(map(str, self.problems)))


def dotted(key: Key) -> str:
    """Return a key path as people write it: ``("budgets", 2, "margin")`` is ``budgets[2].margin``."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def near(name: str, known: Iterable[str]) -> str:
    """Return the part of an error message that lists what could have been meant instead of `name`."""
    names = sorted(known)
    matches = get_close_matches(name, names, n=3, cutoff=0.5)
    if matches:
        return "did you mean " + " or ".join(matches) + "?"
    return "known are " + (", ".join(names) if names else "none") + "."


@dataclass(frozen=True)
class Document:
    """A parsed data file that still knows its lines.

    Parameters
    ----------
    path
        Where it was read.
    content
        The mapping at its top.
    """

    path: Path
    content: CommentedMap

    def line(self, key: Key) -> int:
        """Return the line (from 1) of `key`, or of its nearest existing ancestor."""
        node: object = self.content
        line = 1
        for part in key:
            try:
                if isinstance(node, CommentedMap):
                    found, _ = node.lc.key(part)
                elif isinstance(node, CommentedSeq) and isinstance(part, int):
                    found, _ = node.lc.item(part)
                else:
                    break
                line = int(found) + 1
                node = node[part]
            except (KeyError, IndexError, TypeError):
                break
        return line

    def problem(self, key: Key, message: str) -> Problem:
        """Return a problem at `key` of this file."""
        return Problem(str(self.path), self.line(key), dotted(key), message)

    def where(self, key: Key) -> str:
        """Return ``file:line`` of `key`."""
        return f"{self.path}:{self.line(key)}"

    def read(self, model: type[EntryT]) -> EntryT:
        """Check the whole file against `model`.

        Raises
        ------
        DataError
            With one problem for each field that is missing, unknown or of the wrong kind.
        """
        try:
            return model.model_validate(_plain(self.content))
        except ValidationError as error:
            raise DataError(self._problems(error)) from None

    def _problems(self, error: ValidationError) -> Iterator[Problem]:
        found: dict[Key, list[tuple[str, str]]] = {}
        for item in error.errors(include_url=False):
            message = str(item["msg"]).removeprefix("Value error, ")
            if item["type"] == "missing":
                message = "is missing, and has no default."
            elif item["type"] == "extra_forbidden":
                message = "is not a key of this kind of entry: remove it or correct its name."
            elif item["type"] != "value_error":
                message = f"{message} (found {shorten(repr(item['input']), 60)})."
            missing = item["type"] == "missing"
            found.setdefault(self._key(item["loc"], missing), []).append((item["type"], message))
        for key, messages in found.items():
            # Of the branches of a union, those of another type altogether explain nothing.
            telling = [message for kind, message in messages if not kind.endswith("_type")]
            for message in telling or [messages[0][1]]:
                yield self.problem(key, message)

    def _key(self, loc: tuple[str | int, ...], missing: bool) -> Key:
        """Return the part of pydantic's location that is in the file; it also names branches of unions."""
        node: object = self.content
        key: list[str | int] = []
        for index, part in enumerate(loc):
            children = _children(node)
            if part in children:
                node = children[part]
            elif not (missing and index == len(loc) - 1):
                continue
            key.append(part)
        return tuple(key)


def _children(node: object) -> Mapping[str | int, object]:
    if isinstance(node, Mapping):
        return node
    return dict(enumerate(node)) if isinstance(node, list) else {}


def _plain(node: Any) -> Any:
    """Return `node` as dict, list and scalars, which strict validation accepts."""
    if isinstance(node, Mapping):
        return {str(key): _plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(value) for value in node]
    if isinstance(node, bool):
        return bool(node)
    if isinstance(node, int):
        return int(node)
    if isinstance(node, float):
        return float(node)
    if isinstance(node, str):
        return str(node)
    return node


def parse(path: Path, text: str | None = None) -> Document:
    """Read a YAML file and keep its line numbers.

    Parameters
    ----------
    path
        The file.
    text
        Its content, where it is known already.

    Raises
    ------
    DataError
        If it cannot be read, is no YAML, holds a key twice, or is no mapping at its top.
    """
    yaml = YAML(typ="rt")
    try:
        content = yaml.load(StringIO(path.read_text(encoding="utf-8") if text is None else text))
    except OSError as error:
        raise DataError([Problem(str(path), 1, "", f"cannot be read: {error.strerror}.")]) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise DataError([Problem(str(path), line, "", f"is not UTF-8: {error.reason}.")]) from None
    except DuplicateKeyError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        what = str(error.problem).split(" with value")[0]
        raise DataError([Problem(str(path), line, "", f"{what}: a key may stand only once.")]) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise DataError([Problem(str(path), line, "", f"is not YAML: {error.problem}.")]) from None
    if not isinstance(content, CommentedMap):
        raise DataError([Problem(str(path), 1, "", "must hold a mapping at its top.")])
    return Document(path, content)


def files(directory: Path) -> list[Path]:
    """Return the YAML files of `directory`, sorted by name so that errors come in one order.

    Raises
    ------
    DataError
        If the directory does not exist.
    """
    if not directory.is_dir():
        raise DataError([Problem(str(directory), 1, "", "is not a directory.")])
    return sorted(directory.glob("*.yaml"))
