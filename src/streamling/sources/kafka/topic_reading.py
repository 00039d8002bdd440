"""How a source reads its topic, as its options say."""

from __future__ import annotations

from dataclasses import dataclass

from streamling.connector import BatchPolicy


@dataclass(frozen=True, slots=True)
class TopicReading:
    """How a source reads its topic. `start` is earliest, latest or milliseconds; `on_missing` may also be fail."""

    node: str
    name: str
    topic: str
    group: str
    start: str
    on_missing: str
    metadata: bool
    tombstones: str
    first_fetch: float
    """Warn if no message has arrived after this many seconds."""
    readers: int | None = None
    """Most parts that are read in parallel; each is then a partition of the offer as a whole."""
    batch: BatchPolicy | None = None
