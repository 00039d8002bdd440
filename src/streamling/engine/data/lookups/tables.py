"""All lookups of a run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from streamling.connector import Epoch, Lookup
from streamling.engine.data.lookups.snapshots import Snapshot
from streamling.engine.data.lookups.store import SnapshotStore
from streamling.engine.data.lookups.versions import LookupVersions
from streamling.engine.data.spark_rows import make_frame
from streamling.plan.planned_node import PlannedNode

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

# Rows go to Spark in partitions of about this size.
_PARTITION_BYTES = 8 << 20


class LookupTables:
    """Gives epochs their versions, and queries the rows of a version. One version per lookup and epoch."""

    def __init__(
        self, nodes: Sequence[PlannedNode], lookups: Mapping[str, Lookup], store: SnapshotStore | None = None
    ) -> None:
        """`store`: where snapshots are kept for replays; None if epochs are not recorded."""
        self._lookups = {node.ref: LookupVersions(node, lookups[node.ref]) for node in nodes}
        self._store = store
        self._lock = threading.Lock()
        self._snapshots: dict[tuple[str, str], Snapshot] = {}
        """By lookup and version: those of the current epoch."""
        self._frames: dict[tuple[str, str], DataFrame] = {}
        self._saved: dict[str, str] = {}
        self._warned = False

    def open(self, budget_s: float = 0.0) -> None:
        """Read all lookups for the first time, each within `budget_s`. Raises StreamlingError."""
        for versions in self._lookups.values():
            versions.open(budget_s)

    def start(self) -> None:
        for versions in self._lookups.values():
            versions.start()

    @property
    def all(self) -> Mapping[str, LookupVersions]:
        """By reference name."""
        return self._lookups

    def close(self) -> None:
        for versions in self._lookups.values():
            versions.close()

    def begin_epoch(self, recorded: Callable[[], Collection[str]]) -> dict[str, str]:
        """The versions for a new epoch, by lookup; rows of other versions are dropped.

        recorded   the versions in the records of interrupted epochs, whose snapshots must stay
        """
        current = {ref: versions.current for ref, versions in self._lookups.items()}
        with self._lock:
            self._snapshots = {(ref, snapshot.version): snapshot for ref, snapshot in current.items()}
            self._frames = {key: frame for key, frame in self._frames.items() if key in self._snapshots}
        for ref, snapshot in current.items():
            if self._store is not None and self._saved.get(ref) != snapshot.version:
                self._save(self._store, ref, snapshot, recorded)
        return {ref: snapshot.version for ref, snapshot in current.items()}

    def _save(
        self, store: SnapshotStore, ref: str, snapshot: Snapshot, recorded: Callable[[], Collection[str]]
    ) -> None:
        try:
            store.save(ref, snapshot)
            store.prune(ref, {snapshot.version, *recorded()})
            self._saved[ref] = snapshot.version
        except OSError as error:  # only a replay after a crash would need it, and it says so
            if not self._warned:
                log.warning("lookup %s: its rows cannot be stored for a replay after a crash: %s", ref, error)
            self._warned = True

    def snapshot(self, ref: str, epoch: Epoch) -> Snapshot:
        """The rows that the epoch sees. If its version is gone, all queries of the epoch see the current one."""
        version = epoch.lookups.get(ref, "")
        with self._lock:
            found = self._snapshots.get((ref, version))
            if found is None:
                found = self._snapshots[ref, version] = self._recall(ref, version, epoch)
            return found

    def _recall(self, ref: str, version: str, epoch: Epoch) -> Snapshot:
        versions = self._lookups[ref]
        current, key = versions.current, versions.node.primary_key
        if version in ("", current.version):
            return current
        stored = self._store.load(ref, version, key) if self._store is not None else None
        if stored is not None and stored.table.schema == current.table.schema:
            return stored
        log.warning(
            "lookup %s: epoch %d is replayed with the current rows, because those of version %s are gone: rows that "
            "sinks already have may have been computed with others",
            versions.node.spec.name,
            epoch.number,
            version[:8],
        )
        return current

    def frame(self, session: SparkSession, ref: str, snapshot: Snapshot) -> DataFrame:
        """All rows in Spark, to be sent to every executor; uploaded once per version."""
        key = (ref, snapshot.version)
        with self._lock:
            frame = self._frames.get(key)
            if frame is None:
                frame = self._frames[key] = self.make_frame(session, ref, snapshot.table)
            return frame

    def make_frame(self, session: SparkSession, ref: str, table: pa.Table) -> DataFrame:
        schema = self._lookups[ref].node.schema
        rows = max(1, _PARTITION_BYTES * table.num_rows // max(1, table.nbytes))
        return make_frame(session, schema, table, rows).hint("broadcast")
