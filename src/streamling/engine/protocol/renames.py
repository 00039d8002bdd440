"""Sinks that were renamed while an epoch was interrupted: under the new name nobody could tell whether they have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamling.connector import Guarantee, Json
from streamling.engine.protocol.state.store import PENDING_PREFIX, SINKS_KEY, StateStore
from streamling.errors import STATE_MOVED, PermanentError

if TYPE_CHECKING:
    from streamling.engine.protocol.delivery import Outlet


def check_names(store: StateStore, outlets: Sequence[Outlet]) -> None:
    """Store the names and targets of the exactly-once sinks.

    Raises PermanentError if an epoch was interrupted, and a target now belongs to a sink of another name: the ledger of
    the old name may have the epoch, and the new one would write it again.
    """
    stored = store.get(SINKS_KEY)
    before: dict[str, Json] = stored if isinstance(stored, dict) else {}
    now: dict[str, Json] = {
        outlet.node.ref: outlet.sink.target
        for outlet in outlets
        if outlet.sink.capabilities.guarantee is Guarantee.EXACTLY_ONCE and outlet.sink.target is not None
    }
    interrupted = any(key.startswith(PENDING_PREFIX) for key in store.items())
    if interrupted:
        _refuse_renamed(before, now)
    latest = before | now if interrupted else now
    if latest != before:
        store.put({SINKS_KEY: latest})


def _refuse_renamed(before: dict[str, Json], now: dict[str, Json]) -> None:
    gone = {target: name for name, target in before.items() if name not in now}
    for name, target in now.items():
        if name not in before and target in gone:
            raise PermanentError(
                STATE_MOVED,
                f"the sink '{name}' writes to {target}, as '{gone[target]}' did when an epoch was interrupted: it "
                "cannot tell whether the rows of that epoch are already there",
                node=name,
                hint=f"name it '{gone[target]}' again and start once, then rename it",
            )
