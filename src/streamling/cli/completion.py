"""Completions for the shell. If something fails, there are no completions, and no error message."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SUFFIXES = (".yaml", ".yml", ".json")


def pipeline_files(incomplete: str) -> Iterator[str]:
    """Files that may contain a pipeline, and directories."""
    directory = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    prefix = incomplete[: incomplete.rfind("/") + 1]
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
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
    """The keys of the application that the command line names so far, or of the default one."""
    from streamling.engine.protocol.state import open_state
    from streamling.spec.settings import load_settings
    from streamling.spec.settings.blocks import BackendType

    arguments = ctx.params if ctx is not None else {}
    try:
        settings = load_settings(config=arguments.get("config"), environ=os.environ, cwd=Path.cwd()).settings
        if arguments.get("application"):
            settings = settings.model_copy(update={"application_id": arguments["application"]})
        backend = settings.state_backend
        if backend.backend_type is BackendType.SQLITE and not Path(backend.sqlite.database_path).exists():
            return []  # opening it would create it
        if backend.backend_type is BackendType.POSTGRES:
            return []  # a network request takes too long between two key strokes
        store = open_state(settings)
        try:
            return sorted(store.items())
        finally:
            store.close()
    except Exception:  # a stack trace would destroy the command line
        return []


def _kinds(role: str) -> list[str]:
    from streamling.connector.kinds import built_in_kinds

    # Without plugins: loading them would run their code between two key strokes.
    return sorted(name for known, name in built_in_kinds() if known.value == role)
