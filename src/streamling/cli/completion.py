"""What the shell offers behind the cursor. A completion that cannot be found is none: it never says why."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SUFFIXES = (".yaml", ".yml", ".json")


def pipeline_files(incomplete: str) -> Iterator[str]:
    """Files that may hold a pipeline, and directories on the way to one."""
    directory = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    prefix = incomplete[: incomplete.rfind("/") + 1]
    try:
        found = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in found:
        if not entry.name.startswith("."):
            if entry.is_dir():
                yield f"{prefix}{entry.name}/"
            elif entry.name.endswith(SUFFIXES):
                yield prefix + entry.name


def source_kinds() -> list[str]:
    return _kinds("source")


def transform_kinds() -> list[str]:
    return _kinds("transform")


def sink_kinds() -> list[str]:
    return _kinds("sink")


def dev_servers() -> list[str]:
    from streamling.dev.stack import SERVERS

    return list(SERVERS)


def error_codes() -> list[tuple[str, str]]:
    from streamling.errors import CONDITIONS

    return [(code, condition.explanation) for code, condition in sorted(CONDITIONS.items())]


def state_keys(ctx: Any) -> list[str]:
    """The keys of the application the command line so far speaks of."""
    from streamling.engine.protocol.state import open_state
    from streamling.spec.settings import load_settings
    from streamling.spec.settings.blocks import BackendType

    given = ctx.params if ctx is not None else {}
    try:
        settings = load_settings(config=given.get("config"), environ=os.environ, cwd=Path.cwd()).settings
        if given.get("application"):
            settings = settings.model_copy(update={"application_id": given["application"]})
        backend = settings.state_backend
        if backend.backend_type is BackendType.SQLITE and not Path(backend.sqlite.database_path).exists():
            return []  # opening would make it
        if backend.backend_type is BackendType.POSTGRES:
            return []  # nobody waits for a network between two key strokes
        store = open_state(settings)
        try:
            return sorted(store.items())
        finally:
            store.close()
    except Exception:  # nobody wants a stack trace between two words
        return []


def _kinds(role: str) -> list[str]:
    from streamling.connector.kinds import built_in_kinds

    # Loading plugins would run their code between two key strokes.
    return sorted(name for known, name in built_in_kinds() if known.value == role)
