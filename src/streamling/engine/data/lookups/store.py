"""Snapshots of lookups on disk, next to the state: a replay after a crash needs the rows that the epoch has seen."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from streamling.disk import safe_name, sync_directory
from streamling.engine.data.lookups.snapshots import Snapshot
from streamling.spec.settings.blocks import BackendType

if TYPE_CHECKING:
    from streamling.spec.settings import Settings

log = logging.getLogger(__name__)

# Another process of the application may have stored a snapshot for an epoch that it records next.
_LEAST_AGE_S = 600.0


def snapshot_directory(settings: Settings) -> Path | None:
    """Where the snapshots of an application are; None if its state does not survive the process."""
    backend = settings.state_backend
    match backend.backend_type:
        case BackendType.SQLITE:
            state = Path(backend.sqlite.database_path)
            return state.with_name(f"{state.name}-lookups") / safe_name(settings.application_id)
        case BackendType.POSTGRES:
            return Path("state-lookups") / safe_name(settings.application_id)
    return None


class SnapshotStore:
    """One file per version, in a directory per lookup. Raises OSError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def save(self, ref: str, snapshot: Snapshot) -> None:
        """On return the snapshot survives a power failure."""
        import pyarrow as pa

        path = self._path(ref, snapshot.version)
        if path.exists():
            os.utime(path)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with unfinished.open("wb") as file:
            with pa.ipc.new_file(file, snapshot.table.schema, options=options) as writer:
                writer.write_table(snapshot.table)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        sync_directory(path.parent)

    def load(self, ref: str, version: str, key: tuple[str, ...]) -> Snapshot | None:
        """None if it is not there, or not intact."""
        import pyarrow as pa

        path = self._path(ref, version)
        try:
            with pa.OSFile(str(path)) as file:
                snapshot = Snapshot(pa.ipc.open_file(file).read_all().combine_chunks(), key)
        except (OSError, pa.ArrowInvalid):
            return None
        return snapshot if snapshot.version == version else None

    def prune(self, ref: str, keep: Collection[str]) -> None:
        """Remove the other versions, except those stored just now."""
        for path in self._path(ref, "").parent.iterdir():
            if path.stem not in keep and time.time() - path.stat().st_mtime > _LEAST_AGE_S:
                path.unlink(missing_ok=True)

    def _path(self, ref: str, version: str) -> Path:
        return self._directory / safe_name(ref) / f"{version}.arrow"
