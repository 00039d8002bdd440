"""What authors of plugins write against: base classes with harmless defaults, errors, placements.

Deriving from a base class is not required: methods are looked up by name. All of them may be plain or `async`; those of
one instance never run at the same time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from streamling.plugin.context import PluginContext, Recorder

if TYPE_CHECKING:
    import pyarrow as pa


class PluginError(Exception):
    """An error of a plugin with what the runtime should know about it.

    retriable   a retry may succeed; the runtime says so, but does not retry
    user        the author of the pipeline can fix it
    rows        row numbers of the batch, from 0, and what is wrong with each. Raised from `process_batch`, it means
                that the plugin has done nothing with the batch; `on_error` decides what happens to the rows
    """

    def __init__(
        self, message: str, retriable: bool = False, user: bool = False, rows: Mapping[int, str] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.retriable = retriable
        self.user = user
        self.rows = dict(rows) if rows is not None else None


class _NodePlugin:
    """What source, transform and sink have in common.

    Order of calls: constructor, `initialize`, the data methods and hooks, `terminate`. In validation `terminate`
    follows the constructor directly.
    """

    sample_options: ClassVar[Mapping[str, str]] = {}
    """Required options, with values for a first pipeline; `streamling init` writes them."""

    def __init__(self, context: PluginContext, options: dict[str, str]) -> None:
        """Check the options; do not touch the outside world. An exception is a configuration error of the node."""
        self.context = context
        self.options = options
        self._terminated = False

    def initialize(self) -> Awaitable[None] | None:
        """Open connections."""
        return None

    def process_checkpoint_finalizer(self, epoch: int) -> Awaitable[None] | None:
        """Every sink has the epoch and all earlier ones. Must be idempotent and quick; not called for every epoch."""
        return None

    def is_running(self) -> Awaitable[bool] | bool:
        """False: the source has ended."""
        return not self._terminated

    def terminate(self) -> Awaitable[None] | None:
        """Close. Called once, also if `initialize` never was."""
        self._terminated = True
        return None

    def labels(self) -> Awaitable[dict[str, str]] | dict[str, str]:
        """Labels of all metrics of the node."""
        return {}


class SourcePlugin(_NodePlugin):
    """Base of sources: `output_schema` and `generate_batch` remain to be written."""

    bounded = False
    """True for a source that ends by itself: a stop then still delivers what was read."""

    def process_checkpoint_marker(self, epoch: int) -> Awaitable[None] | None:
        """Everything generated so far belongs to this epoch or an earlier one: note the position."""
        return None


class TransformPlugin(_NodePlugin):
    """Base of transforms: `output_schema` and `process_batch` remain to be written."""

    stateless = False
    """True for a transform that processes every batch by itself, remembers nothing, and gets no markers: it runs where
    the rows are, in any number of processes, each with its own instance."""

    deterministic = True
    """For a stateless transform: the same input gives the same output. False if it calls another system: its results
    are then kept, and it is not called again when a sink is retried."""

    def process_checkpoint_marker(self, epoch: int) -> Awaitable[pa.RecordBatch | None] | pa.RecordBatch | None:
        """No more rows in this epoch. Rows that were held back are returned, and go downstream before the marker."""
        return None


class SinkPlugin(_NodePlugin):
    """Base of sinks: `process_batch` remains to be written."""

    def process_checkpoint_marker(self, epoch: int) -> Awaitable[None] | None:
        """Return only when everything before is durable."""
        return None


class PreprocessorPlugin:
    """Base of preprocessors: `preprocess_topology(text) -> text` remains to be written."""

    def __init__(self, context: PluginContext, options: dict[str, str]) -> None:
        self.context = context
        self.options = options


class SideOutputPlugin:
    """Base of side outputs: `process_batch(batch)` remains to be written. There is one instance per source."""

    def __init__(self, source: str, schema: pa.Schema, options: dict[str, str], metrics: Recorder) -> None:
        self.source = source
        self.schema = schema
        self.options = options
        self.metrics = metrics

    def shutdown(self) -> Awaitable[None] | None:
        """The run is over. Errors are only warnings."""
        return None


@dataclass(frozen=True, slots=True)
class ByPrimaryKey:
    """Rows of one primary key always go to the same instance, in order."""


@dataclass(frozen=True, slots=True, init=False)
class ByColumns:
    """Rows with the same values in these columns always go to the same instance, in order."""

    columns: tuple[str, ...]

    def __init__(self, *columns: str) -> None:
        object.__setattr__(self, "columns", columns)


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Rows go to the instances in turn."""


Spread = ByPrimaryKey | ByColumns | RoundRobin


@dataclass(frozen=True, slots=True)
class Description:
    """What the class method `describe(options, input_schema)` of a partitioned plugin says before any instance exists.

    output_schema   an Arrow schema; None for sinks
    placement       how rows are distributed to the instances of a transform or sink
    minimum, maximum, preferred   how many instances there may be; `preferred` counts for sources only
    bounded         a source that ends by itself: a stop then still delivers what was read
    """

    output_schema: pa.Schema | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    placement: Spread = RoundRobin()
    minimum: int = 1
    maximum: int | None = None
    preferred: int | None = None
    bounded: bool = False
