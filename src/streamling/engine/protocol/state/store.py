"""The state backend: a small key/value store that alone decides where a run starts.

A store is bound to one namespace, the application id. Values are JSON. The one write that matters is
`exchange`: all or nothing, and only if what it builds on is still there. That is what keeps a stale
owner, a process that was suspended and wakes up late, from moving anything.
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
PENDING_PREFIX = "__pending:"
PIPELINE_KEY = "__pipeline"
# State errors may pass within this time; then the run ends and a supervisor starts it again.
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
    """The identity of this namespace, made when it is first used."""
    while True:
        known = store.get(GENERATION_KEY)
        if isinstance(known, str):
            return known
        store.exchange({GENERATION_KEY: None}, {GENERATION_KEY: secrets.token_hex(8)})


def claim(store: StateStore, pipeline: Path | PipelineText) -> str | None:
    """Note which pipeline file uses the namespace; returns the file that used it before, if it was another one."""
    known = store.get(PIPELINE_KEY)
    own = str(pipeline.absolute() if isinstance(pipeline, Path) else pipeline)
    if known != own:
        store.put({PIPELINE_KEY: own})
    return known if isinstance(known, str) and known != own else None


def reset(store: StateStore) -> None:
    """Forget everything. The next start makes a new generation, so no ledger entry of before matches."""
    store.clear()


def patiently(action: Callable[[], Result]) -> Result:
    """Ask a state that is open. Tried on while stopping too: what the sinks have must still be recorded."""
    return retry(action, what="state backend", stopping=lambda: False, budget_s=_BUDGET_S)
