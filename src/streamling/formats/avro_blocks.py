"""Avro bytes as Arrow rows: blocks are shown to the Arrow project's reader as files that lie in memory."""

from __future__ import annotations

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
# The reader opens files only: one in memory where the machine has such.
_SHARED_MEMORY = Path("/dev/shm")
_PREFIX, _SUFFIX = "streamling-", ".avro"
# A file is there while some megabytes are decoded; one that is older belongs to nobody.
_LEFT_S = 3600.0


class Undecodable(Exception):
    """The bytes are not what their schema says."""


def marked(name: str, schema: Any) -> Any:
    """A record of the field `name` and a mark behind it: where bytes are too few or too many, the marks are wrong."""
    fields = [
        {"name": name, "type": schema},
        {"name": "mark", "type": {"type": "fixed", "name": "streamling.Mark", "size": MARK_BYTES}},
    ]
    return {"type": "record", "name": "streamling.Block", "fields": fields}


def heading(schema: Any) -> bytes:
    """The beginning of a file that is not compressed."""
    metadata = {b"avro.schema": json.dumps(schema).encode(), b"avro.codec": b"null"}
    entries = b"".join(_counted(name) + _counted(value) for name, value in metadata.items())
    return MAGIC + number(len(metadata)) + entries + number(0) + bytes(SYNC_BYTES)


def container(beginning: bytes, rows: int, content: bytes) -> tuple[bytes, ...]:
    """A file of one block behind its heading, in pieces: contents are large, and nobody needs them joined."""
    return beginning, number(rows) + number(len(content)), content, bytes(SYNC_BYTES)


def number(value: int) -> bytes:
    """A number as Avro writes it: zig-zag, seven bits to a byte."""
    rest = (value << 1) ^ (value >> 63)
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes((*found, rest))


def _counted(value: bytes) -> bytes:
    return number(len(value)) + value


def read_rows(file: Iterable[bytes], count: int, schema: Any = None) -> pa.RecordBatch:
    """The rows of an Avro file, given in pieces, of which there must be `count`. Raises Undecodable.

    `schema` is that of a file with unions of several types (see `has_unions`).
    """
    import pyarrow as pa
    from datafusion import SessionConfig, SessionContext

    from streamling.formats.avro_names import with_names

    config = SessionConfig().with_batch_size(count).with_target_partitions(1)
    with _scratch(file) as path:
        try:
            context = SessionContext(config)
            columns = with_names(context.read_avro(path).schema(), schema) if schema is not None else None
            # Without a limit the reader never ends where bytes are left behind the last row of a block.
            found = context.read_avro(path, columns).limit(count).collect()
        except Exception as error:  # the reader raises this very class
            raise Undecodable(str(error).splitlines()[0]) from error
    table = pa.Table.from_batches(found).combine_chunks() if found else None
    if table is None or table.num_rows != count:
        raise Undecodable("it ends early")
    return table.to_batches()[0]


@contextmanager
def _scratch(data: Iterable[bytes]) -> Iterator[str]:
    directory = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    _sweep(directory)
    with tempfile.NamedTemporaryFile(prefix=_PREFIX, suffix=_SUFFIX, dir=directory) as file:
        file.writelines(data)
        file.flush()
        yield file.name


@cache
def _sweep(directory: Path) -> None:
    """Once per process: remove what killed processes have left, for it takes up memory."""
    for left in directory.glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(OSError):  # another process may be at it, or it is another user's
            if time.time() - left.stat().st_mtime > _LEFT_S:
                left.unlink()
