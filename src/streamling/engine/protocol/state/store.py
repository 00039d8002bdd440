"""The state backend: a small key/value store that alone decides where a run starts.

A store is bound to one namespace, the application id. Values are JSON. The write that matters is `exchange`, a
compare-and-swap of several keys. It keeps a stale owner, such as a process that was suspended and wakes up late, from
moving positions.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from streamling.connector import Json
from streamling.retry import retry
from streamling.spec.pipeline import PipelineText

Result = TypeVar("Result")

GENERATION_KEY = "__generation"
EPOCH_KEY = "__epoch"
LOOSE_KEY = "__loose_epoch"
PENDING_PREFIX = "__pending:"
PIPELINE_KEY = "__pipeline"
SINKS_KEY = "__sinks"
# Errors of the state are retried for this long; then the run ends, and a supervisor can start it again.
_BUDGET_S = 60.0


class StateStore(Protocol):
    """Get, put, remove, clear, and the conditional exchange, within one namespace."""

    durable: bool
    """False if nothing survives the process."""

    def items(self) -> dict[str, Json]:
        """Everything in the namespace, read at one instant."""

    def get(self, key: str) -> Json: ...

    def put(self, values: Mapping[str, Json]) -> None: ...

    def remove(self, keys: Collection[str]) -> None: ...

    def clear(self) -> None: ...

    def exchange(self, expected: Mapping[str, Json], values: Mapping[str, Json], removed: Collection[str] = ()) -> bool:
        """In one transaction: if every expected key holds exactly that value (None = absent), put and remove.

        Returns False, having changed nothing, if one does not.
        """

    def close(self) -> None: ...


def generation(store: StateStore) -> str:
    """The identity of this namespace, created when it is first used."""
    while True:
        stored = store.get(GENERATION_KEY)
        if isinstance(stored, str):
            return stored
        store.exchange({GENERATION_KEY: None}, {GENERATION_KEY: secrets.token_hex(8)})


def claim(store: StateStore, pipeline: Path | PipelineText) -> str | None:
    """Store which pipeline file uses the namespace; returns the file that used it before, if it was another one."""
    stored = store.get(PIPELINE_KEY)
    own = str(pipeline.absolute() if isinstance(pipeline, Path) else pipeline)
    if stored != own:
        store.put({PIPELINE_KEY: own})
    return stored if isinstance(stored, str) and stored != own else None


def reset(store: StateStore) -> None:
    """Delete everything. The next start creates a new generation, so no earlier ledger entry matches."""
    store.clear()


def ask_state(
    action: Callable[[], Result], note_trouble: Callable[[str | None], object] = lambda trouble: None
) -> Result:
    """Call an open state store, with retries, even while stopping: what the sinks have must still be recorded."""
    return retry(action, what="state backend", budget_s=_BUDGET_S, on_trouble=note_trouble)
