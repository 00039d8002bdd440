"""Which sinks flush in parallel, and in which order the others do."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamling.engine.protocol.delivery import Outlet

log = logging.getLogger(__name__)


def make_lanes(outlets: Sequence[Outlet]) -> list[list[Outlet]]:
    """Groups of sinks that flush in parallel. Those of one group flush one after the other: sinks with the same target
    in file order, and sinks whose rows refer to rows of others after these."""
    groups: list[list[Outlet]] = []
    for outlet in outlets:
        related = [group for group in groups if any(_are_related(outlet, other) for other in group)]
        groups = [group for group in groups if group not in related]
        groups.append([*(other for group in related for other in group), outlet])
    lanes = [_in_order([o for o in outlets if o in group]) for group in groups]
    for lane in lanes:
        _log_order(lane)
    return sorted(lanes, key=lambda lane: min(outlets.index(outlet) for outlet in lane))


def _are_related(one: Outlet, other: Outlet) -> bool:
    return _shares_target(one, other) or _refers_to(one, other) or _refers_to(other, one)


def _shares_target(one: Outlet, other: Outlet) -> bool:
    return one.sink.target is not None and one.sink.target == other.sink.target


def _refers_to(one: Outlet, other: Outlet) -> bool:
    return other.sink.target in one.sink.depends_on


def _in_order(lane: list[Outlet]) -> list[Outlet]:
    """Sinks after those that they refer to, else in file order. In a circle the first one begins."""
    ordered: list[Outlet] = []
    left = lane
    while left:
        free = (o for o in left if not any(_refers_to(o, other) for other in left if other is not o))
        following = next(free, left[0])
        ordered.append(following)
        left = [outlet for outlet in left if outlet is not following]
    return ordered


def _log_order(lane: Sequence[Outlet]) -> None:
    names = ", ".join(outlet.name for outlet in lane)
    if any(_refers_to(one, other) for one in lane for other in lane):
        log.info("sinks flush one after the other, because rows of some refer to rows of others: %s", names)
    elif len(lane) > 1:
        log.warning("sinks with the same target flush one after the other: %s", names)
