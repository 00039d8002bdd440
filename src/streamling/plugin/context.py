"""What an instance of a plugin gets: its name, its input columns, state, metrics, a logger."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from streamling.connector import Json, KeyValues
from streamling.errors import STATE_UNREADABLE, UserError
from streamling.telemetry.metrics import Metrics, Recording, Tags

if TYPE_CHECKING:
    import pyarrow as pa


OUTPUT_ROWS = "output_rows"
"""The count of the rows that a node outputs."""


class State:
    """Values that survive a restart. `get` and `put` have a single value, which belongs to the node; other values have
    a key under a prefix, which is the name of the node unless `set_prefix` changes it."""

    def __init__(self, scope: str, store: Callable[[], KeyValues]) -> None:
        self._scope = scope
        self._prefix = scope
        self._store = store

    def get(self) -> Json:
        """The node's value, None if there is none."""
        return self._store().get(self._check_key(self._scope))

    def put(self, value: Json) -> None:
        self._put(self._scope, value)

    def remove(self) -> None:
        self._store().remove([self._check_key(self._scope)])

    def get_kv(self, key: str) -> Json:
        return self._store().get(self._key(key))

    def put_kv(self, key: str, value: Json) -> None:
        self._put(self._key(key), value)

    def remove_kv(self, key: str) -> None:
        self._store().remove([self._key(key)])

    def set_prefix(self, prefix: str) -> None:
        """Set the prefix of the keys of `get_kv` and the like; if it is empty, they belong to the whole application."""
        self._prefix = prefix

    def clear(self) -> None:
        """Remove the node's value and all keys under its name."""
        store = self._store()
        own = f"{self._check_key(self._scope)}:"
        store.remove([key for key in store.items() if key == self._scope or key.startswith(own)])

    def _key(self, key: str) -> str:
        return self._check_key(f"{self._prefix}:{key}" if self._prefix else key)

    def _put(self, key: str, value: Json) -> None:
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise UserError(STATE_UNREADABLE, f"the value for the state key '{key}' is not JSON: {error}") from error
        self._store().put({self._check_key(key): value})

    @staticmethod
    def _check_key(key: str) -> str:
        if key.startswith("__"):
            message = f"the state key '{key}' begins with two underscores, which is reserved"
            raise UserError(STATE_UNREADABLE, message, hint="choose another key, or another name for the node")
        return key


class Recorder:
    """Metrics of one node. Names get the prefix `streamling_`, series the node's labels."""

    def __init__(
        self,
        metrics: Recording,
        labels: Mapping[str, str],
        set_labels: Callable[[Mapping[str, str]], object] = lambda labels: None,
    ) -> None:
        """`set_labels` is told when the labels change."""
        self._metrics = metrics
        self._set_labels = set_labels
        self.labels = dict(labels)

    def use_labels(self, labels: Mapping[str, str]) -> None:
        self.labels = dict(labels)
        self._set_labels(self.labels)

    def record_count(self, name: str, value: float, tags: Tags | None = None) -> None:
        """Add to a count. `output_rows` is ignored: the runtime counts every row itself."""
        if name != OUTPUT_ROWS:
            self._metrics.count(name, value, self.labels, tags)

    def record_gauge(self, name: str, value: float, tags: Tags | None = None) -> None:
        self._metrics.gauge(name, value, self.labels, tags)

    def record_latency(self, name: str, value: float | timedelta, tags: Tags | None = None) -> None:
        """Milliseconds, or a duration."""
        milliseconds = value.total_seconds() * 1000 if isinstance(value, timedelta) else value
        self._metrics.latency(name, milliseconds, self.labels, tags)

    record_count_w_tags = record_count
    record_gauge_w_tags = record_gauge
    record_latency_w_tags = record_latency


class _MemoryState:
    """State that lives as long as the context: for plugins that are tried without a run."""

    def __init__(self) -> None:
        self._values: dict[str, Json] = {}

    def items(self) -> dict[str, Json]:
        return dict(self._values)

    def get(self, key: str) -> Json:
        return self._values.get(key)

    def put(self, values: Mapping[str, Json]) -> None:
        self._values.update(json.loads(json.dumps(dict(values))))

    def remove(self, keys: Collection[str]) -> None:
        for key in keys:
            self._values.pop(key, None)


class PluginContext:
    """One instance's view of the run. Made without a run, it keeps state and metrics in memory, for tests.

    reference_name     the node's name, in lower case
    input_schema       the columns a transform or sink gets, `_gs_op` included; None for sources
    partition_index, partition_count   0 and 1 unless the plugin is partitioned
    state, shared_state   of the instance, and of all instances of the node; the same unless the plugin is partitioned
    """

    def __init__(
        self,
        reference_name: str = "node",
        *,
        application_id: str = "local_app_v1",
        input_schema: pa.Schema | None = None,
        partition_index: int = 0,
        partition_count: int = 1,
        partitioned: bool = False,
        store: Callable[[], KeyValues] | None = None,
        metrics: Recorder | None = None,
    ) -> None:
        self.reference_name = reference_name
        self.application_id = application_id
        self.input_schema = input_schema
        self.partition_index = partition_index
        self.partition_count = partition_count
        if store is None:
            memory = _MemoryState()
            store = lambda: memory  # noqa: E731
        self.shared_state = State(reference_name, store)
        self.state = State(f"{reference_name}[{partition_index}]", store) if partitioned else self.shared_state
        self.metrics = metrics or Recorder(Metrics(), {"id": reference_name})
        self.logger = logging.getLogger(f"streamling.plugin.{reference_name}")
