"""Bodies of messages as they are: one column of text or bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from streamling.formats.arrow import arrow_type
from streamling.formats.bodies import BadBody, chunks
from streamling.plan.types import Field


class RawDecoder:
    """Each body is the value of one column. As text it must be UTF-8."""

    def __init__(self, field: Field) -> None:
        self._schema = pa.schema([pa.field(field.name, arrow_type(field.type))])

    def rows(self, bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch | BadBody]:
        for chunk in chunks(bodies):
            try:
                yield self._batch(chunk)
            except pa.ArrowInvalid:
                yield from self._each(chunk)

    def _batch(self, bodies: Sequence[bytes]) -> pa.RecordBatch:
        column = pa.array(bodies, pa.binary()).cast(self._schema.field(0).type)
        return pa.RecordBatch.from_arrays([column], schema=self._schema)

    def _each(self, bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch | BadBody]:
        good: list[bytes] = []
        for body in bodies:
            try:
                body.decode()
            except UnicodeDecodeError as error:
                if good:
                    yield self._batch(good)
                good = []
                yield BadBody("decode_error", f"the payload is not UTF-8: {error.reason} at byte {error.start}")
            else:
                good.append(body)
        if good:
            yield self._batch(good)
