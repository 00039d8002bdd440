"""Functions in Python in whole pipelines: in the driver and in workers, with dead letters that are replayed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support.harness import Workspace, printed

pytestmark = pytest.mark.spark

SHAPING = """\
import os

from rates import RATE


def shape(row):
    if row["id"] % 1000 == 7:
        raise ValueError("seven")
    if row["id"] % 1000 == 8:
        print("eight", row["id"])
    if row["id"] % 2:
        return None
    return [{"id": row["id"], "price": row["amount"] * RATE, "process": os.getpid(), "tier": 1}]
"""
PIPELINE = """\
sources:
  orders:
    type: generator
    rows: 4000
    primary_key: id
    columns: {id: id, amount: "CAST(id AS DECIMAL(12,2))", _gs_op: "case when id % 4 = 0 then 'u' else 'i' end"}
transforms:
  shaped:
    type: python
    from: orders
    primary_key: id
    schema: {id: int64, price: "decimal(20,4)", process: int64}
    function: shaping:shape
    on_error: skip
  doubled:
    type: python
    from: shaped
    primary_key: id
    per: batch
    code: |
      import pyarrow.compute as pc

      def double(batch):
          column = batch.schema.get_field_index("price")
          twice = pc.cast(pc.add(batch.column("price"), batch.column("price")), batch.schema.field(column).type)
          return batch.set_column(column, batch.schema.field(column), twice)
sinks:
  files: {type: file, from: doubled, path: files, format: parquet}
"""


def write_modules(place: Workspace, shaping: str = SHAPING) -> None:
    (place.directory / "shaping.py").write_text(shaping)
    (place.directory / "rates.py").write_text("from decimal import Decimal\n\nRATE = Decimal('1.5')\n")


@pytest.mark.parametrize("driver_rows", [0, 100_000], ids=["in workers", "in the driver"])
def test_functions_for_rows_and_batches(place: Workspace, driver_rows: int) -> None:
    write_modules(place)
    done = place.write(PIPELINE).run(EPOCH__DRIVER_ROWS=driver_rows).succeeded()
    rows = place.rows("files", "parquet")
    even = range(0, 4000, 2)
    assert [(row["id"], row["price"], row["_gs_op"]) for row in rows] == [
        (n, 3 * n, "u" if n % 4 == 0 else "i") for n in even
    ]
    assert "set aside: 4 rows" in done.stderr
    assert "(python_error), the last: ValueError: seven (shaping.py, line 8)" in done.stderr
    for number in (8, 1008, 2008, 3008):
        assert f"python transform 'shaped': eight {number}" in done.stderr
    assert done.stderr.count("returns 'tier', which the columns do not include") == 1
    processes = {row["process"] for row in rows}
    assert os.getpid() not in processes
    if driver_rows:
        assert len(processes) == 1


LETTERS = """\
sources:
  orders: {type: generator, rows: 20, primary_key: id, columns: {id: id, text: "concat('n', id)"}}
transforms:
  shaped:
    type: python
    from: orders
    primary_key: id
    schema: {id: int64, number: int64}
    function: shaping:shape
    on_error: ON_ERROR
sinks:
  files: {type: file, from: shaped, path: files, format: parquet}
"""
FRAGILE = """\
def shape(row):
    text = row["text"]
    if row["id"] == 13:
        text += "?"
    return {"id": row["id"], "number": [int(text[1:])][0]}
"""


def test_a_dead_letter_is_replayed_after_the_code_was_corrected(place: Workspace) -> None:
    write_modules(place, FRAGILE)
    pipeline = LETTERS.replace("ON_ERROR", "dead_letter\n    dead_letter: {type: file, path: letters}")
    place.write(pipeline).run().succeeded()
    (listed,) = place.run("dlq", "list", "--format", "json").succeeded().stdout.splitlines()
    letter = json.loads(listed)
    assert (letter["node"], letter["reason_code"]) == ("shaped", "python_error")
    assert letter["reason_text"] == ("ValueError: invalid literal for int() with base 10: '13?' (shaping.py, line 5)")
    still = place.run("dlq", "replay", "--all")
    assert (still.code, "1 letter failed again, still open" in still.stdout + still.stderr) == (1, True)
    write_modules(place, FRAGILE.replace("text[1:]", "text[1:].strip('?')"))
    again = place.run("dlq", "replay", "--all").succeeded()
    assert "replayed 1 letter" in again.stdout + again.stderr
    assert sorted((row["id"], row["number"]) for row in place.rows("files", "parquet")) == [(n, n) for n in range(20)]


def test_a_row_that_fails_ends_the_run_with_its_line_and_its_values(place: Workspace) -> None:
    write_modules(place, FRAGILE)
    failed = place.write(LETTERS.replace("ON_ERROR", "fail")).run().failed()
    text = " ".join(failed.stderr.split())
    assert '\'13?\' (shaping.py, line 5); row: {"id": 13, "text": "n13", "_gs_op": "i"}' in text


def test_the_example_runs(place: Workspace) -> None:
    examples = Path(__file__).parents[2] / "examples"
    (place.directory / "shaping.py").write_text((examples / "shaping.py").read_text())
    done = place.write((examples / "shaping.yaml").read_text()).run().succeeded()
    rows = [row for *_, row in printed(done.stdout)]
    assert [row["order_id"] for row in rows] == [5, 6, 7, 8, 10, 11]
    assert rows[0] == {"line": 1, "order_id": 5, "total": 7.19, "_gs_op": "i"}
    assert "set aside: 2 rows" in done.stderr
    assert "KeyError: 'it' (shaping.py, line 13)" in done.stderr
