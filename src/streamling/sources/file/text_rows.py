"""Rows of text files: pieces are parsed by Arrow at once, and record by record only around a bad one."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from streamling.sources.file.records import Piece, RecordEnds, pieces
from streamling.sources.file.rows import BATCH_ROWS, Rows, Shape, bad_row
from streamling.sources.file.stretches import Position, Stretch


class Parser(Protocol):
    def parse(self, data: bytes) -> pa.RecordBatch:
        """The rows of whole records. Raises ArrowInvalid or UnicodeDecodeError if one of them cannot be read."""

    def complaint(self, record: bytes) -> tuple[str, str]:
        """Why a record cannot be read: a word and a sentence."""


def text_rows(stream: Any, stretch: Stretch, scanner: RecordEnds, parser: Parser, shape: Shape) -> Rows:
    at = stretch.first
    for piece in pieces(stream, stretch, scanner):
        yield from _rows(piece, parser, stretch, shape)
        at += len(piece.data)
        yield Position(at, piece.row + len(piece.ends))


def _rows(piece: Piece, parser: Parser, stretch: Stretch, shape: Shape) -> Rows:
    # Short records may have many columns: what they become is bounded by their number as well.
    batch = _parsed(piece, parser) if len(piece.ends) <= BATCH_ROWS else None
    if batch is not None:
        found: list[tuple[int, bytes]] = []

        def place(index: int) -> tuple[int, bytes]:
            found.extend(() if found else piece.records())
            return found[index]

        yield from shape.rows(batch, stretch.file, place)
    elif len(piece.ends) == 1:
        yield bad_row(*parser.complaint(piece.data), stretch.file, piece.row, piece.data)
    else:
        for half in piece.halves():
            yield from _rows(half, parser, stretch, shape)


def _parsed(piece: Piece, parser: Parser) -> pa.RecordBatch | None:
    """None if something in the piece cannot be read."""
    try:
        batch = parser.parse(piece.data)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    # A row per record, empty lines apart; else a record holds a lone CR, or two objects.
    if batch.num_rows == len(piece.ends) or batch.num_rows == sum(1 for _ in piece.records()):
        return batch
    return None
