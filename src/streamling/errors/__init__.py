"""Every error a user can meet, classified once, where it enters the program.

    StreamlingError
      UserError         the author of the pipeline or of the settings can fix it
        InvalidPipeline several of them, found in one pass
      TransientError    a retry may succeed without any change
        Fenced          another process owns the slices now; our positions are stale
      PermanentError    a retry cannot succeed (rejected by a target, broken environment)
      BugError          a bug in streamling

An error is a *condition* (a stable code with one explanation) plus the details of this occurrence: the message,
the node, the place in the user's file, a hint, the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Errors and conditions are imported together, each by its name, from here.
from streamling.errors.condition import *  # noqa: F403
from streamling.errors.condition import Condition
from streamling.errors.conditions import *  # noqa: F403


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
    """A warning: something the user should know that does not stop the pipeline."""

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
    retriable = False
    """Whether the same run may succeed later, without a change."""

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
        """`context` and `quote` are for reports that show one text and no excerpt of the file.

        context   what was being attempted
        quote     what the user wrote
        """
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
    """All problems of a file at once, and the warnings found in the same pass."""

    def __init__(self, problems: Sequence[StreamlingError], cautions: Sequence[Caution] = ()) -> None:
        if not problems:
            raise AssertionError("InvalidPipeline without a problem")
        first = problems[0]
        super().__init__(first.condition, first.message, node=first.node, where=first.where, hint=first.hint)
        self.problems = tuple(problems)
        self.cautions = tuple(cautions)


class TransientError(StreamlingError):
    """A retry may succeed; the caller of the failed action decides how often to retry."""

    kind = "transient error"
    retriable = True
    remedied = False
    """Whether the cause is already gone, for example a broken connection that was closed: the retry need not wait."""
    wait_s: float | None = None
    """How many seconds the other side asks to wait before the next attempt."""


class Fenced(TransientError):
    """Another process moved a position that we own. The epoch is abandoned and the positions are read again."""

    kind = "fenced"


class PermanentError(StreamlingError):
    """A retry cannot succeed."""

    kind = "permanent error"


class BugError(StreamlingError):
    """A bug in streamling: an invariant does not hold."""

    kind = "internal error"
