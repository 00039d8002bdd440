"""Decodes messages that are envelopes of Debezium to the rows inside of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamling.formats.bodies import BadBody, Decoder
from streamling.formats.envelope import AFTER, BEFORE, OPERATION, PAYLOAD
from streamling.plan.types import OPERATION_COLUMN

_LETTERS = pa.array(["c", "r", "u", "d"])
_OPERATIONS = pa.array(["i", "i", "u", "d"])
_DELETE = 3
_MEANINGS = {"t": " (truncate), which is no change of a row", "m": " (message), which is no change of a row"}


class EnvelopeDecoder:
    """Decodes messages with `inner`, whose rows are envelopes, to the rows inside of them and their operation."""

    def __init__(self, inner: Decoder) -> None:
        self._inner = inner

    def rows(self, bodies: Sequence[bytes]) -> Iterator[pa.RecordBatch | BadBody]:
        for item in self._inner.rows(bodies):
            if isinstance(item, BadBody):
                yield item
            else:
                yield from _rows(item)


def _rows(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | BadBody]:
    """The rows of envelopes; an envelope without a row is bad."""
    letters = batch.column(OPERATION)
    # The rows that an envelope may have, and which of them is its row.
    states = [batch.column(AFTER), batch.column(BEFORE)]
    wrapped: Any = 0
    if PAYLOAD in batch.schema.names and batch.column(PAYLOAD).null_count < batch.num_rows:
        payload = batch.column(PAYLOAD)
        inner = dict(zip(payload.type.names, payload.flatten(), strict=True))
        letters = pc.coalesce(inner[OPERATION], letters)
        states += [inner[AFTER], inner[BEFORE]]
        wrapped = 2 * np.asarray(payload.is_valid())
    operations = np.asarray(pc.index_in(letters, _LETTERS).fill_null(-1))
    choices = (operations == _DELETE) + wrapped
    present = np.stack([np.asarray(state.is_valid()) for state in states])
    good = (operations >= 0) & present[choices, np.arange(len(choices))]
    rows = _choose(states, choices)
    rows.append(_OPERATIONS.take(pa.array(np.maximum(operations, 0))))
    names = [*states[0].type.names, OPERATION_COLUMN]
    changes = pa.RecordBatch.from_arrays(rows, names=names)
    start = 0
    for bad in np.flatnonzero(~good).tolist():
        if bad > start:
            yield changes.slice(start, bad - start)
        yield _bad(letters[bad].as_py())
        start = bad + 1
    if start < len(choices):
        yield changes.slice(start)


def _choose(states: Sequence[pa.Array], choices: np.ndarray[Any, Any]) -> list[pa.Array]:
    """The columns of rows, each from the state that is chosen for it."""
    used = np.unique(choices).tolist()
    columns = [states[n].flatten() for n in used]
    if len(used) == 1:
        return list(columns[0])
    indexes = pa.array(np.searchsorted(used, choices) * len(choices) + np.arange(len(choices)))
    return [pa.concat_arrays(parts).take(indexes) for parts in zip(*columns, strict=True)]


def _bad(letter: str | None) -> BadBody:
    if letter is None:
        return BadBody("decode_error", f"the payload is not an envelope of Debezium: it has no '{OPERATION}'")
    if letter in _LETTERS.to_pylist():
        missing = BEFORE if letter == "d" else AFTER
        return BadBody("decode_error", f"the operation of the envelope is '{letter}', but '{missing}' is null")
    text = f"the operation of the envelope is {letter!r}{_MEANINGS.get(letter, '')}; it must be c, r, u or d"
    return BadBody("unknown_operation", text)
