"""Workers that are lost repeatedly during one epoch: its rows need too much memory, or crash them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from streamling.engine.data.results import EpochTooLarge
from streamling.engine.data.spark_errors import ProcessLost
from streamling.errors import PermanentError

Result = TypeVar("Result")

# A single loss may be an accident. After this many during one epoch it is cut into smaller ones; if it cannot be cut,
# the run ends.
_LOSSES_BEFORE_CUT, _LOSSES_BEFORE_END = 3, 6


class Losses:
    """Counts lost workers for one node and epoch."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._count = 0

    def guard(self, action: Callable[[], Result], *, divisible: bool) -> Result:
        """Run the action; raises EpochTooLarge, or PermanentError if the epoch cannot be cut, after too many losses."""
        try:
            return action()
        except ProcessLost as error:
            self._count += 1
            if self._count >= _LOSSES_BEFORE_CUT and divisible:
                raise EpochTooLarge(self._node, f"workers were lost {self._count} times") from error
            if self._count >= _LOSSES_BEFORE_END:
                raise PermanentError(error.condition, error.message, node=error.node, hint=error.hint) from error
            raise
