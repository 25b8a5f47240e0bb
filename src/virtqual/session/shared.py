"""Facts that many runs share, such as the identity of a node: a log has each once, under its digest."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from pydantic_core import from_json

T = TypeVar("T")

#: Size of the facts of one line, and of all lines of a log, B.
MAX_FACTS_BYTES, MAX_ALL_FACTS_BYTES = 16 * 2**20, 64 * 2**20
_KEY = "fact"


def compact(value: Any) -> str:
    """Return a value as JSON on one line."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def load_strictly(text: bytes) -> Any:
    """Return the content of a JSON text without NaN and infinity; raise `ValueError` if it is none."""
    try:
        content = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ValueError(f"no JSON: {error}") from None
    # A number such as 1e999 is infinite.
    compact(content)
    return content


def expect(value: Any, kind: type[T]) -> T:
    """Return a value of a kind; raise `ValueError` if it is of another one."""
    if not isinstance(value, kind):
        raise ValueError(f"{value!r:.40} is no {kind.__name__}")
    return value


def digest_of(text: str) -> str:
    """Return the digest of a fact's JSON text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def refer(value: Any, facts: dict[str, str]) -> dict[str, str]:
    """Return a reference to a JSON value, and add its text to `facts` by its digest."""
    text = compact(value)
    digest = digest_of(text)
    facts[digest] = text
    return {_KEY: digest}


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
        self._bytes = 0
        self._made: dict[tuple[Callable[..., Any], str], Any] = {}

    def unpack(self, text: str) -> None:
        """Add the facts in a packed text; raise `ValueError` if they are damaged, or too large for a log."""
        contents, size = unpacked(text, min(MAX_FACTS_BYTES, MAX_ALL_FACTS_BYTES - self._bytes))
        self._bytes += size
        for digest, content in contents.items():
            if digest_of(compact(content)) != digest:
                raise ValueError(f"the fact is not that of digest {digest}")
            self._contents[digest] = content

    def look_up(self, reference: Any) -> Any:
        """Return the fact that a reference names; raise `ValueError` if no line before it has the fact."""
        digest = expect(reference, dict).get(_KEY)
        if not isinstance(digest, str) or digest not in self._contents:
            raise ValueError(f"no line before it has the fact {digest!r:.40}")
        return self._contents[digest]

    def make(self, make: Callable[[Any, Facts], T], reference: Any) -> T:
        """Return the object that `make` returns for a fact, which is made once; see `look_up` for errors."""
        content = self.look_up(reference)
        key = make, reference[_KEY]
        if key not in self._made:
            self._made[key] = make(content, self)
        return cast(T, self._made[key])
