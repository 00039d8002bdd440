"""Lookups: reference tables from files that queries join, in small epochs and in those that executors compute."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.harness import Workspace

pytestmark = pytest.mark.spark

LARGE = {"EPOCH__DRIVER_ROWS": 0}

# Customer 3 is unknown, customer 4 is NULL; orders 5 and 6 are changes.
ORDERS = """\
sources:
  orders:
    type: generator
    rows: 7
    primary_key: id
    columns:
      id: id
      customer: "case when id < 4 then id when id = 4 then null else id % 4 end"
      amount: id * 10
      currency: "case id % 2 when 0 then 'EUR' else 'USD' end"
      _gs_op: "case when id < 5 then 'i' when id = 5 then 'u' else 'd' end"
"""
LOOKUPS = """\
transforms:
  customers: {type: lookup, path: customers.csv, format: csv, primary_key: id}
  countries: {type: lookup, path: countries.jsonl, format: json, primary_key: code}
  rates: {type: lookup, path: rates.parquet, format: parquet, primary_key: "currency, kind"}
"""
QUERIES = """\
  inner:
    type: sql
    primary_key: id
    when_filtered_out: drop
    sql: SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id
  left:
    type: sql
    primary_key: id
    sql: >
      SELECT o.id, c.name, countries.title, r.rate, random() >= 0 AS drawn
      FROM orders o
      LEFT JOIN customers AS c ON c.id = o.customer AND c.active
      LEFT JOIN countries ON upper(c.country) = countries.code
      LEFT JOIN rates r ON (r.currency = o.currency AND r.kind = 'spot')
  deleting:
    type: sql
    primary_key: id
    when_filtered_out: delete
    sql: >
      SELECT o.id, o.amount, c.name FROM (SELECT * FROM orders WHERE id <> 2) o
      JOIN customers c ON o.customer = c.id
  both:
    type: sql
    primary_key: key
    when_filtered_out: drop
    sql: >
      SELECT concat('a', o.id) AS key, c.name FROM orders o JOIN customers c ON o.customer = c.id WHERE c.name > 'B'
      UNION ALL
      SELECT concat('b', o.id), c.name FROM inner i JOIN customers c ON i.id = c.id JOIN orders_again o ON true
"""
SINKS = """\
sinks:
"""


def write_tables(place: Workspace) -> None:
    (place.directory / "customers.csv").write_text("id,name,country,active\n0,Ann,de,true\n1,Bob,at,true\n2,Cem,de,false\n,Nil,x,true\n")
    countries = [{"code": "DE", "title": "Germany"}, {"code": "AT", "title": "Austria"}]
    (place.directory / "countries.jsonl").write_text("\n".join(map(json.dumps, countries)))
    rates = pa.table({"currency": ["EUR", "USD", "EUR"], "kind": ["spot", "spot", "old"], "rate": [1.5, 2.5, 9.0]})
    pq.write_table(rates, place.directory / "rates.parquet")


def test_first(place: Workspace) -> None:
    write_tables(place)
    queries = QUERIES[: QUERIES.index("  both:")]
    sinks = "".join(f"  {n}: {{type: file, from: {n[4:]}, path: {n[4:]}, format: json}}\n" for n in ("out_inner", "out_left", "out_deleting"))
    place.write(ORDERS + LOOKUPS + queries + SINKS + sinks)
    print(place.run().succeeded().stderr)
    for name in ("inner", "left", "deleting"):
        for row in place.rows(name, "json"): print(name, row)
    assert 0
