"""What the admin API answers: one class per document. The OpenAPI document is made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamling.engine.protocol.epoch_times import EpochTimes
from streamling.engine.protocol.progress import Phase, Snapshot


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request was not answered."""

    error: str


@dataclass(frozen=True, slots=True)
class Liveness:
    """The process is alive."""

    alive: bool = True


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the pipeline has made progress, or had nothing to do, within its deadline. If not: which node waits, for
    what, and for how many seconds."""

    ready: bool
    phase: Phase
    node: str | None = None
    reason: str | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class FatalError:
    """The first error that has ended the run. `internal`: a bug in streamling. `retriable`: a restart may succeed."""

    node: str | None
    message: str
    internal: bool
    retriable: bool


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class PipelineNode:
    """A node of the plan, as `streamling plan --format json` prints it, with its place and its options."""

    name: str
    role: str
    type: str
    reads: list[str]
    asks: list[str]
    joins: list[str]
    primary_key: list[str]
    delivery: str | None
    runs: str
    columns: list[Column] | None
    place: str | None
    options: dict[str, Any]
    """Secrets are masked."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The graph of the pipeline: every node names those that it reads."""

    application_id: str
    file: str
    nodes: list[PipelineNode]


@dataclass(frozen=True, slots=True)
class RunProgress:
    """What the live table of `streamling run` shows."""

    application_id: str
    file: str
    places: dict[str, str]
    """Where the rows of a node come from or go to, by node."""
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Epochs:
    """The last hundred finalized epochs, the newest last, and where their time went, in milliseconds."""

    epochs: list[EpochTimes]


@dataclass(frozen=True, slots=True)
class State:
    """The stored positions, by state key."""

    application_id: str
    positions: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LetterCount:
    """The letters of a node with one reason and one status."""

    node: str
    reason_code: str
    status: str
    letters: int


@dataclass(frozen=True, slots=True)
class LetterLine:
    """A dead letter without its payload; `streamling dlq show` shows all of it."""

    id: str
    node: str
    stage: str
    reason_code: str
    reason_text: str
    place: str
    epoch: int
    timestamp: str
    status: str


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The dead letters of the pipeline. `complete`: all of them were counted; otherwise only the newest ones, because
    counting more would take too long. `letters` has the newest of those that were counted."""

    complete: bool
    counts: list[LetterCount]
    letters: list[LetterLine]
