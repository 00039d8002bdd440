"""Which joins with lookups the driver computes in small epochs, and what is left for Spark."""

from __future__ import annotations

import pytest

from streamling.connector import kinds
from streamling.engine.data.lookups.tables import LookupTables
from streamling.engine.data.steps.driver_joins import DriverJoins, driver_joins
from streamling.plan.pipeline import make_plan
from streamling.spec.pipeline import load_pipeline

PIPELINE = """\
sources:
  orders: {{type: generator, rows: 3, primary_key: id, columns: {{id: id, customer: id, country: "'de'"}}}}
transforms:
  customers: {{type: lookup, query: SELECT 1, primary_key: id, schema: {{id: int64, name: string, country: string}}}}
  countries: {{type: lookup, query: SELECT 1, primary_key: code, schema: {{code: string, title: string}}}}
  rates: {{type: lookup, query: SELECT 1, primary_key: "code, kind", schema: {{code: string, kind: string}}}}
  known: {{type: dynamic_table, backend_type: InMemory, backend_entity_name: known}}
  joined: {{type: sql, primary_key: id, when_filtered_out: drop, sql: "{sql}"}}
sinks:
  out: {{type: blackhole, from: joined}}
"""
CUSTOMERS = "JOIN customers c ON o.customer = c.id"
COUNTRIES = "LEFT JOIN countries d ON d.code = o.country"


def joins_of(sql: str) -> DriverJoins | None:
    plan = make_plan(load_pipeline(PIPELINE.format(sql=sql), "p.yaml", kinds.kinds()))
    node = plan.node("joined")
    lookups = [plan.node(ref) for ref in node.lookups]
    return driver_joins(node, [plan.node(ref) for ref in node.inputs], lookups, LookupTables([], {}))


@pytest.mark.parametrize(
    ("sql", "views", "reads_orders"),
    [
        (f"SELECT o.id, c.name FROM orders o {CUSTOMERS}", 1, False),
        (f"SELECT o.id, c.name, d.title FROM orders o {CUSTOMERS} {COUNTRIES}", 1, False),
        # The joins of the first branch are a part of those of the second.
        (
            f"SELECT o.id, c.name FROM orders o {CUSTOMERS} UNION ALL "
            f"SELECT o.id, d.title FROM orders o {CUSTOMERS} {COUNTRIES}",
            2,
            False,
        ),
        (f"SELECT o.id, c.name FROM orders o {CUSTOMERS} UNION ALL SELECT id, 'x' FROM orders", 1, True),
    ],
)
def test_joins_by_a_column_are_computed_in_the_driver(sql: str, views: int, reads_orders: bool) -> None:
    joins = joins_of(sql)
    assert joins is not None
    assert "JOIN" not in joins.text
    assert joins.text.count("_joined_") == views
    (orders,) = joins.inputs
    assert joins.reads_view(orders) is reads_orders


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer + 1 = c.id",
        "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id AND c.name > 'a'",
        "SELECT o.id FROM orders o JOIN rates r ON o.country = r.code AND r.kind = 'spot'",
        "SELECT o.id, c.name FROM (SELECT * FROM orders WHERE id > 1) o JOIN customers c ON o.customer = c.id",
        "SELECT o.id FROM orders o JOIN customers c ON o.customer = c.id JOIN countries d ON d.code = c.country",
        "SELECT o.id FROM orders o JOIN customers c ON o.customer = c.id WHERE dynamic_table_check('known', c.name)",
    ],
)
def test_other_joins_are_left_to_spark(sql: str) -> None:
    assert joins_of(sql) is None
