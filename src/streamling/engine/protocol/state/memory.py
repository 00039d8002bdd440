"""State in memory: it is lost when the process ends."""

from __future__ import annotations

import copy
import threading
from collections.abc import Collection, Mapping

from streamling.connector import Json


class MemoryState:
    durable = False

    def __init__(self) -> None:
        self._values: dict[str, Json] = {}
        self._lock = threading.Lock()

    def items(self) -> dict[str, Json]:
        with self._lock:
            return copy.deepcopy(self._values)

    def get(self, key: str) -> Json:
        with self._lock:
            return copy.deepcopy(self._values.get(key))

    def put(self, values: Mapping[str, Json]) -> None:
        self.exchange({}, values)

    def remove(self, keys: Collection[str]) -> None:
        self.exchange({}, {}, keys)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()

    def exchange(self, expected: Mapping[str, Json], values: Mapping[str, Json], removed: Collection[str] = ()) -> bool:
        with self._lock:
            if any(self._values.get(key) != value for key, value in expected.items()):
                return False
            for key in removed:
                self._values.pop(key, None)
            self._values.update(copy.deepcopy(dict(values)))
            return True

    def close(self) -> None:
        return
