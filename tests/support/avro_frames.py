"""Avro messages as producers write them."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro

from streamling.dev.topics import Message


def framed(id_: int, schema: str, row: Any, operation: str | None = None, key: bytes | None = None) -> Message:
    """A message framed with the id of its schema; `operation` goes into the header."""
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(json.loads(schema)), row)
    headers = () if operation is None else (("dbz.op", operation.encode()),)
    return Message(b"\0" + id_.to_bytes(4) + content.getvalue(), key, headers)
