"""Decodes the Avro bodies of many messages at once, to rows of the reader schema."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamling.formats.arrow import arrow_type
from streamling.formats.avro import record_of, type_of
from streamling.formats.avro_blocks import MARK_BYTES, Undecodable, container, heading, read_rows, with_mark
from streamling.formats.avro_faults import fault_finder
from streamling.formats.avro_names import has_unions
from streamling.formats.avro_resolution import Resolution, Unresolvable
from streamling.formats.avro_values import decoding_schema
from streamling.formats.bodies import BadBody, chunks

Json = Any


class BodyDecoder:
    """Decodes bodies of one writer schema. Both schemas come from `expand_schema`."""

    def __init__(self, writer: Json, reader: Json, *, by_name: bool = False) -> None:
        self._schema = decoding_schema(writer)
        self._empty = not record_of(self._schema)["fields"]
        file = with_mark("body", self._schema)
        self._heading = heading(file)
        self._unions = file if has_unions(file) else None
        record = record_of(reader)
        self._fields = [pa.field(f["name"], arrow_type(type_of(f["type"])), nullable=True) for f in record["fields"]]
        self._mismatch: str | None = None
        """Why no row of the writer schema can become one of the reader schema."""
        try:
            self._columns = Resolution(by_name).record(record_of(writer), record)
        except Unresolvable as error:
            self._mismatch = str(error)

    def rows(self, bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch | BadBody]:
        if self._mismatch is not None:
            for _ in bodies:
                yield BadBody("schema_mismatch", self._mismatch)
            return
        for chunk in chunks(bodies):
            yield from self._decode_chunk(chunk)

    def _decode_chunk(self, bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch | BadBody]:
        try:
            structs = self._decode(bodies)
        except Undecodable:
            faults = [self._find_fault(body) for body in bodies]
            good = [body for body, fault in zip(bodies, faults, strict=True) if fault is None]
            yield from _insert_bad(faults, self._decode_halves(good) if good else iter(()))
            return
        yield from self._resolve(structs)

    def _decode_halves(self, bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch | BadBody]:
        """Bodies without a known fault. Those that the reader rejects nevertheless are found by halving."""
        try:
            structs = self._decode(bodies)
        except Undecodable as error:
            if len(bodies) == 1:
                yield _undecodable(str(error))
                return
            middle = len(bodies) // 2
            yield from self._decode_halves(bodies[:middle])
            yield from self._decode_halves(bodies[middle:])
            return
        yield from self._resolve(structs)

    @cached_property
    def _find_fault(self) -> Callable[[bytes], str | None]:
        return fault_finder(self._schema)

    def _resolve(self, structs: pa.Array) -> Iterator[pa.RecordBatch | BadBody]:
        try:
            if structs.null_count:
                raise pa.ArrowInvalid("the payload is null, not a record")
            if self._fields:
                yield pa.RecordBatch.from_arrays(self._columns(structs), schema=pa.schema(self._fields))
            else:  # a batch made of no arrays would have no rows either
                yield pa.RecordBatch.from_struct_array(self._empty_records([b""] * len(structs)))
        except pa.ArrowInvalid as error:
            if len(structs) == 1:
                yield BadBody("schema_mismatch", str(error))
                return
            middle = len(structs) // 2
            for start, end in ((0, middle), (middle, len(structs))):
                # Copied, because the arrays inside of nested columns ignore the offset of a slice.
                yield from self._resolve(structs.take(pa.arange(start, end)))

    def _decode(self, bodies: Sequence[bytes]) -> pa.Array:
        """Bodies as structs. Raises Undecodable if one of them does not match the schema.

        A mark follows each body: a body that is longer or shorter than its record cannot shift its neighbours.
        """
        if self._empty:
            return self._empty_records(bodies)
        mark = secrets.token_bytes(MARK_BYTES)
        content = mark.join((*bodies, b""))
        rows = read_rows(container(self._heading, len(bodies), content), len(bodies), self._unions)
        if not pc.all(pc.equal(rows.column("mark"), pa.scalar(mark, rows.column("mark").type))).as_py():
            raise Undecodable("it has more or fewer bytes than its schema says")
        return rows.column("body")

    @staticmethod
    def _empty_records(bodies: Sequence[bytes]) -> pa.Array:
        """Records whose fields have no bytes."""
        if any(bodies):
            raise Undecodable("it has bytes, but the fields of its record have none")
        return pa.array([{}] * len(bodies), pa.struct([]))


def _undecodable(what: str) -> BadBody:
    return BadBody("decode_error", f"the payload does not match its Avro schema: {what}")


def _insert_bad(
    faults: Sequence[str | None], others: Iterator[pa.RecordBatch | BadBody]
) -> Iterator[pa.RecordBatch | BadBody]:
    """Puts the bad bodies in their places among the `others`, which are the bodies without a fault."""
    run, left = 0, None
    for fault in (*faults, ""):
        if fault is None:
            run += 1
            continue
        while run:
            item = left if left is not None else next(others)
            left = None
            if isinstance(item, BadBody):
                run -= 1
            elif item.num_rows > run:
                item, left, run = item.slice(0, run), item.slice(run), 0
            else:
                run -= item.num_rows
            yield item
        if fault:
            yield _undecodable(fault)
