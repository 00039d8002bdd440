"""What a preview is asked for, and what it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from streamling.engine.preview.rows import Emit
from streamling.errors import StreamlingError
from streamling.plan.planned_node import PlannedNode
from streamling.spec.pipeline import NodeSpec

if TYPE_CHECKING:
    from streamling.plan.types import Schema

# What is left for a run without the nodes that have failed, so that the others can show some rows.
_LEAST_S = 3.0


class End(StrEnum):
    """Why a preview ended."""

    ROWS = "every node has its rows"
    INPUT = "end of input"
    CAUGHT_UP = "no more rows at the moment"
    LIMIT = "transforms with effects outside got as many rows as a preview gives them"
    TROUBLE = "a node waits for a system that does not answer"
    TIME = "time is up"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class LiveRows:
    """Receives rows while a preview runs, instead of the first rows at its end.

    start   called with the nodes, before their first row; again if a node was left out because it failed
    emit    called with rows
    failed  called with the error of a node that is left out from now on
    """

    start: Callable[[Sequence[PlannedNode]], object]
    emit: Emit
    failed: Callable[[StreamlingError], object]


@dataclass(frozen=True, slots=True)
class PreviewOptions:
    """`nodes`: which ones to show; empty = all. `seconds`: how long to read; None = until the sources have caught up,
    at most `DEFAULT_SECONDS`."""

    rows: int = 10
    seconds: float | None = None
    nodes: tuple[str, ...] = ()
    live: LiveRows | None = None

    def after(self, seconds: float) -> PreviewOptions:
        """The same for a run that begins this much later: a time that was set holds for all runs together."""
        if self.seconds is None:
            return self
        return replace(self, seconds=max(min(_LEAST_S, self.seconds), self.seconds - seconds))

    def shows(self, ref: str) -> bool:
        return not self.nodes or ref in (name.lower() for name in self.nodes)


@dataclass(frozen=True, slots=True)
class NodePreview:
    """What is shown of a node. Without `columns` it could not be planned."""

    spec: NodeSpec
    columns: Schema | None
    rows: Sequence[Mapping[str, Any]] = ()
    count: int = 0
    """How many rows it had while the preview ran; of a lookup, how many there are."""
    rejected: int = 0
    problem: str | None = None
    """Why there are no rows, or no more."""
    note: str | None = None
    """What a reader of the rows should know."""
