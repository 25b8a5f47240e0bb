"""Reviewed data in YAML, read into models; a mistake is reported with file, line and key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, Field, PrivateAttr, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.composer import Composer
from ruamel.yaml.constructor import DuplicateKeyError, RoundTripConstructor
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import AliasEvent
from ruamel.yaml.parser import Parser
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scanner import Scanner

from virtqual.errors import UsageError
from virtqual.files import reading
from virtqual.files.wording import Key, describe_mistakes, dotted

#: Largest number of keys, values, mappings and lists of a file, which takes about a second to read.
MAX_NODES = 20_000

#: A text that is not empty.
Text = Annotated[str, Field(min_length=1)]


class DataModel(BaseModel, frozen=True, extra="forbid", strict=True):
    """Base of the models of data files: immutable, and unknown keys are errors."""


class PlacedModel(DataModel):
    """An entry that knows the place that it was read from, for mistakes that are found later."""

    _place: tuple[str, int] = PrivateAttr(("", 0))

    @property
    def place(self) -> tuple[str, int]:
        """The file that it was read from, and its line."""
        return self._place

    def read_from(self, file: str, line: int) -> Self:
        """Return the entry with the place that it was read from."""
        entry = self.model_copy()
        entry._place = (file, line)
        return entry


DataModelT = TypeVar("DataModelT", bound=DataModel)


@dataclass(frozen=True)
class Problem:
    """A mistake at a line (from 1) and key of a data file; the key is empty for the whole line.

    The line is None if the file cannot be read, has another name than it should, or is a directory.
    """

    file: str
    line: int | None
    key: str
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        key = f" {self.key}:" if self.key else ""
        return f"{place}:{key} {self.message}"


class DataError(UsageError, ValueError):
    """Data files with mistakes: `problems` are sorted by file and line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p.file, p.line or 0, p.key, p.message)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True)
class Document:
    """A parsed data file: its top mapping, with the lines of its keys."""

    path: Path
    content: CommentedMap

    def line(self, key: Key) -> int:
        """Return the line (from 1) of a key, or of its nearest existing ancestor."""
        node: Any = self.content
        line = 1
        with suppress(KeyError, IndexError, TypeError):
            for part in key:
                if not isinstance(node, CommentedMap | CommentedSeq):
                    break
                position = node.lc.key(part) if isinstance(node, CommentedMap) else node.lc.item(part)
                line, node = position[0] + 1, node[part]
        return line

    def problem(self, key: Key, message: str) -> Problem:
        """Return a problem at a key."""
        return Problem(str(self.path), self.line(key), dotted(key), message)

    def where(self, key: Key) -> str:
        """Return ``file:line`` of a key."""
        return f"{self.path}:{self.line(key)}"

    def read(self, model: type[DataModelT]) -> DataModelT:
        """Return the content as a model; raise `DataError` if a field is missing, unknown or wrong."""
        content = unwrap_yaml(self.content)
        try:
            return model.model_validate(content)
        except ValidationError as error:
            mistakes = describe_mistakes(error, model, content)
            raise DataError(self.problem(key, message) for key, message in mistakes) from None


def unwrap_yaml(node: Any) -> Any:
    """Return ruamel's node as dict, list and scalars, which strict validation accepts."""
    if isinstance(node, Mapping):
        return {str(key): unwrap_yaml(value) for key, value in node.items()}
    if isinstance(node, list):
        return [unwrap_yaml(value) for value in node]
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node


class _RefusedError(MarkedYAMLError):
    """YAML that a reviewed file does not need; `problem` is the whole message."""


class _Composer(Composer):  # type: ignore[misc, unused-ignore]
    """Refuses more than `MAX_NODES` nodes, and aliases, which can stand for too many values."""

    _node_count = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.parser.peek_event()
        if isinstance(event, AliasEvent):
            raise _RefusedError(
                problem=f"holds the alias *{event.anchor}: aliases are not read, write out what this one "
                "stands for.",
                problem_mark=event.start_mark,
            )
        self._node_count += 1
        if self._node_count > MAX_NODES:
            raise _RefusedError(
                problem=f"holds more than {MAX_NODES} keys and values: split the file.",
                problem_mark=event.start_mark,
            )
        return super().compose_node(parent, index)


class _Constructor(RoundTripConstructor):  # type: ignore[misc, unused-ignore]
    """Reports the line of a value that its type refuses, such as 2024-13-45 or an integer of 5000 digits."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            kind = node.tag.rpartition(":")[2]
            reason = f"cannot be read as {kind}"
            if kind == "timestamp":
                reason = "is not a date that exists: write YYYY-MM-DD"
            raise _RefusedError(
                problem=f"holds {str(node.value)[:40]!r}, which {reason}.",
                problem_mark=node.start_mark,
            ) from None


def _make_reader() -> YAML:
    yaml = YAML(typ="rt", pure=True)
    # Comments are not kept, as the round-trip classes would: that takes a fifth of the time.
    yaml.Scanner, yaml.Parser = Scanner, Parser
    yaml.Composer = _Composer
    yaml.Constructor = _Constructor
    return yaml


def parse(path: Path, *, links: bool = True) -> Document:
    """Read a YAML file with its line numbers; without `links` a symbolic link is refused.

    Raises
    ------
    DataError
        The file cannot be read, is no YAML, or holds more than reviewed files need.
    """
    yaml = _make_reader()
    line: int | None
    try:
        text = reading.read_bytes(path, reading.MAX_REVIEWED_BYTES, links=links).decode("utf-8-sig")
        stream = StringIO(text, newline=None)
        content = yaml.load(stream)
        line, message = 1, None
        if not isinstance(content, CommentedMap):
            message = "is empty." if content is None else "has no keys at its top, such as `schema: ...`."
    except OSError as error:
        line, message = None, f"cannot be read: {error.strerror}."
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        message = f"is not UTF-8: {error.reason}."
    except ReaderError as error:
        line = stream.getvalue()[: error.position].count("\n") + 1
        message = f"holds the control character U+{error.character:04X}: remove it."
    except MarkedYAMLError as error:
        mark, problem = error.problem_mark or error.context_mark, str(error.problem)
        line = mark.line + 1 if mark else 1
        if isinstance(error, _RefusedError):
            message = problem
        elif isinstance(error, DuplicateKeyError):
            message = f"{problem.split(' with value')[0]}: a key may stand only once."
        else:
            message = f"is not YAML: {problem}."
    except RecursionError:
        line, message = 1, "is nested too deeply."
    if message is not None:
        raise DataError([Problem(str(path), line, "", message)])
    return Document(path, content)
