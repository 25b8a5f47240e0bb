"""The seal of a log's lines: each ends with a checksum that continues the one of the line before."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator

from virtqual.errors import DamagedError

_SEAL = re.compile(rb',"crc":"([0-9a-f]{8})"}')
#: Length of a seal, without the line feed after it, B.
SEAL_BYTES = 18


def seal(line: bytes, crc: int) -> tuple[bytes, int]:
    """Return a JSON object with its seal and a line feed, and its checksum.

    Parameters
    ----------
    line
        One line, an object that is not empty.
    crc
        CRC-32 of the line before; 0 for the first one.
    """
    crc = zlib.crc32(line, crc)
    return line[:-1] + b',"crc":"%08x"}\n' % crc, crc


def sealed_crc(line: bytes) -> int | None:
    """Return the CRC-32 in the seal of a line; None if it has no seal."""
    match = _SEAL.fullmatch(line[-SEAL_BYTES:])
    return int(match[1], 16) if match else None


def intact_lines(content: bytes, place: str, *, lenient: bool = False) -> Iterator[tuple[int, bytes]]:
    """Yield the number, from 1, and the content of each sealed line, without its seal.

    A last line without a line feed was not written whole; it is left out.

    Parameters
    ----------
    content
        The file.
    place
        Name of the file, for messages.
    lenient
        Pass over damaged lines.

    Raises
    ------
    DamagedError
        A line is not as it was written.
    """
    crc = 0
    for number, whole in enumerate(io.BytesIO(content), 1):
        if not whole.endswith(b"\n"):
            return
        line = whole[:-1]
        written = sealed_crc(line)
        body = line[:-SEAL_BYTES] + b"}"
        if written is not None and zlib.crc32(body, crc) == written:
            yield number, body
        elif not lenient:
            why = "it has no checksum" if written is None else "its checksum is wrong"
            raise DamagedError(f"{place}:{number}", why)
        crc = crc if written is None else written
