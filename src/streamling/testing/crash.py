"""The crash switch: die at a named point of the protocol, to prove that nothing is lost there.

`STREAMLING_TEST_CRASH=after-commit:orders@3` kills the process (SIGKILL, nothing is cleaned up) the third
time the point `after-commit` of the node `orders` is passed. Node and count may be left out.
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
_passed: dict[str, int] = {}


def crash_point(point: Point, node: str = "") -> None:
    """Pass a named point; die here if the switch is set to it."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    place, _, count = wanted.partition("@")
    wanted_point, _, wanted_node = place.partition(":")
    if wanted_point != point or (wanted_node and wanted_node != node):
        return
    with _lock:
        _passed[wanted] = _passed.get(wanted, 0) + 1
        if _passed[wanted] >= int(count or 1):
            os.kill(os.getpid(), signal.SIGKILL)
