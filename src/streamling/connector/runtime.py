"""What a run shares with its nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from streamling.connector.slices import Json
from streamling.telemetry.metrics import Metrics


class KeyValues(Protocol):
    """The state backend as nodes may use it: JSON values by key. Keys that begin with `__` are the engine's."""

    def items(self) -> dict[str, Json]: ...

    def get(self, key: str) -> Json: ...

    def put(self, values: Mapping[str, Json]) -> None: ...

    def remove(self, keys: Collection[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class Runtime:
    application: str
    state: KeyValues
    metrics: Metrics
    generation: str = ""
    """Identity of the state: processes with the same one share their positions."""
    ends_retries: Callable[[], bool] = lambda: False
    """For a node of the driver that retries by itself: whether it must give up, because the run stops or has failed."""
    pause: Callable[[float], object] = time.sleep
    """Sleeps so many seconds between two attempts, or until retries end."""
    advance: Callable[[], object] = lambda: None
    """For a node of the driver whose calls may take minutes: says that a part of the work is done, such as a request
    that was answered. Without that, a call that takes longer than `progress_deadline_secs` counts as stuck."""
    set_labels: Callable[[Mapping[str, str]], object] = lambda labels: None
    """For a node that has labels of its own: sets those of all its metrics."""
