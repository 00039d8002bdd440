"""Avro bytes to Arrow rows: the Arrow project's reader gets blocks as container files, in memory where possible."""

from __future__ import annotations

import fcntl
import json
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
MARK_BYTES = 4
# The reader opens files only; this directory is in memory, on machines that have it.
_SHARED_MEMORY = Path("/dev/shm")
_PREFIX, _SUFFIX = "streamling-", ".avro"
# A file exists while some megabytes are decoded; an older one was left by a process that was killed.
_LEFT_S = 3600.0


class Undecodable(Exception):
    """The bytes do not match their schema."""


def with_mark(name: str, schema: Any) -> Any:
    """A record of the field `name` and a mark after it: if there are too few or too many bytes, the mark is wrong."""
    fields = [
        {"name": name, "type": schema},
        {"name": "mark", "type": {"type": "fixed", "name": "streamling.Mark", "size": MARK_BYTES}},
    ]
    return {"type": "record", "name": "streamling.Block", "fields": fields}


def heading(schema: Any) -> bytes:
    """The header of a container file without compression."""
    metadata = {b"avro.schema": json.dumps(schema).encode(), b"avro.codec": b"null"}
    entries = b"".join(_encode_bytes(name) + _encode_bytes(value) for name, value in metadata.items())
    return MAGIC + encode_long(len(metadata)) + entries + encode_long(0) + bytes(SYNC_BYTES)


def container(beginning: bytes, rows: int, content: bytes) -> tuple[bytes, ...]:
    """A container file of one block, as chunks of bytes: the content is large, so it is not copied to join them."""
    return beginning, encode_long(rows) + encode_long(len(content)), content, bytes(SYNC_BYTES)


def encode_long(value: int) -> bytes:
    """A number as Avro writes it: zig-zag, seven bits to a byte."""
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes((*encoded, rest))


def _encode_bytes(value: bytes) -> bytes:
    return encode_long(len(value)) + value


def read_rows(file: Iterable[bytes], count: int, schema: Any = None) -> pa.RecordBatch:
    """The rows of a container file, given as chunks of bytes; there must be `count` rows. Raises Undecodable.

    `schema` is needed for a file with unions of several types (see `has_unions`).
    """
    import pyarrow as pa
    from datafusion import SessionConfig, SessionContext

    from streamling.formats.avro_names import with_names

    config = SessionConfig().with_batch_size(count).with_target_partitions(1)
    with _scratch(file) as path:
        try:
            context = SessionContext(config)
            columns = with_names(context.read_avro(path).schema(), schema) if schema is not None else None
            # Without a limit the reader never ends if bytes are left after the last row of a block.
            batches = context.read_avro(path, columns).limit(count).collect()
        except Exception as error:  # the reader raises this very class
            raise Undecodable(str(error).splitlines()[0]) from error
    table = pa.Table.from_batches(batches).combine_chunks() if batches else None
    if table is None or table.num_rows != count:
        raise Undecodable("it ends early")
    return table.to_batches()[0]


@contextmanager
def _scratch(data: Iterable[bytes]) -> Iterator[str]:
    directory = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    _sweep(directory)
    with tempfile.NamedTemporaryFile(prefix=_PREFIX, suffix=_SUFFIX, dir=directory) as file:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        file.writelines(data)
        file.flush()
        yield file.name


@cache
def _sweep(directory: Path) -> None:
    """Once per process: removes the files that killed processes have left, because they take up memory."""
    for left in directory.glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(OSError):  # another process may remove it at the same time, or it is another user's
            # The time alone is not enough: the clock of the system may jump. The lock alone comes after the file.
            if time.time() - left.stat().st_mtime > _LEFT_S:
                with left.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    left.unlink()
