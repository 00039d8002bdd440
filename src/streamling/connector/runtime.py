"""What a run shares with its nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
