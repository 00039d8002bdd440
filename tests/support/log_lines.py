"""The lines of the log with the node and the epoch that they belong to."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from streamling.log_context import current_fields

Line = tuple[str, object, object]


@contextmanager
def log_lines(logger: str = "streamling") -> Iterator[list[Line]]:
    """Message, node and epoch of every line from now on, as a JSON log would have them."""
    lines: list[Line] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            fields = current_fields()
            lines.append((record.getMessage(), fields.get("node"), fields.get("epoch")))

    handler, log = Handler(), logging.getLogger(logger)
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
