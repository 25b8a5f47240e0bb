"""Facts that many runs share, such as the identity of a node: a log has each once, under its digest."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

#: Length of the JSON text of a part that becomes a fact of its own.
MIN_CHARS = 120
#: Size of the facts of one line, and of all lines of a log, B.
MAX_FACTS_BYTES, MAX_ALL_FACTS_BYTES = 16 * 2**20, 64 * 2**20
#: Number of JSON values of a line, with those of its facts: short facts can stand for many values.
MAX_VALUES = 500_000
MAX_DEPTH = 50
_KEY = "fact"


def compact(value: Any) -> str:
    """Return a value as JSON on one line."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def load_strictly(text: bytes) -> Any:
    """Return the content of a JSON text, which has each key once and no NaN or infinity.

    Raises
    ------
    ValueError
        The text is not of this form.
    """

    def make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) != len(pairs):
            raise ValueError("a key stands twice")
        return content

    def parse_float(text: str) -> float:
        if not math.isfinite(number := float(text)):
            raise ValueError(f"{text} is no finite number")
        return number

    return json.loads(
        text, object_pairs_hook=make_object, parse_constant=parse_float, parse_float=parse_float
    )


def digest_of(text: str) -> str:
    """Return the digest of a fact's JSON text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def shorten(value: Any, facts: dict[str, str]) -> Any:
    """Return a JSON value in which a reference stands for each large part.

    `facts` gets the JSON text of each large part by its digest, a part after those that it refers to.
    """
    if isinstance(value, dict):
        short: Any = {key: shorten(child, facts) for key, child in value.items()}
    elif isinstance(value, list):
        short = [shorten(child, facts) for child in value]
    else:
        return value
    text = compact(short)
    # Content that looks like a reference becomes a fact: it must not be taken for one.
    if len(text) < MIN_CHARS and not is_reference(value):
        return short
    facts[digest_of(text)] = text
    return {_KEY: digest_of(text)}


def is_reference(value: Any) -> bool:
    """Return whether a JSON value stands for a fact."""
    return isinstance(value, dict) and value.keys() == {_KEY}


def packed(facts: Mapping[str, str]) -> str:
    """Return the JSON texts of facts, compressed, as text."""
    content = ",".join(f'"{digest}":{text}' for digest, text in facts.items())
    return base64.b85encode(zlib.compress(f"{{{content}}}".encode(), 9)).decode()


def unpacked(text: str, max_bytes: int = MAX_FACTS_BYTES) -> tuple[dict[str, Any], int]:
    """Return the facts in a packed text by their digests, and the size of their JSON text.

    Raises
    ------
    ValueError
        The text is not of this form, or its content is larger than `max_bytes`.
    """
    try:
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(base64.b85decode(text), max_bytes)
        facts = load_strictly(content)
    except zlib.error as error:
        raise ValueError(f"its facts cannot be unpacked: {error}") from None
    if not isinstance(facts, dict) or not unpacker.eof:
        raise ValueError("its facts are not of this form, or too large")
    return facts, len(content)


class Facts:
    """The facts of a log, as far as it was read."""

    def __init__(self) -> None:
        self._contents: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._models: dict[tuple[type[BaseModel], str], BaseModel] = {}

    def unpack(self, text: str) -> None:
        """Add the facts in a packed text.

        Raises
        ------
        ValueError
            The text is not of this form or too large, a digest is wrong, or a reference is.
        """
        contents, size = unpacked(text, min(MAX_FACTS_BYTES, MAX_ALL_FACTS_BYTES - self._bytes))
        self._bytes += size
        # A fact is written after those that it refers to.
        for digest, content in contents.items():
            if digest_of(compact(content)) != digest:
                raise ValueError(f"the fact is not that of digest {digest}")
            # Content that looks like a reference is none.
            parts = content.values() if is_reference(content) else [content]
            self._sizes[digest] = sum(map(self.count_values, parts))
            self._contents[digest] = content

    def count_values(self, value: Any, depth: int = 0) -> int:
        """Return the number of JSON values of a value, with those of the facts that it refers to.

        Raises
        ------
        ValueError
            A fact is unknown, or the values are more than `MAX_VALUES`, or nested too deeply.
        """
        if depth > MAX_DEPTH:
            raise ValueError("the line is nested too deeply")
        if is_reference(value):
            self.look_up(value)
            count = self._sizes[value[_KEY]]
        elif isinstance(value, dict | list):
            parts = value.values() if isinstance(value, dict) else value
            count = 1 + sum(self.count_values(part, depth + 1) for part in parts)
        else:
            count = 1
        if count > MAX_VALUES:
            raise ValueError(f"it stands for more than {MAX_VALUES:,} values")
        return count

    def look_up(self, value: Any) -> Any:
        """Return the fact that a value refers to, or the value; its parts may still be references.

        Raises
        ------
        ValueError
            The reference is to an unknown fact.
        """
        if not is_reference(value):
            return value
        if not isinstance(value[_KEY], str) or value[_KEY] not in self._contents:
            raise ValueError(f"no line before it has the fact {value[_KEY]!r:.40}")
        return self._contents[value[_KEY]]

    def resolve(self, value: Any) -> Any:
        """Return a value with facts in the place of all references; see `look_up` for errors."""
        content = self.look_up(value)
        if isinstance(content, dict):
            return {key: self.resolve(part) for key, part in content.items()}
        if isinstance(content, list):
            return [self.resolve(part) for part in content]
        return content

    def make_model(self, kind: type[BaseModel], value: Any) -> Any:
        """Return a value as a model, one object for all equal ones; a value of another form as it is."""
        if not is_reference(value):
            return self.resolve(value)
        content = self.look_up(value)
        key = kind, value[_KEY]
        if key not in self._models:
            self._models[key] = kind.model_validate(self.resolve(content))
        return self._models[key]
