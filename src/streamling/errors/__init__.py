"""Every error a user can meet, classified once, at the seam where it enters.

    StreamlingError
      UserError         the author of the pipeline or of the settings can fix it
        InvalidPipeline several of them, found in one pass
      TransientError    the same action may succeed later without anybody changing anything
        Fenced          another owner has moved on; what we hold is stale
      PermanentError    repeating the action cannot help (refused by a target, broken environment)
      BugError          a fault of ours

An error is a *condition* (a stable code with one explanation) plus what is particular to this
occurrence: the message, the node, the place in the user's file, a hint, the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Errors and conditions are imported together, each by its name, from here.
from streamling.errors.conditions import *  # noqa: F403
from streamling.errors.conditions import Condition


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a file the user wrote. Lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Caution:
    """Something a user should know that stops nothing."""

    condition: Condition
    message: str
    node: str | None = None
    where: Where | None = None
    hint: str | None = None

    @property
    def code(self) -> str:
        return self.condition.code


class StreamlingError(Exception):
    """Base of all our errors."""

    kind = "error"

    def __init__(
        self,
        condition: Condition,
        message: str,
        *,
        node: str | None = None,
        where: Where | None = None,
        hint: str | None = None,
        cause: BaseException | None = None,
        context: str | None = None,
        quote: str | None = None,
    ) -> None:
        """For reports that show one text and no excerpt: `context` says what was being attempted, `quote` repeats
        what the user wrote."""
        super().__init__(message)
        self.context = context
        self.quote = quote
        self.condition = condition
        self.message = message
        self.node = node
        self.where = where
        self.hint = hint
        if cause is not None:
            self.__cause__ = cause

    @property
    def code(self) -> str:
        return self.condition.code


class UserError(StreamlingError):
    """Configuration, validation, planning: the user can fix it."""

    kind = "user error"


class InvalidPipeline(UserError):
    """All problems of a file at once, and what else was noticed while looking for them."""

    def __init__(self, problems: Sequence[StreamlingError], cautions: Sequence[Caution] = ()) -> None:
        if not problems:
            raise AssertionError("InvalidPipeline without a problem")
        first = problems[0]
        super().__init__(first.condition, first.message, node=first.node, where=first.where, hint=first.hint)
        self.problems = tuple(problems)
        self.cautions = tuple(cautions)


class TransientError(StreamlingError):
    """May succeed later; retried as the place that raised it says."""

    kind = "transient error"
    remedied = False
    """Whether what was in the way is already gone, as a connection that was thrown away: no need to wait long."""


class Fenced(TransientError):
    """Another owner moved a position we hold. The epoch is abandoned, positions are read anew."""

    kind = "fenced"


class PermanentError(StreamlingError):
    """Cannot succeed by repetition."""

    kind = "permanent error"


class BugError(StreamlingError):
    """A fault of ours: an invariant does not hold."""

    kind = "internal error"
