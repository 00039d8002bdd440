"""Workers that are lost again and again over one epoch: its rows are too much for them, or poison."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from streamling.engine.data.results import EpochTooLarge
from streamling.engine.data.spark_errors import ProcessLost
from streamling.errors import PermanentError

Result = TypeVar("Result")

# A worker may be lost by chance. Lost that often over one epoch it is cut into smaller ones; one that cannot be cut
# ends the run.
_LOSSES_BEFORE_CUT, _LOSSES_BEFORE_END = 3, 6


class Losses:
    """Counts them for one node and epoch."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._count = 0

    def guard(self, action: Callable[[], Result], *, divisible: bool) -> Result:
        """Do it; raises EpochTooLarge, or PermanentError if the epoch cannot be cut, once it was in vain too often."""
        try:
            return action()
        except ProcessLost as error:
            self._count += 1
            if self._count >= _LOSSES_BEFORE_CUT and divisible:
                raise EpochTooLarge(self._node, f"workers were lost over it {self._count} times") from error
            if self._count >= _LOSSES_BEFORE_END:
                raise PermanentError(error.condition, error.message, node=error.node, hint=error.hint) from error
            raise
