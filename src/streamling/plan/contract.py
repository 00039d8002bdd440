"""What the options of a node can tell the planner.

A kind of node adds the methods that concern it to its options model; nothing has to be registered. All of them
are pure: no network, no files, neither Arrow nor Spark.
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
"""A problem that refuses the pipeline, or one that is only said."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """What the outside world says of a source: its columns, `_gs_op` last, and the key it knows of."""

    schema: Schema
    primary_key: Key = ()


@runtime_checkable
class DeclaresColumns(Protocol):
    """A source that may know its columns from the file alone."""

    def output_schema(self, node: NodeSpec) -> Schema | None:
        """The columns, `_gs_op` last; None when only the outside world knows them. Raises UserError."""


@runtime_checkable
class ReshapesRows(Protocol):
    """A transform that gives other columns than it gets."""

    def reshaped(self, node: NodeSpec, rows: Schema) -> Schema:
        """The columns it gives when it gets `rows`. Raises UserError."""


@runtime_checkable
class ChecksInput(Protocol):
    """A transform with rules about the columns it gets."""

    def check_input(self, node: NodeSpec, rows: Schema) -> Iterable[Finding]:
        """What is wrong, everything at once."""


@runtime_checkable
class ChecksColumns(Protocol):
    """A node with rules about the columns it gives (source, transform) or gets (sink)."""

    def check_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterable[Finding]:
        """What is wrong, everything at once. `key` is the node's resolved primary key, empty if there is none."""


@runtime_checkable
class ChecksAlone(Protocol):
    """A source with rules that hold whatever its columns are, while these are not known."""

    def check_alone(self, node: NodeSpec) -> Iterable[Finding]:
        """What is wrong, everything at once."""


@runtime_checkable
class ReadsFiles(Protocol):
    """A source that reads files of this machine."""

    def would_read(self, file: str) -> bool:
        """Whether a file of this absolute path would be one of its own, by its name alone."""


@runtime_checkable
class WritesFiles(Protocol):
    """A sink that writes files on this machine."""

    def example_file(self, node: NodeSpec) -> str:
        """The absolute path of a file as it might write one."""


@runtime_checkable
class ChoosesWidth(Protocol):
    """A node that says itself on how many streams it runs."""

    def width(self, node: NodeSpec, rows: Schema | None, key: Key, upstream: int) -> int:
        """The number of streams. `rows` is what it gets, None for sources; `upstream` the width of its input.

        Raises UserError.
        """
