"""What comes out of a pipeline is what its definition says, compared with a model in plain Python."""

from __future__ import annotations

from collections import defaultdict

import pytest

from support.harness import Finished, MakeWorkspace, Row, Workspace, printed, read_file

pytestmark = pytest.mark.spark

ROWS = 500
PIPELINE = f"""\
sources:
  Shop.Orders:
    type: generator
    rows: {ROWS}
    rate: 250
    primary_key: id
    columns:
      id: id
      name: concat('order ', id)
      bucket: id % 7
      size: case when id % 10 = 0 then 'big' when id % 3 = 0 then 'medium' end
      at: now()
      _gs_op: case when id % 5 = 0 then 'u' when id % 5 = 1 then 'd' else 'i' end
transforms:
  Even.Orders:
    type: sql
    primary_key: id
    sql: SELECT id, name, bucket, size, id * 2 + 1 AS odd FROM shop.orders WHERE id % 2 = 0
  loud:
    type: sql
    primary_key: id
    sql: SELECT id, upper(name) AS name, odd - 1 AS doubled FROM "Even.Orders" WHERE bucket <> 3
  both:
    type: sql
    primary_key: id
    sql: >
      SELECT id, name, 'even' AS side FROM even.orders
      UNION ALL
      SELECT id, concat(name, '!'), 'odd' FROM shop.orders WHERE id % 2 = 1
sinks:
  lines: {{type: print, from: loud}}
  parquet: {{type: file, from: even.orders, path: parquet, format: parquet}}
  json: {{type: file, from: EVEN.ORDERS, path: json, format: json, batch_flush_interval: 300ms}}
  csv: {{type: file, from: loud, path: csv, format: csv, batch_flush_interval: 300ms}}
  union.Rows: {{type: file, from: both, path: union, format: parquet, batch_flush_interval: 300ms}}
  times: {{type: file, from: shop.orders, path: times, format: parquet, batch_flush_interval: 300ms}}
"""


def orders() -> list[Row]:
    return [
        {
            "id": i,
            "name": f"order {i}",
            "bucket": i % 7,
            "size": "big" if i % 10 == 0 else "medium" if i % 3 == 0 else None,
            "_gs_op": "u" if i % 5 == 0 else "d" if i % 5 == 1 else "i",
        }
        for i in range(ROWS)
    ]


def even_orders() -> list[Row]:
    return [
        {k: order[k] for k in ("id", "name", "bucket", "size")}
        | {"odd": order["id"] * 2 + 1, "_gs_op": order["_gs_op"]}
        for order in orders()
        if order["id"] % 2 == 0
    ]


def loud() -> list[Row]:
    return [
        {"id": o["id"], "name": o["name"].upper(), "doubled": o["odd"] - 1, "_gs_op": o["_gs_op"]}
        for o in even_orders()
        if o["bucket"] != 3
    ]


@pytest.fixture(scope="module")
def place(new_place: MakeWorkspace) -> Workspace:
    return new_place(CHECKPOINT_INTERVAL_SEC=1).write(PIPELINE)


@pytest.fixture(scope="module", autouse=True)
def run(place: Workspace) -> Finished:
    return place.run().succeeded()


def test_print_writes_numbered_lines_in_the_order_of_the_source(run: Finished) -> None:
    words = {"i": "Insert", "u": "Update", "d": "Delete"}
    assert printed(run.stdout) == [(n, 1, words[row["_gs_op"]], row) for n, row in enumerate(loud(), 1)]


def test_columns_are_printed_in_the_order_of_the_select(run: Finished) -> None:
    first = run.stdout.splitlines()[0]
    assert first == '1 -> (sample_every=1) [Update] {"id":0,"name":"ORDER 0","doubled":0,"_gs_op":"u"}'


def test_parquet_files_hold_the_rows_of_the_model(place: Workspace) -> None:
    assert place.rows("parquet", "parquet") == even_orders()


def test_a_second_sink_on_the_same_node_gets_the_same_rows(place: Workspace) -> None:
    assert place.rows("json", "json") == even_orders()


def test_csv_files_hold_the_rows_of_a_chain_of_two_queries(place: Workspace) -> None:
    assert place.rows("csv", "csv") == loud()


def test_union_all_gives_the_rows_of_both_sides_in_their_order(place: Workspace) -> None:
    rows = place.rows("union", "parquet")
    operations = {order["id"]: order["_gs_op"] for order in orders()}
    assert [row for row in rows if row["side"] == "even"] == [
        {"id": o["id"], "name": o["name"], "side": "even", "_gs_op": o["_gs_op"]} for o in even_orders()
    ]
    assert [row for row in rows if row["side"] == "odd"] == [
        {"id": i, "name": f"order {i}!", "side": "odd", "_gs_op": operations[i]} for i in range(1, ROWS, 2)
    ]
    assert len(rows) == ROWS


def test_a_node_is_found_by_its_name_whatever_the_case_and_with_dots(place: Workspace, run: Finished) -> None:
    assert len(place.rows("times", "parquet")) == ROWS
    assert f"union.Rows {ROWS}" in run.stderr
    assert "shop.orders:generator" in place.state()


def test_now_is_one_value_per_epoch_and_moves_between_epochs(place: Workspace) -> None:
    times = defaultdict(set)
    for file in place.files("times", "parquet"):
        epoch = file.name.split("-")[1]
        times[epoch] |= {row["at"] for row in read_file(file, "parquet").to_pylist()}
    values = [min(values) for _, values in sorted(times.items())]
    assert len(times) > 1
    assert all(len(values) == 1 for values in times.values())
    assert values == sorted(set(values))


def test_no_file_is_left_half_way(place: Workspace) -> None:
    for sink in ("parquet", "json", "csv", "union", "times"):
        (staging,) = (place.directory / sink / "_streamling").glob("*/*/staging")
        assert list(staging.iterdir()) == []


def test_standard_error_holds_our_log_and_nothing_of_spark(run: Finished) -> None:
    assert "Epoch finalized: number=1 " in run.stderr
    for noise in ("WARN", "org.apache", "Setting default log level", "Picked up", "\tat "):
        assert noise not in run.stderr.replace("WARNING", ""), run.stderr
