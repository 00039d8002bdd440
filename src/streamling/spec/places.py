"""Where the rows of a node come from or go to, and where the state is stored, as text without secrets."""

from __future__ import annotations

from streamling.spec.mask import mask_url
from streamling.spec.pipeline import NodeSpec
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import BackendType

# Fields of all connectors that name a place; the first one that is set is used.
_FIELDS = ("path", "topic", "url", "table", "table_name", "agg_table", "landing_table")
_STANDARD_OUTPUT = ("print",)


def place_of(node: NodeSpec) -> str | None:
    """Path, topic, table or address of a node, without secrets; None if it has none."""
    options = node.options
    values = {**options.__dict__, **(options.model_extra or {})}
    if isinstance(own := values.get("options"), dict):  # of a plugin
        values = {**own, **values}
    for name in _FIELDS:
        if isinstance(value := values.get(name), str) and value:
            schema = values.get("schema_") if name.endswith("table") else None
            return mask_url(f"{schema}.{value}" if isinstance(schema, str) else value)
    return "standard output" if node.type in _STANDARD_OUTPUT else None


def place_of_state(settings: Settings) -> str:
    """The file or database with the state."""
    backend = settings.state_backend
    match backend.backend_type:
        case BackendType.SQLITE:
            return backend.sqlite.database_path
        case BackendType.POSTGRES:
            return f"Postgres {backend.postgres.host}:{backend.postgres.port}/{backend.postgres.db}"
        case _:
            return "in memory"
