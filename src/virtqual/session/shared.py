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
#: Number of JSON values in the facts of a log, and in another line: two bytes may be an object of 64 B.
MAX_VALUES = 2_000_000
#: Size of what runs repeat of facts, of all runs of a log, B; facts of nodes and programs are shared.
MAX_REPEATED_BYTES = 64 * 2**20
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


def count_values(text: bytes) -> int:
    """Return how many values a JSON text has at most, without making them."""
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")


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


def packed(facts: Mapping[str, str], max_bytes: int | None = None, max_values: int = MAX_VALUES) -> str:
    """Return the JSON texts of facts, compressed, as text; raise `OSError` if they are too large."""
    members = ",".join(f'"{digest}":{text}' for digest, text in facts.items())
    content = f"{{{members}}}".encode()
    if max_bytes is not None and (len(content) > max_bytes or count_values(content) > max_values):
        raise OSError("it would describe more nodes and programs than can be read; begin a new session")
    return base64.b85encode(zlib.compress(content, 9)).decode()


class Facts:
    """The facts of a log, as far as it was read or written."""

    def __init__(self) -> None:
        #: By digest.
        self.contents: dict[str, Any] = {}
        self._bytes = self._values = self._repeated_bytes = 0
        self._made: dict[tuple[Callable[..., Any], str], Any] = {}

    def pack_new(self, facts: Mapping[str, str]) -> str | None:
        """Return the facts that the log lacks, packed; None if it has all. See `packed` for errors."""
        new_facts = {digest: text for digest, text in facts.items() if digest not in self.contents}
        return packed(new_facts, self._max_bytes, MAX_VALUES - self._values) if new_facts else None

    @property
    def _max_bytes(self) -> int:
        """The size of the facts that the next line may have."""
        return min(MAX_FACTS_BYTES, MAX_ALL_FACTS_BYTES - self._bytes)

    def unpack(self, text: str) -> None:
        """Add the facts in a packed text; raise `ValueError` if they are damaged, or too large for a log."""
        unpacker = zlib.decompressobj()
        try:
            # One more than is allowed: zlib takes 0 for no limit.
            unpacked = unpacker.decompress(base64.b85decode(text), self._max_bytes + 1)
        except zlib.error as error:
            raise ValueError(f"its facts cannot be unpacked: {error}") from None
        if not unpacker.eof or len(unpacked) > self._max_bytes:
            raise ValueError("its facts are not of this form, or too large")
        self._bytes += len(unpacked)
        self._values += count_values(unpacked)
        if self._values > MAX_VALUES:
            raise ValueError(f"the facts up to here have more than {MAX_VALUES:,} values")
        facts = load_strictly(unpacked)
        if not isinstance(facts, dict):
            raise ValueError("its facts are not of this form")
        for digest, content in facts.items():
            if digest_of(compact(content)) != digest:
                raise ValueError(f"the fact is not that of digest {digest}")
            self.contents[digest] = content

    def repeat(self, size: int) -> None:
        """Count what a run repeats of facts; raise `ValueError` if all runs repeat too much."""
        self._repeated_bytes += size
        if self._repeated_bytes > MAX_REPEATED_BYTES:
            limit = MAX_REPEATED_BYTES // 2**20
            raise ValueError(f"the runs up to here repeat more than {limit} MiB of shared facts")

    def look_up(self, reference: Any) -> Any:
        """Return the fact that a reference names; raise `ValueError` if no line before it has the fact."""
        digest = expect(reference, dict).get(_KEY)
        if not isinstance(digest, str) or digest not in self.contents:
            raise ValueError(f"no line before it has the fact {digest!r:.40}")
        return self.contents[digest]

    def make(self, make: Callable[[Any, Facts], T], reference: Any) -> T:
        """Return the object that `make` returns for a fact, which is made once; see `look_up` for errors."""
        content = self.look_up(reference)
        key = make, reference[_KEY]
        if key not in self._made:
            self._made[key] = make(content, self)
        return cast(T, self._made[key])
