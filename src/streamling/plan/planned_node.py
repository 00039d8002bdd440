"""A node of a plan."""

from __future__ import annotations

from dataclasses import dataclass

from streamling.errors import INTERNAL, BugError
from streamling.plan.contract import Key
from streamling.plan.graph import is_lookup, is_stream
from streamling.plan.sql import Query
from streamling.plan.types import Schema
from streamling.spec.pipeline import NodeSpec, Role


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node and everything known about it before the first row is read."""

    spec: NodeSpec
    inputs: tuple[str, ...]
    columns: Schema | None
    """Its output columns; for a sink, its input columns. None if the source upstream has not been probed."""
    primary_key: Key
    view: str
    """The name of the Spark view with its rows."""
    query: Query | None = None
    asks: tuple[str, ...] = ()
    """The dynamic tables in which its query looks values up."""
    carries_changes: bool = True
    """Whether its rows may be updates or deletes, not only inserts."""
    width: int = 1
    """The number of streams, as far as it is known before the run."""
    lookups: tuple[str, ...] = ()
    """The lookups that its query joins."""

    @property
    def ref(self) -> str:
        return self.spec.ref

    @property
    def id(self) -> str:
        """Unique in the plan; a dynamic table may have the same reference name as another node.

        Reference names are in lower case, so none of them equals the id of a dynamic table.
        """
        named = self.spec.role is Role.SINK or is_stream(self.spec) or is_lookup(self.spec)
        return self.ref if named else f"Dynamic table {self.ref}"

    @property
    def schema(self) -> Schema:
        """The columns of a node in a plan that can run."""
        if self.columns is None:
            raise BugError(INTERNAL, "the columns of the node are not known", node=self.spec.name)
        return self.columns
