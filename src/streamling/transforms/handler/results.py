"""Answers as rows: what fits the output columns, and what is wrong with the rest."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from streamling.clients.http import quote_text
from streamling.clients.http_post import Refused
from streamling.connector import BadRow
from streamling.errors import HTTP_FAILED, UserError
from streamling.formats.json import json_row
from streamling.formats.json_answers import AnswerDecoder, BadElement
from streamling.formats.json_arrays import split_array
from streamling.formats.json_encoding import key_texts, plain_texts
from streamling.plan.types import OPERATION_COLUMN
from streamling.transforms.handler.exchanges import Exchange

if TYPE_CHECKING:
    from streamling.transforms.handler.processor import HandlerProcessor

# Answers with one row that are decoded together.
_TOGETHER = 1000
# With slow answers fewer: rows that are given tell the driver that a task of minutes goes on.
_FLUSH_S = 10.0
_NOT_JSON = "decode_error"


class Results:
    def __init__(self, options: HandlerProcessor) -> None:
        self._options = options
        self._decoder = AnswerDecoder(options.schema, options.version)
        self._waiting: list[tuple[pa.RecordBatch, bytes]] = []
        """Rows and answers of one-row mode that are not decoded yet."""
        self._flushed = time.monotonic()

    def add(self, exchanges: Sequence[Exchange]) -> Iterator[pa.RecordBatch | BadRow]:
        for rows, answer in ((exchange.rows, exchange.answer) for exchange in exchanges):
            if isinstance(answer, bytes) and self._options.one_row:
                self._waiting.append((rows, answer))
                if len(self._waiting) >= _TOGETHER or time.monotonic() - self._flushed >= _FLUSH_S:
                    yield from self.flush()
                continue
            yield from self.flush()
            if isinstance(answer, str):
                yield BadRow("unknown_operation", answer, {}, row=json_row(rows, 0))
            elif isinstance(answer, Refused):
                cause = f"HTTP {answer.status}"
                yield BadRow("http_status", answer.message, {}, row=json_row(rows, 0), cause=cause)
            else:
                yield from self._decode_list(rows, answer)

    def flush(self) -> Iterator[pa.RecordBatch | BadRow]:
        """The rows of all answers so far."""
        self._flushed = time.monotonic()
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        operations = pa.concat_arrays([rows.column(OPERATION_COLUMN) for rows, _ in waiting])
        for item in self._decoder.rows([answer for _, answer in waiting], operations):
            if not isinstance(item, BadElement):
                yield item
                continue
            rows, answer = waiting[item.index]
            if item.reason == _NOT_JSON:
                yield from self._unusable(rows, answer, "a JSON object")
            else:
                yield self._mismatch(item, answer, json_row(rows, 0))

    def _decode_list(self, rows: pa.RecordBatch, answer: bytes) -> Iterator[pa.RecordBatch | BadRow]:
        try:
            elements = split_array(answer)
        except ValueError:
            yield from self._unusable(rows, answer, "a list of JSON objects")
            return
        items = list(self._decoder.rows(elements))
        if any(isinstance(item, BadElement) and item.reason == _NOT_JSON for item in items):
            yield from self._unusable(rows, answer, "a list of JSON objects")
            return
        for item in items:
            if isinstance(item, BadElement):
                element = elements[item.index]
                yield self._mismatch(item, element, self._find(rows, element))
            else:
                yield item

    def _unusable(self, rows: pa.RecordBatch, answer: bytes, expected: str) -> Iterator[BadRow]:
        """The rows of a request whose answer cannot be read. Raises UserError if the run does not tolerate it."""
        message = f"{self._subject}: the answer is not {expected}: {_quote(answer)}"
        if not self._options.tolerant:
            raise UserError(HTTP_FAILED, message, node=self._options.post.node)
        for index in range(rows.num_rows):
            yield BadRow("bad_answer", message, {}, row=json_row(rows, index))

    def _mismatch(self, element: BadElement, answer: bytes, row: object) -> BadRow:
        message = f"{self._subject}: in the answer, {element.message}: {_quote(answer)}"
        # Without a row of the request there is still the object of the answer.
        raw = answer if row is None else None
        return BadRow(element.reason, message, {}, row=row, raw=raw)  # type: ignore[arg-type]

    def _find(self, rows: pa.RecordBatch, element: bytes) -> object:
        """The row of a request that an object of its answer belongs to, by its key; None if that is not clear."""
        if rows.num_rows == 1:
            return json_row(rows, 0)
        key, schema = self._options.key, self._options.input_schema
        object_ = json.loads(element)
        values = object_.get("data") if self._options.version == 1 else object_
        if not key or not isinstance(values, dict) or any(values.get(name) is None for name in key):
            return None
        wanted = ":".join(_text(values[name]) for name in key)
        found = [index for index, text in enumerate(key_texts(rows, key, schema).to_pylist()) if text == wanted]
        return json_row(rows, found[0]) if len(found) == 1 else None

    @property
    def _subject(self) -> str:
        return self._options.post.described


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    text: str = plain_texts(pa.array([value]), None)[0].as_py() if not isinstance(value, dict | list) else str(value)
    return text


def _quote(answer: bytes) -> str:
    return quote_text(answer.decode(errors="replace")) or "it is empty"
