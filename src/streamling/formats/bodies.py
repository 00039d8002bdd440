"""Bodies of messages: what the decoders of all formats have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

# A decoder holds a chunk and the rows of it in memory at the same time.
_CHUNK_BYTES = 16 << 20
_CHUNK_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class BadBody:
    """`reason` is `decode_error` for bytes that cannot be decoded, `schema_mismatch` for values that do not fit."""

    reason: str
    message: str


class Decoder(Protocol):
    def rows(self, bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch | BadBody]:
        """Batches and bad bodies, in order; every body becomes one row of a batch or one bad body."""


def chunks(bodies: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    if 0 < len(bodies) <= _CHUNK_ROWS and sum(map(len, bodies)) <= _CHUNK_BYTES:
        yield bodies
        return
    first, size = 0, 0
    for index, body in enumerate(bodies):
        if index > first and (size + len(body) > _CHUNK_BYTES or index - first >= _CHUNK_ROWS):
            yield bodies[first:index]
            first, size = index, 0
        size += len(body)
    if first < len(bodies):
        yield bodies[first:]
