"""Reviewed data in YAML: read against a model, with every error naming file, line and key.

Metrics, budgets, noise, waivers and published claims are data that people edit. What pydantic and
ruamel.yaml say about a mistake is turned here into one sentence per mistake that points at the line to
change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.composer import Composer
from ruamel.yaml.constructor import DuplicateKeyError, RoundTripConstructor
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import AliasEvent
from ruamel.yaml.reader import ReaderError

from virtqual.errors import UsageError
from virtqual.files import reading
from virtqual.files.wording import Key, describe_mistakes, dotted

#: Nodes of a file at most, each a key, a value, a mapping or a list: it is read in about a second.
MAX_NODES = 20_000


class DataModel(BaseModel):
    """Base of every model read from a data file: immutable, and a key it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


DataModelT = TypeVar("DataModelT", bound=DataModel)


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
        The mistake, and how to mend it.
    """

    file: str
    line: int
    key: str
    message: str

    def __str__(self) -> str:
        key = f" {self.key}:" if self.key else ""
        return f"{self.file}:{self.line}:{key} {self.message}"


class DataError(UsageError, ValueError):
    """Data files that cannot be used.

    Attributes
    ----------
    problems : tuple of Problem
        Every mistake found, in order of file and line.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True)
class Document:
    """A parsed data file that still knows its lines.

    Parameters
    ----------
    path
        Path from which the document was read.
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

    def read(self, model: type[DataModelT]) -> DataModelT:
        """Check the whole file against `model`.

        Raises
        ------
        DataError
            With one problem for each field that is missing, unknown or of the wrong kind.
        """
        content = unwrap_yaml(self.content)
        try:
            return model.model_validate(content)
        except ValidationError as error:
            told = describe_mistakes(error, model, content)
            raise DataError(self.problem(key, message) for key, message in told) from None


def unwrap_yaml(node: Any) -> Any:
    """Return `node` as dict, list and scalars, which strict validation accepts."""
    if isinstance(node, Mapping):
        return {str(key): unwrap_yaml(value) for key, value in node.items()}
    if isinstance(node, list):
        return [unwrap_yaml(value) for value in node]
    if isinstance(node, bool):
        return bool(node)
    if isinstance(node, int):
        return int(node)
    if isinstance(node, float):
        return float(node)
    if isinstance(node, str):
        return str(node)
    return node


class _RefusedError(MarkedYAMLError):
    """YAML that a reviewed file does not need; `problem` is the whole message."""


class _Composer(Composer):  # type: ignore[misc, unused-ignore]
    """Refuses aliases, which stand for more values than there is memory, and more than `MAX_NODES` nodes."""

    _nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.parser.peek_event()
        if isinstance(event, AliasEvent):
            raise _RefusedError(
                problem=f"holds the alias *{event.anchor}: aliases are not read, write out what this one "
                "stands for.",
                problem_mark=event.start_mark,
            )
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _RefusedError(
                problem=f"holds more than {MAX_NODES} keys and values: split the file.",
                problem_mark=event.start_mark,
            )
        return super().compose_node(parent, index)


class _Constructor(RoundTripConstructor):  # type: ignore[misc, unused-ignore]
    """Names the line of a value that its type refuses, such as 2024-13-45 or an integer of 5000 digits."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            raise _RefusedError(
                problem=f"holds {str(node.value)[:40]!r}, which cannot be read as {node.tag}.",
                problem_mark=node.start_mark,
            ) from None


def parse(path: Path, text: str | None = None) -> Document:
    """Read a YAML file and keep its line numbers.

    Parameters
    ----------
    path
        The file.
    text
        Content of the file, where it is known already.

    Raises
    ------
    DataError
        If it cannot be read, is no regular file or too large, is no YAML, holds a key twice or an alias, or
        is no mapping at its top.
    """

    def wrong(line: int, message: str) -> DataError:
        return DataError([Problem(str(path), line, "", message)])

    yaml = YAML(typ="rt", pure=True)
    yaml.Composer = _Composer
    yaml.Constructor = _Constructor
    try:
        if text is None:
            text = reading.read_bytes(path, reading.MAX_REVIEWED_BYTES).decode("utf-8-sig")
        stream = StringIO(text, newline=None)
        content = yaml.load(stream)
    except OSError as error:
        raise wrong(1, f"cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise wrong(line, f"is not UTF-8: {error.reason}.") from None
    except DuplicateKeyError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        what = str(error.problem).split(" with value")[0]
        raise wrong(line, f"{what}: a key may stand only once.") from None
    except _RefusedError as error:
        raise wrong(error.problem_mark.line + 1, str(error.problem)) from None
    except ReaderError as error:
        line = stream.getvalue()[: error.position].count("\n") + 1
        message = f"holds the control character U+{error.character:04X}: remove it."
        raise wrong(line, message) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise wrong(mark.line + 1 if mark else 1, f"is not YAML: {error.problem}.") from None
    except RecursionError:
        raise wrong(1, "is nested too deeply.") from None
    if not isinstance(content, CommentedMap):
        raise wrong(1, "must hold a mapping at its top.")
    return Document(path, content)


def find_yaml_files(directory: Path) -> list[Path]:
    """Return the YAML files of `directory`, sorted by name so that errors come in one order.

    Raises
    ------
    DataError
        If the directory does not exist.
    """
    if not directory.is_dir():
        raise DataError([Problem(str(directory), 1, "", "is not a directory.")])
    return sorted(directory.glob("*.yaml"))
