"""The places at which a process is killed: every crash point, those of sinks at each of the sinks."""

from __future__ import annotations

from collections.abc import Sequence


def places_at(sinks: Sequence[str]) -> tuple[str, ...]:
    """In the order in which an epoch passes them; between two sinks one has the rows and the other does not."""
    points = ("after-write", "before-commit", "after-commit")
    return tuple(f"{point}:{sink}" for point in points for sink in sinks)


def all_places(sinks: Sequence[str]) -> tuple[str, ...]:
    return ("after-record", *places_at(sinks), "before-finalize", "after-finalize", "before-group-commit")
