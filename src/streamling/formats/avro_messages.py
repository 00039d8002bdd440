"""Avro bodies of messages, many at once, as rows of the schema that is read with."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamling.formats.arrow import arrow_type
from streamling.formats.avro import record_of, type_of
from streamling.formats.avro_blocks import MARK_BYTES, Undecodable, container, heading, marked, read_rows
from streamling.formats.avro_faults import fault_finder
from streamling.formats.avro_names import has_unions
from streamling.formats.avro_resolution import Resolution, Unresolvable
from streamling.formats.avro_values import readable
from streamling.formats.bodies import BadBody, chunks

Json = Any


class BodyDecoder:
    """Decodes bodies that one schema was written with. Both schemas are `expanded`."""

    def __init__(self, writer: Json, reader: Json, *, by_name: bool = False) -> None:
        self._readable = readable(writer)
        self._empty = not record_of(self._readable)["fields"]
        file = marked("body", self._readable)
        self._heading, self._unions = heading(file), file if has_unions(file) else None
        record = record_of(reader)
        self._fields = [pa.field(f["name"], arrow_type(type_of(f["type"])), nullable=True) for f in record["fields"]]
        try:
            self._columns = Resolution(by_name).record(record_of(writer), record)
        except Unresolvable as error:
            self._unresolvable: str | None = str(error)
        else:
            self._unresolvable = None

    def rows(self, bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch | BadBody]:
        if self._unresolvable is not None:
            for _ in bodies:
                yield BadBody("schema_mismatch", self._unresolvable)
            return
        for chunk in chunks(bodies):
            yield from self._chunk(chunk)

    def _chunk(self, bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch | BadBody]:
        try:
            structs = self._decoded(bodies)
        except Undecodable:
            faults = [self._fault(body) for body in bodies]
            good = [body for body, fault in zip(bodies, faults, strict=True) if fault is None]
            yield from _between(faults, self._halves(good) if good else iter(()))
            return
        yield from self._resolved(structs)

    def _halves(self, bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch | BadBody]:
        """Bodies in which no fault was found. Those that the reader rejects all the same are found by halving."""
        try:
            structs = self._decoded(bodies)
        except Undecodable as error:
            if len(bodies) == 1:
                yield _undecodable(str(error))
                return
            middle = len(bodies) // 2
            yield from self._halves(bodies[:middle])
            yield from self._halves(bodies[middle:])
            return
        yield from self._resolved(structs)

    @cached_property
    def _fault(self) -> Callable[[bytes], str | None]:
        return fault_finder(self._readable)

    def _resolved(self, structs: pa.Array) -> Iterator[pa.RecordBatch | BadBody]:
        try:
            if structs.null_count:
                raise pa.ArrowInvalid("the payload is null, not a record")
            if self._fields:
                yield pa.RecordBatch.from_arrays(self._columns(structs), schema=pa.schema(self._fields))
            else:  # made of no arrays, a batch would have no rows either
                yield pa.RecordBatch.from_struct_array(self._nothing([b""] * len(structs)))
        except pa.ArrowInvalid as error:
            if len(structs) == 1:
                yield BadBody("schema_mismatch", str(error))
                return
            middle = len(structs) // 2
            for start, end in ((0, middle), (middle, len(structs))):
                # Copied, because arrays of values do not know which part of them a slice is.
                yield from self._resolved(structs.take(pa.arange(start, end)))

    def _decoded(self, bodies: Sequence[bytes]) -> pa.Array:
        """Bodies as structs. Raises Undecodable if one of them is not of the schema.

        A mark stands behind each: a body that is longer or shorter than its record cannot shift its neighbours.
        """
        if self._empty:
            return self._nothing(bodies)
        mark = secrets.token_bytes(MARK_BYTES)
        content = mark.join((*bodies, b""))
        found = read_rows(container(self._heading, len(bodies), content), len(bodies), self._unions)
        if not pc.all(pc.equal(found.column("mark"), pa.scalar(mark, found.column("mark").type))).as_py():
            raise Undecodable("its bytes are more or fewer than the schema says")
        return found.column("body")

    @staticmethod
    def _nothing(bodies: Sequence[bytes]) -> pa.Array:
        """Records without anything to be written in them."""
        if any(bodies):
            raise Undecodable("it has bytes, and its record has none")
        return pa.array([{}] * len(bodies), pa.struct([]))


def _undecodable(what: str) -> BadBody:
    return BadBody("decode_error", f"the payload is not of its Avro schema: {what}")


def _between(
    faults: Sequence[str | None], others: Iterator[pa.RecordBatch | BadBody]
) -> Iterator[pa.RecordBatch | BadBody]:
    """Bad bodies in their places among the `others`, which are the bodies without a fault."""
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
