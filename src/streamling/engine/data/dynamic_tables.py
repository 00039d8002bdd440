"""Dynamic tables in an epoch: what its queries have asked, and what it adds.

All queries of an epoch get the same answer for a value, however often they are computed. A table is filled before the
first query asks it, or, with `populate: after`, when every sink has the epoch: then its values count for later rows of
the epoch as if each row were an epoch of its own, so that the answers do not depend on how rows are cut into epochs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamling.connector.table import Found, TableBackend
from streamling.errors import DYNAMIC_TABLE, UserError
from streamling.plan.dynamic_tables import is_filled_after, keeps_to_its_input
from streamling.plan.pipeline import Plan
from streamling.plan.planned_node import PlannedNode

if TYPE_CHECKING:
    import pyarrow as pa


class Tables:
    """The dynamic tables of a run, by their reference names."""

    def __init__(self, plan: Plan, backends: Mapping[str, TableBackend]) -> None:
        self.nodes = {node.ref: node for node in plan.dynamic_tables}
        self.backends = backends

    @property
    def filled(self) -> list[PlannedNode]:
        """Those that queries fill."""
        return [node for node in self.nodes.values() if node.query is not None]

    @property
    def filled_after(self) -> bool:
        """Whether there are values to add when every sink has an epoch."""
        return any(is_filled_after(node.spec) for node in self.filled)

    def find(self, name: str, asking: PlannedNode) -> PlannedNode:
        """The table of this name, which a query has computed. Raises UserError."""
        node = self.nodes.get(name.lower())
        if node is None:
            message = f"the dynamic table '{name}' is not defined in pipeline topology"
            raise UserError(DYNAMIC_TABLE, message, node=asking.spec.name)
        if node.inputs and keeps_to_its_input(node.spec) and set(asking.inputs) - set(node.inputs):
            message = f"the dynamic table '{name}' is filled from '{node.inputs[0]}', but the query reads another input"
            hint = "allow it with 'same_input: false' on the table"
            raise UserError(DYNAMIC_TABLE, message, node=asking.spec.name, hint=hint)
        return node


@dataclass(slots=True)
class _Answers:
    keys: pa.Array
    found: Found


class EpochTables:
    """The answers that an epoch has got, and the values that it adds."""

    def __init__(self, tables: Tables, compute_values: Callable[[PlannedNode], pa.Array]) -> None:
        """`compute_values` computes the query that fills a table."""
        self._tables = tables
        self._compute_values = compute_values
        self._answers: dict[str, _Answers] = {}
        self._values: dict[str, pa.Array] = {}
        """The values that queries fill tables with, in the order of the rows of their inputs."""
        self._lock = threading.RLock()

    def find(self, name: str, asking: PlannedNode) -> PlannedNode:
        return self._tables.find(name, asking)

    def node(self, ref: str) -> PlannedNode:
        return self._tables.nodes[ref]

    def fill(self, node: PlannedNode) -> None:
        """Compute the values of a table that a query fills, unless that was done; add them, unless that comes later."""
        with self._lock:
            if node.query is None or node.ref in self._values:
                return
            values = self._compute_values(node)
            if not is_filled_after(node.spec):
                self._add(node.ref, values)
                values = values.slice(0, 0)
            self._values[node.ref] = values

    def values(self, node: PlannedNode) -> pa.Array:
        """The values that the epoch will add to a table with `populate: after`, one for each row of its input."""
        self.fill(node)
        return self._values[node.ref]

    def look_up(self, node: PlannedNode, keys: pa.Array) -> Found:
        """Look up keys, which are unique and not NULL. The table is asked for those that are new in this epoch."""
        with self._lock:
            if not is_filled_after(node.spec):
                self.fill(node)
            known = self._answers.get(node.ref)
            if known is None or not len(known.keys):
                known = _Answers(keys, self._tables.backends[node.ref].look_up(keys))
                self._answers[node.ref] = known
                return known.found
            return self._look_up_rest(node, known, keys)

    def _look_up_rest(self, node: PlannedNode, known: _Answers, keys: pa.Array) -> Found:
        import pyarrow.compute as pc

        numbers = pc.index_in(keys, value_set=known.keys)
        if numbers.null_count:
            new = keys.filter(pc.is_null(numbers))
            known.found = _concat(known.found, self._tables.backends[node.ref].look_up(new))
            known.keys = _concat_arrays(known.keys, new)
            numbers = pc.index_in(keys, value_set=known.keys)
        return Found(
            known.found.present.take(numbers),
            {name: column.take(numbers) for name, column in known.found.columns.items()},
        )

    def additions(self) -> dict[str, pa.Array]:
        """The values to add, by table, when every sink has the epoch."""
        return {ref: values for ref, values in self._values.items() if len(values)}

    def _add(self, ref: str, values: pa.Array) -> None:
        add_values(self._tables.backends[ref], values)


def add_values(backend: TableBackend, values: pa.Array) -> None:
    keys = values.drop_null().unique()
    if len(keys):
        backend.add(keys)


def _concat(first: Found, second: Found) -> Found:
    columns = {name: _concat_arrays(column, second.columns[name]) for name, column in first.columns.items()}
    return Found(_concat_arrays(first.present, second.present), columns)


def _concat_arrays(first: pa.Array, second: pa.Array) -> pa.Array:
    import pyarrow as pa

    return pa.concat_arrays([first, second])
