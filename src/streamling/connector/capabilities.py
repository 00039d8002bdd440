"""What the engine may know of a connector without looking at its name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from streamling.spec.pipeline.options import NodeOptions


class Placement(Enum):
    """Where a processor or a writer runs: in the driver only, or wherever the rows are."""

    DRIVER = "driver"
    ANY = "any"


class Guarantee(Enum):
    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """What a batching node waits for: so many rows, or so many seconds. None = no such limit."""

    rows: int | None
    seconds: float | None


def batch_policy(options: NodeOptions) -> BatchPolicy | None:
    """What `batch_size` and `batch_flush_interval` of a node ask for; None if neither is set."""
    rows, interval = options.batch_limits
    if rows is None and interval is None:
        return None
    return BatchPolicy(rows, interval.total_seconds() if interval is not None else None)


@dataclass(frozen=True, slots=True)
class SourceCapabilities:
    replayable: bool = True
    """A slice can be read again. If not, the source offers rows instead of slices and keeps its own position."""
    shared: bool = False
    """The processes that run the pipeline divide its state keys among themselves (`join`, `assigned`, `own`)."""
    takes_back: bool = False
    """Its readers report how far they have got, and `take_back` shortens a slice that turned out too large."""
    phased: bool = False
    """`committed` decides what is read next. A preview calls it, too: without a consumer group it must change nothing
    outside of the process."""
    max_readers: int | None = None
    """How many parts are read in parallel, at most; None = one task per part."""
    batch: BatchPolicy | None = None


@dataclass(frozen=True, slots=True)
class TransformCapabilities:
    placement: Placement = Placement.ANY
    deterministic: bool = False
    """The same input gives the same output, and repeating it does no harm: the engine may repeat its work."""
    one_to_one: bool = False
    """Every row that is not rejected gives exactly one row."""
    batch: BatchPolicy | None = None
    same_rows: bool = False
    """An interrupted epoch is replayed with the same rows, also if no sink has it: its requests have keys by which
    another system recognises them."""


@dataclass(frozen=True, slots=True)
class SinkCapabilities:
    placement: Placement = Placement.DRIVER
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    transactional: bool = False
    """Between `write` and `commit` or `abort` it holds a transaction or locks: nothing slow may happen meanwhile.
    `write` and `commit` of an epoch come from one thread."""
    discards: bool = False
    """Keeps nothing: rows of large epochs are computed and counted where they are, and no writer sees them."""
    batch: BatchPolicy | None = None
    record_limit: int | None = None
    """The run ends once so many rows are written; None = the limit of the application settings."""
    observer: bool = False
    """Only watches: it has no record limit."""
    same_rows: bool = False
    """As in `TransformCapabilities`."""
    remark: str = ""
    """What `plan` adds to the guarantee."""

    def __post_init__(self) -> None:
        if self.transactional and self.placement is Placement.ANY:
            raise ValueError("a transaction is held by one writer: a transactional sink stays in the driver")
