"""How many rows each node of an epoch has given, as far as that is known or follows from the rows of other nodes.

Spark computes queries that read each other as one. The rows of a query in between need not be counted if the query
keeps all rows, or the one that reads it does. Only two queries in a row that filter or multiply rows leave a number
open: then Spark counts the rows of the first one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamling.plan.pipeline import Plan
from streamling.plan.planned_node import PlannedNode
from streamling.spec.pipeline import Role
from streamling.telemetry.meters import RowCounts


class RowAccounts:
    """The row counts of a plan. Holds what does not change between epochs."""

    def __init__(
        self,
        plan: Plan,
        filtered_sources: Collection[str],
        processed: Collection[str],
        unfiltered: Collection[str] = (),
    ) -> None:
        """`filtered_sources`: sources with a filter that Spark computes. `processed`: transforms with a processor.
        `unfiltered`: dynamic tables that get the rows of a source before its filter."""
        self._plan = plan
        self._filtered_sources = filtered_sources
        self._processed = processed
        self._unfiltered = unfiltered
        self._queries = [n for n in plan.nodes if n.query is not None and n not in plan.dynamic_tables]
        self._inputs = {n.id: tuple(plan.node(ref).id for ref in n.inputs) for n in plan.nodes}

    def uncounted(self, needed: Collection[str], *, large: bool) -> frozenset[str]:
        """The nodes whose rows Spark has to count, in an epoch in which these nodes are computed."""
        known = dict.fromkeys((n.id for n in self._plan.nodes if self._is_counted(n, needed, large)), 0)
        known = self.complete(known, {})
        chosen: set[str] = set()
        for node in self._plan.nodes:
            if node.id in needed and node.spec.role is not Role.SINK and node.id not in known:
                if node in self._plan.dynamic_tables or not (node.query or node.id in self._filtered_sources):
                    continue
                chosen.add(node.id)
                known = self.complete({**known, node.id: 0}, {})
        return frozenset(chosen)

    def _is_counted(self, node: PlannedNode, needed: Collection[str], large: bool) -> bool:
        """Whether Python gets the rows of the node, or its reader counts them."""
        if node.id in self._processed:
            return True
        if node.spec.role is Role.SOURCE and node.id not in self._filtered_sources:
            return True
        readers = [reader for reader in self._plan.consumers(node.ref) if reader.id in needed]
        if any(reader.spec.role is Role.SINK or reader.id in self._processed for reader in readers):
            return True
        reads = sum(max(1, r.query.count_reads(node.view)) if r.query is not None else 1 for r in readers)
        return reads > 1 and not large and node.query is not None  # small epochs compute it once

    def complete(self, out: Mapping[str, int], rejected: Mapping[str, int]) -> dict[str, int]:
        """The rows of nodes, with those that follow from them: a query that keeps all rows gives as many as it gets."""
        rows = dict(out)
        keeping = [n for n in self._queries if n.query is not None and n.query.keeps_rows]
        changed = True
        while changed:
            changed = False
            for node in keeping:
                inputs = self._inputs[node.id]
                missing = [id_ for id_ in inputs if id_ not in rows]
                bad = rejected.get(node.id, 0)
                given = sum(rows.get(id_, 0) for id_ in inputs)
                if not missing and node.id not in rows:
                    rows[node.id] = given - bad
                    changed = True
                elif len(missing) == 1 and node.id in rows:
                    rows[missing[0]] = rows[node.id] + bad - given
                    changed = True
        return rows

    def counts(
        self, read: Mapping[str, int], out: Mapping[str, int], rejected: Mapping[str, int]
    ) -> dict[str, RowCounts]:
        """The counts of sources and transforms. `read`: by source, what its reader gives; `out`: what is known."""
        rows = self.complete(out, rejected)
        counts = {}
        for node in self._plan.nodes:
            if node.spec.role is Role.SOURCE and node.id in read:
                given = rows.get(node.id, read[node.id])
                counts[node.id] = self._counts(node, None, read[node.id], given)
            elif node.spec.role is Role.TRANSFORM and any(id_ in rows for id_ in self._inputs[node.id]):
                inputs = {**rows, **read} if node.id in self._unfiltered else rows
                received = sum(inputs.get(id_, 0) for id_ in self._inputs[node.id])
                usable = received - rejected.get(node.id, 0)
                counts[node.id] = self._counts(node, received, usable, rows.get(node.id))
        return counts

    def _counts(self, node: PlannedNode, received: int | None, usable: int, given: int | None) -> RowCounts:
        if given is None:
            return RowCounts(received)
        difference = usable - given
        if self._may_filter(node) and difference >= 0:
            return RowCounts(received, given, filtered=difference)
        return RowCounts(received, given, unaccounted=0 if self._may_add(node) else difference)

    def _may_filter(self, node: PlannedNode) -> bool:
        if node.query is not None:
            return not node.query.keeps_rows or node in self._plan.dynamic_tables
        return node.id in self._filtered_sources or node.id in self._processed

    def _may_add(self, node: PlannedNode) -> bool:
        """Whether the node may make several rows of one."""
        return node.query.multiplies if node.query is not None else node.id in self._processed
