"""A node of a plan."""

from __future__ import annotations

from dataclasses import dataclass

from streamling.errors import INTERNAL, BugError
from streamling.plan.contract import Key
from streamling.plan.graph import is_stream
from streamling.plan.sql import Query
from streamling.plan.types import Schema
from streamling.spec.pipeline import NodeSpec, Role


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node and all that is known of it before a row is read."""

    spec: NodeSpec
    inputs: tuple[str, ...]
    columns: Schema | None
    """What it gives; for a sink, what it gets. None while the source behind it was not asked."""
    primary_key: Key
    view: str
    """The name its rows have in Spark."""
    query: Query | None = None
    asks: tuple[str, ...] = ()
    """The dynamic tables its query asks."""
    width: int = 1
    """On how many streams it runs, as far as it is known before it does."""

    @property
    def ref(self) -> str:
        return self.spec.ref

    @property
    def id(self) -> str:
        """Unique in the plan, while a dynamic table may have the reference name of another node.

        Reference names are in lower case: none of them equals the id of a dynamic table.
        """
        named = self.spec.role is Role.SINK or is_stream(self.spec)
        return self.ref if named else f"Dynamic table {self.ref}"

    @property
    def schema(self) -> Schema:
        """The columns of a node in a plan that can run."""
        if self.columns is None:
            raise BugError(INTERNAL, "the columns of the node are not known", node=self.spec.name)
        return self.columns
