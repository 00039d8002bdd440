"""From a topic into aggregate tables, with positions in the same database: one counts every change, the other takes
back what was counted before."""

from __future__ import annotations

from support.crash_places import all_places
from support.into_tables import IntoTables, partition_of

SINKS = ("counted", "exact")
POINTS = all_places(SINKS)
_COMPUTED = (
    "total: {{from: n, fn: sum}}, rows: {{fn: count}}, mean: {{from: n, fn: avg}}, "
    "least: {{from: n, fn: min}}, most: {{from: n, fn: max}}"
)
_SINK = (
    "  {name}: {{{{type: postgres_aggregate, from: events, schema: stats, landing_table: {name}_in, agg_table: {name}, "
    "group_by: {{{{part: {{{{}}}}}}}}, aggregate: {{{{{computed}}}}}, batch_flush_interval: 200ms, {more}}}}}\n"
)


class IntoAggregates(IntoTables):
    pipeline = (
        "sources:\n"
        "  events: {{type: kafka, topic: {topic}, data_format: json, primary_key: id, "
        "schema: {{id: int64, n: int64, part: int64}}}}\n"
        "sinks:\n"
        + _SINK.format(name="counted", computed=_COMPUTED, more="deduplicate: false")
        + _SINK.format(name="exact", computed=_COMPUTED, more="retract: true")
    )

    def differences(self) -> list[str]:
        numbers: dict[int, list[tuple[int, str]]] = {}
        for n, (id_, operation) in enumerate(self._sent):
            numbers.setdefault(partition_of(id_), []).append((n, operation))
        counted = {}
        for partition, changes in numbers.items():
            total = sum(-n if operation == "d" else n for n, operation in changes)
            count = sum({"c": 1, "u": 0, "d": -1}[operation] for _, operation in changes)
            seen = [n for n, _ in changes]
            counted[partition] = (total, count, total, count, min(seen), max(seen))
        left: dict[int, list[int]] = {}
        for id_, n in self._model().items():
            left.setdefault(partition_of(id_), []).append(n)
        exact = {p: (sum(ns), len(ns), sum(ns), len(ns), min(ns), max(ns)) for p, ns in left.items()}
        problems = []
        for name, owed in (("counted", counted), ("exact", exact)):
            held = {partition: tuple(row) for partition, *row in self._rows(f"SELECT * FROM stats.{name}")}
            if held != owed:
                problems.append(f"{name}: {held} instead of {owed}")
        return problems

    def _more(self, id_: int) -> dict[str, int]:
        return {"part": partition_of(id_)}

    def _latest(self) -> dict[int, int]:
        """In both tables: only changes that are not deletions are looked for."""
        latest = dict(self._rows("SELECT part, most FROM stats.counted"))
        exact = dict(self._rows("SELECT part, most FROM stats.exact"))
        return {partition: n for partition, n in latest.items() if exact.get(partition, -1) >= 0}

    def _rows(self, sql: str) -> list[tuple[int, ...]]:
        ((ready,),) = self.database.rows("SELECT to_regclass('stats.exact') IS NOT NULL")
        return self.database.rows(sql) if ready else []
