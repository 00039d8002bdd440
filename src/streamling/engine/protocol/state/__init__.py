"""The state backends, which store the positions of sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from streamling.engine.protocol.state.memory import MemoryState
from streamling.engine.protocol.state.postgres import PostgresState
from streamling.engine.protocol.state.sqlite import SqliteState
from streamling.engine.protocol.state.store import StateStore, claim, generation, reset
from streamling.spec.settings.blocks import BackendType

if TYPE_CHECKING:
    from streamling.spec.settings import Settings

__all__ = ["MemoryState", "PostgresState", "SqliteState", "StateStore", "claim", "generation", "open_state", "reset"]


def open_state(settings: Settings) -> StateStore:
    """The store that the settings choose, bound to the application id."""
    backend = settings.state_backend
    match backend.backend_type:
        case BackendType.IN_MEMORY:
            return MemoryState()
        case BackendType.SQLITE:
            path = Path(backend.sqlite.database_path)
            return SqliteState(path, settings.application_id, backend.sqlite.state_table_name)
        case BackendType.POSTGRES:
            return PostgresState(backend.postgres, settings.application_id)
