"""How often another system is asked before its answer counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from streamling.errors import TransientError

ATTEMPTS = 3
_PAUSE_SECONDS = 0.5

Answer = TypeVar("Answer")


def asked_again(ask: Callable[[float], Answer], seconds: float) -> Answer:
    """What `ask` gives, which gets the seconds it may take. One that fails in passing is called again, as long as
    there is time."""
    deadline = time.monotonic() + seconds
    attempt = 1
    while True:
        try:
            return ask(deadline - time.monotonic())
        except TransientError:
            attempt += 1
            if attempt > ATTEMPTS or time.monotonic() + _PAUSE_SECONDS >= deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
