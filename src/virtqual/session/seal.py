"""The seal of a log's lines: each ends with a checksum that continues the one of the line before."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator

from virtqual.errors import DamagedError

_SEAL = re.compile(rb',"crc":"([0-9a-f]{8})"}')
#: Length of a seal, without the line feed after it, B.
SEAL_BYTES = 18


def seal(lines: Iterable[bytes], crc: int = 0) -> bytes:
    """Return lines with seals and line feeds; each is a JSON object that is not empty.

    `crc` is the CRC-32 of the line before; 0 if there is none.
    """
    sealed_lines = []
    for line in lines:
        crc = zlib.crc32(line, crc)
        sealed_lines.append(line[:-1] + b',"crc":"%08x"}\n' % crc)
    return b"".join(sealed_lines)


def sealed_crc(line: bytes) -> int | None:
    """Return the CRC-32 in the seal of a line; None if it has no seal."""
    match = _SEAL.fullmatch(line[-SEAL_BYTES:])
    return int(match[1], 16) if match else None


def intact_lines(content: bytes, place: str, *, lenient: bool = False) -> Iterator[tuple[int, bytes]]:
    """Yield the number, from 1, and the content of each sealed line, without its seal.

    A last line without a line feed was not written whole; it is left out. `place` names the file in messages.

    Raises
    ------
    DamagedError
        A line is not as it was written; if `lenient`, it is passed over.
    """
    crc = start = number = 0
    while (end := content.find(b"\n", start)) >= 0:
        line, start, number = content[start:end], end + 1, number + 1
        written = sealed_crc(line)
        body = line[:-SEAL_BYTES] + b"}"
        if written is not None and zlib.crc32(body, crc) == written:
            yield number, body
        elif not lenient:
            why = "it has no checksum" if written is None else "its checksum is wrong"
            raise DamagedError(f"{place}:{number}", why)
        crc = crc if written is None else written
