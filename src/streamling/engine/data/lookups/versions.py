"""The versions of one lookup, and the thread that looks for new ones."""

from __future__ import annotations

import logging
import threading

from streamling.connector import Lookup
from streamling.engine.data.lookups.snapshots import Snapshot, make_snapshot
from streamling.errors import StreamlingError
from streamling.log_context import log_fields
from streamling.plan.planned_node import PlannedNode
from streamling.retry import retry
from streamling.spec.mask import mask_text

log = logging.getLogger(__name__)


class LookupVersions:
    """The current snapshot of a lookup. A refresh that fails keeps it."""

    def __init__(self, node: PlannedNode, lookup: Lookup) -> None:
        self.node = node
        self.trouble: str | None = None
        """Why the last refresh failed. Any thread may read it."""
        self._lookup = lookup
        self._current: Snapshot | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def current(self) -> Snapshot:
        """Any thread may read it."""
        if self._current is None:
            raise AssertionError("the lookup is not open")
        return self._current

    def open(self, budget_s: float = 0.0) -> None:
        """Read the first version; what fails transiently is tried again for `budget_s`. Raises StreamlingError."""
        name = self.node.spec.name
        self._current = retry(self._read, what=f"opening lookup '{name}'", budget_s=budget_s)
        log.info("lookup %s: %d rows, version %s", name, self._current.table.num_rows, self._current.version[:8])

    def start(self) -> None:
        """Look for new versions from now on, in a thread of its own."""
        run = log_fields(node=self.node.spec.name)(self._run)
        self._thread = threading.Thread(target=run, name=f"lookup {self.node.ref}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(1.0)  # a query that is still running ends with its connection
        self._lookup.close()

    def _read(self) -> Snapshot:
        return make_snapshot(self.node.spec.name, self._lookup.read(), self.node.primary_key)

    def _run(self) -> None:
        while not self._stopping.wait(self._lookup.refresh_s):
            try:
                self._refresh()
            except Exception as error:  # the run goes on with what it has, whatever happens here
                if not self._stopping.is_set():
                    self._note_trouble(error)

    def _refresh(self) -> None:
        name = self.node.spec.name
        if self._lookup.may_have_changed():
            snapshot = self._read()
            if snapshot.version != self.current.version:
                self._current = snapshot
                log.info("lookup %s: %d rows, new version %s", name, snapshot.table.num_rows, snapshot.version[:8])
        if self.trouble is not None:
            log.info("lookup %s: can be read again", name)
            self.trouble = None

    def _note_trouble(self, error: Exception) -> None:
        message = mask_text(error.message if isinstance(error, StreamlingError) else str(error) or repr(error))
        if message != self.trouble:
            name, version = self.node.spec.name, self.current.version[:8]
            log.warning("lookup %s: not refreshed, its rows stay those of version %s: %s", name, version, message)
        self.trouble = message
