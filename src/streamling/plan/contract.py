"""Methods that an options model may have for the planner.

A kind of node adds the methods that apply to it to its options model; nothing has to be registered. All of them are
pure: no network, no files, neither Arrow nor Spark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from streamling.errors import Caution, UserError
from streamling.plan.types import Schema
from streamling.spec.pipeline import NodeSpec

Key = tuple[str, ...]
Finding = UserError | Caution
"""A problem that makes the pipeline invalid, or a warning."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """The result of probing a source: its columns, `_gs_op` last, and the primary key in the outside system, if any."""

    schema: Schema
    primary_key: Key = ()
    cautions: tuple[Caution, ...] = ()
    carries_changes: bool | None = None
    """Whether its rows may be updates or deletes; None: as its options say."""


@runtime_checkable
class DeclaresColumns(Protocol):
    """A source whose columns may follow from its options alone."""

    def output_schema(self, node: NodeSpec) -> Schema | None:
        """The columns, `_gs_op` last; None if only a probe can find them. Raises UserError."""


@runtime_checkable
class ReshapesRows(Protocol):
    """A transform whose output columns differ from its input columns."""

    def reshaped(self, node: NodeSpec, rows: Schema) -> Schema:
        """The output columns for the input columns `rows`. Raises UserError."""


@runtime_checkable
class ChecksInput(Protocol):
    """A transform with rules about its input columns."""

    def check_input(self, node: NodeSpec, rows: Schema) -> Iterable[Finding]:
        """All problems at once."""


@runtime_checkable
class ChecksColumns(Protocol):
    """A node with rules about its output columns (source, transform) or input columns (sink)."""

    def check_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterable[Finding]:
        """All problems at once. `key` is the node's resolved primary key, empty if there is none."""


@runtime_checkable
class ChecksAlone(Protocol):
    """A node with rules that can be checked while its columns are not known."""

    def check_alone(self, node: NodeSpec) -> Iterable[Finding]:
        """All problems at once."""


@runtime_checkable
class FiltersChanges(Protocol):
    """A query that may drop updates and deletes."""

    @property
    def deletes_unmatched(self) -> bool:
        """Whether updates and deletes that do not match become deletes."""

    @property
    def drops_knowingly(self) -> bool:
        """Whether the file says that they are dropped; then there is no warning."""


@runtime_checkable
class ReadsFiles(Protocol):
    """A source that reads files of this machine."""

    def would_read(self, file: str) -> bool:
        """Whether the source would read a file of this absolute path, judged by the path alone."""


@runtime_checkable
class WritesFiles(Protocol):
    """A sink that writes files on this machine."""

    def example_file(self, node: NodeSpec) -> str:
        """The absolute path of a file that it might write."""


@runtime_checkable
class ChoosesWidth(Protocol):
    """A node that computes its own number of streams."""

    def width(self, node: NodeSpec, rows: Schema | None, key: Key, upstream: int) -> int:
        """The number of streams. `rows` are the input columns, None for sources; `upstream` is the width of the input.

        Raises UserError.
        """
