"""The layout of Avro container files: a header with the schema, then blocks of rows one after the other."""

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
from streamling.sources.file.listing import SourceFile

# The heads of blocks are read in windows of this size, each of which is one request to an object store.
_WINDOW = 1 << 20
# Two numbers of at most ten bytes.
_LONGEST_HEAD = 20
# A damaged length must not be read as one: the longest schemas have some megabytes.
_LONGEST_METADATA = 64 << 20
# An element of snappy data has at least 2 bytes, and makes at most 64.
_MOST_EXPANSION = 64


@dataclass(frozen=True, slots=True)
class AvroHeader:
    """`end` is where the first block begins; `sync` follows every block."""

    schema: str
    codec: bytes
    sync: bytes
    end: int


@dataclass(frozen=True, slots=True)
class AvroBlock:
    """`content` is where its rows begin, after the numbers of rows and bytes."""

    start: int
    content: int
    end: int
    rows: int


def decompress(codec: bytes, data: bytes) -> bytes:
    """The bytes of the rows of a block. Raises ValueError, also for an unknown codec."""
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
                return _decompress_snappy(data)
            case b"zstandard":
                import pyarrow as pa

                content: bytes = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
                return content
    except (zlib.error, lzma.LZMAError, OSError, EOFError, IndexError) as error:
        raise ValueError(f"the {codec.decode()} data are damaged: {error}") from error
    raise ValueError(f"the codec {codec.decode(errors='replace')} is not supported")


def _decompress_snappy(data: bytes) -> bytes:
    """Snappy data begin with the size of the content; Avro adds a checksum of the content at the end."""
    import pyarrow as pa

    size = shift = 0
    for byte in data:
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    if size > _MOST_EXPANSION * len(data):
        raise ValueError("the size of the snappy data is wrong")
    content: bytes = pa.decompress(data[:-4], decompressed_size=size, codec="snappy", asbytes=True)
    if zlib.crc32(content) != int.from_bytes(data[-4:], "big"):
        raise ValueError("the checksum of the snappy data is wrong")
    return content


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
    try:
        json.loads(schema)
    except RecursionError as error:
        raise ValueError("its schema is nested too deeply") from error
    return AvroHeader(schema, metadata.get("avro.codec", b"null"), sync, stream.tell())


def blocks(file: SourceFile, stream: Any, header: AvroHeader, start: int) -> Iterator[AvroBlock]:
    """The blocks from an offset on. Raises PermanentError if the file is damaged."""
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
                f"'{file.path}' is damaged: there is no complete Avro block at byte {at}",
                hint="replace the file by an intact copy, under another name if rows of it were delivered",
            )
        yield AvroBlock(at, base + place, end, rows)
        at = end


def _ends_with(sync: bytes, stream: Any, window: bytes, base: int, end: int) -> bool:
    if end <= base + len(window):
        return window[end - base - SYNC_BYTES : end - base] == sync
    stream.seek(end - SYNC_BYTES)
    mark: bytes = stream.read(SYNC_BYTES)
    return mark == sync


def _number(data: bytes, place: int) -> tuple[int, int]:
    """A number and the offset after it. Raises IndexError if the data end inside it."""
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
    content: bytes = stream.read(min(length, _LONGEST_METADATA)) if length >= 0 else b""
    if len(content) != length:
        raise ValueError("its header ends early")
    return content


def _long(stream: Any) -> int:
    data = b""
    while not data or data[-1] & 0x80:
        byte: bytes = stream.read(1)
        if not byte or len(data) > 9:
            raise ValueError("its header ends early")
        data += byte
    return _number(data, 0)[0]
