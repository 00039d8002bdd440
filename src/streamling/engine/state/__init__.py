"""Where positions are kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from streamling.engine.state.memory import MemoryState
from streamling.engine.state.sqlite import SqliteState
from streamling.engine.state.store import StateStore, claim, generation, reset
from streamling.errors import STATE_UNREADABLE, UserError

if TYPE_CHECKING:
    from streamling.spec.settings import Settings

__all__ = ["MemoryState", "SqliteState", "StateStore", "claim", "generation", "open_state", "reset"]


def open_state(settings: Settings) -> StateStore:
    """The store the settings name, bound to the application id."""
    backend = settings.state_backend
    match str(backend.backend_type.value).lower():
        case "inmemory":
            return MemoryState()
        case "sqlite":
            path = Path(backend.sqlite.database_path)
            return SqliteState(path, settings.application_id, backend.sqlite.state_table_name)
        case other:
            raise UserError(
                STATE_UNREADABLE, f"state backend {other} is not available yet", hint="use Sqlite or InMemory"
            )
