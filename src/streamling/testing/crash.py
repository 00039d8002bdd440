"""The crash switch: kill the process at a named point of the protocol, to prove that nothing is lost there.

`STREAMLING_TEST_CRASH=after-commit:orders@3` kills the process (SIGKILL, nothing is cleaned up) the third time it
reaches the point `after-commit` of the node `orders`. Node and count are optional.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Final, Literal, get_args

Point = Literal[
    "after-record",
    "after-write",
    "before-commit",
    "after-commit",
    "before-finalize",
    "after-finalize",
    "before-group-commit",
]
POINTS: Final[tuple[Point, ...]] = get_args(Point)
VARIABLE: Final = "STREAMLING_TEST_CRASH"

_lock = threading.Lock()
_counts: dict[str, int] = {}


def crash_point(point: Point, node: str = "") -> None:
    """Mark a named point; the process is killed here if the switch is set to it."""
    switch = os.environ.get(VARIABLE)
    if not switch:
        return
    place, _, count = switch.partition("@")
    switch_point, _, switch_node = place.partition(":")
    if switch_point != point or (switch_node and switch_node != node):
        return
    with _lock:
        _counts[switch] = _counts.get(switch, 0) + 1
        if _counts[switch] >= int(count or 1):
            os.kill(os.getpid(), signal.SIGKILL)
