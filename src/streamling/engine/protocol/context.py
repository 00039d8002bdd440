"""What the steps of the protocol share in one run."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from streamling.connector import BatchPolicy, Slice
from streamling.engine.data.capacity import Capacity
from streamling.engine.data.lookups.tables import LookupTables
from streamling.engine.data.readahead import ReadAhead
from streamling.engine.process.stop import StopRequest
from streamling.engine.protocol.activity import Activity
from streamling.engine.protocol.delivery import Outlet
from streamling.engine.protocol.pending import Journal
from streamling.retry import retry
from streamling.spec.settings import Settings

Result = TypeVar("Result")
# Only the latest records of a process can still be in the journal.
_REMEMBERED_IDS = 16


@dataclass(frozen=True, slots=True)
class RunContext:
    """One run of a plan over opened sources and sinks."""

    settings: Settings
    fingerprint: str
    """The fingerprint of the plan."""
    generation: str
    journal: Journal
    capacity: Capacity
    sources: Sequence[ReadAhead]
    outlets: Sequence[Outlet]
    stop: StopRequest
    now_us: Callable[[Sequence[Slice]], int] = lambda slices: time.time_ns() // 1000
    """What `now()` means in an epoch of these slices, microseconds since 1970 UTC."""
    transform_policies: Sequence[BatchPolicy] = ()
    """What batching transforms wait for."""
    lookups: LookupTables | None = None
    """The lookups of the run, if it has any."""
    same_rows: bool = False
    """Whether interrupted epochs are replayed with the same rows also if no sink has them."""
    acknowledges: bool = True
    """Whether sources and transforms hear of finalized epochs. If not, only phased sources do, and nothing outside of
    the process moves on."""
    activity: Activity = field(default_factory=Activity)
    """What the run is doing now."""
    epoch_ids: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_IDS))
    """The ids that this process has made, the latest last."""

    def new_epoch_id(self) -> str:
        self.epoch_ids.append(secrets.token_hex(16))
        return self.epoch_ids[-1]

    def retry(self, action: Callable[[], Result], what: str) -> Result:
        """Repeat an action that fails transiently until it succeeds or a stop is requested."""
        return retry(action, what=what, stopping=lambda: self.stop.requested, sleep=self.stop.pause)
