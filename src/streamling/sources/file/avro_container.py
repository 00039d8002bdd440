"""Avro container files as bytes: a header with the schema, then blocks of rows that follow each other."""

from __future__ import annotations

import bz2
import json
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from streamling.errors import DATA_ERROR, PermanentError
from streamling.formats.avro_blocks import MAGIC, SYNC_BYTES
from streamling.sources.file.listing import FoundFile

# Heads of blocks are looked for in windows of this size: a request each, where files are far away.
_WINDOW = 1 << 20
# Two numbers of at most ten bytes.
_LONGEST_HEAD = 20


@dataclass(frozen=True, slots=True)
class AvroHeader:
    """`end` is where the first block begins; `sync` stands behind every block."""

    schema: str
    codec: bytes
    sync: bytes
    end: int


@dataclass(frozen=True, slots=True)
class Block:
    """`content` is where its rows begin, behind the numbers of rows and bytes."""

    start: int
    content: int
    end: int
    rows: int


def unpacked(codec: bytes, data: bytes) -> bytes:
    """The rows of a block. Raises ValueError, also for a codec nobody knows."""
    try:
        match codec:
            case b"null":
                return data
            case b"deflate":
                return zlib.decompress(data, wbits=-zlib.MAX_WBITS)
            case b"bzip2":
                return bz2.decompress(data)
            case b"xz":
                return lzma.decompress(data)
            case b"snappy":
                return _unsnapped(data)
            case b"zstandard":
                import pyarrow as pa

                found: bytes = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
                return found
    except (zlib.error, lzma.LZMAError, OSError, EOFError, IndexError) as error:
        raise ValueError(f"the {codec.decode()} data are damaged: {error}") from error
    raise ValueError(f"the codec {codec.decode(errors='replace')} is not known")


def _unsnapped(data: bytes) -> bytes:
    """Snappy has the size in front; Avro puts a checksum of the content behind."""
    import pyarrow as pa

    size = shift = 0
    for byte in data:
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    found: bytes = pa.decompress(data[:-4], decompressed_size=size, codec="snappy", asbytes=True)
    if zlib.crc32(found) != int.from_bytes(data[-4:], "big"):
        raise ValueError("the checksum of the snappy data is another one")
    return found


def read_header(stream: Any) -> AvroHeader:
    """The header of an Avro container file. Raises ValueError."""
    stream.seek(0)
    if stream.read(len(MAGIC)) != MAGIC:
        raise ValueError("it does not begin like an Avro container file")
    metadata: dict[str, bytes] = {}
    while count := _long(stream):
        if count < 0:
            count = -count
            _long(stream)
        for _ in range(count):
            name = _bytes(stream).decode()
            metadata[name] = _bytes(stream)
    sync = stream.read(SYNC_BYTES)
    if len(sync) != SYNC_BYTES:
        raise ValueError("its header ends early")
    schema = metadata.get("avro.schema", b"").decode()
    json.loads(schema)
    return AvroHeader(schema, metadata.get("avro.codec", b"null"), sync, stream.tell())


def blocks(file: FoundFile, stream: Any, header: AvroHeader, start: int) -> Iterator[Block]:
    """The blocks from a place on. Raises PermanentError where the file is damaged."""
    window, base = b"", start
    at = start
    while at < file.size:
        if at - base + _LONGEST_HEAD > len(window):
            stream.seek(at)
            window, base = stream.read(min(_WINDOW, file.size - at)), at
        try:
            rows, place = _number(window, at - base)
            size, place = _number(window, place)
        except IndexError:
            rows, size, place = 0, -1, 0
        end = base + place + size + SYNC_BYTES
        if rows < 0 or size < 0 or end > file.size or not _ends_with(header.sync, stream, window, base, end):
            raise PermanentError(
                DATA_ERROR,
                f"'{file.path}' is damaged: what begins at byte {at} is no whole Avro block",
                hint="bring the file again as a whole, under another name if rows of it were delivered",
            )
        yield Block(at, base + place, end, rows)
        at = end


def _ends_with(sync: bytes, stream: Any, window: bytes, base: int, end: int) -> bool:
    if end <= base + len(window):
        return window[end - base - SYNC_BYTES : end - base] == sync
    stream.seek(end - SYNC_BYTES)
    found: bytes = stream.read(SYNC_BYTES)
    return found == sync


def _number(data: bytes, place: int) -> tuple[int, int]:
    """A number, and where it ends. Raises IndexError if it does not."""
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        shift, place = shift + 7, place + 1
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), place
        if shift > 63:
            raise IndexError(place)


def _bytes(stream: Any) -> bytes:
    length = _long(stream)
    found: bytes = stream.read(length) if length >= 0 else b""
    if len(found) != length:
        raise ValueError("its header ends early")
    return found


def _long(stream: Any) -> int:
    data = b""
    while not data or data[-1] & 0x80:
        byte: bytes = stream.read(1)
        if not byte or len(data) > 9:
            raise ValueError("its header ends early")
        data += byte
    return _number(data, 0)[0]
