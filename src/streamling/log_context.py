"""Fields that every log line of a piece of work carries: the node and the epoch. Only JSON logs show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_fields: ContextVar[Mapping[str, object]] = ContextVar("log fields")


@contextmanager
def log_fields(**fields: object) -> Iterator[None]:
    """Add fields to the lines that this thread logs in the block."""
    token = _fields.set({**current_fields(), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


def current_fields() -> Mapping[str, object]:
    """The fields of this thread now."""
    return _fields.get({})
