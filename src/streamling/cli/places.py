"""Where the rows of a node come from or go to, and where positions are, in words that may be shown."""

from __future__ import annotations

from streamling.spec.pipeline import NodeSpec
from streamling.spec.secret import mask_url
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import BackendType

# The fields that say where, in connectors of all kinds; the first that is set counts.
_FIELDS = ("path", "topic", "url", "table", "table_name", "agg_table", "landing_table")
_STANDARD_OUTPUT = ("print",)


def place_of(node: NodeSpec) -> str | None:
    """Path, topic, table or address of a node, without secrets; None if it has none."""
    options = node.options
    given = {**options.__dict__, **(options.model_extra or {})}
    if isinstance(own := given.get("options"), dict):  # of a plugin
        given = {**own, **given}
    for name in _FIELDS:
        if isinstance(value := given.get(name), str) and value:
            schema = given.get("schema_") if name.endswith("table") else None
            return mask_url(f"{schema}.{value}" if isinstance(schema, str) else value)
    return "standard output" if node.type in _STANDARD_OUTPUT else None


def place_of_state(settings: Settings) -> str:
    """The file or database with the positions."""
    backend = settings.state_backend
    match backend.backend_type:
        case BackendType.SQLITE:
            return backend.sqlite.database_path
        case BackendType.POSTGRES:
            return f"Postgres {backend.postgres.host}:{backend.postgres.port}/{backend.postgres.db}"
        case _:
            return "in memory"
