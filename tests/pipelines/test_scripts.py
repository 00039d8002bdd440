"""Scripts in whole pipelines: in the driver and in workers, with bad rows, limits and what they log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.harness import Workspace, printed

pytestmark = pytest.mark.spark

ORDERS = """
sources:
  orders:
    type: generator
    rows: {rows}
    primary_key: id
    columns: {{id: id, cents: case when id % 5 <> 0 then id * 7 end, name: "concat('order ', id)"}}
transforms:
  shaped:
    type: script
    from: orders
    language: typescript
    primary_key: order_id
    schema: {{order_id: string, total_eur: float64, bucket: string}}
{more}
    script: |
      const limit: number = 5000;
      function process(row: any) {{
{body}
        if (row.cents == null) return null;
        return {{ order_id: row.name, total_eur: row.cents / 100, bucket: row.cents > limit ? "big" : "small" }};
      }}
sinks:
  {sink}
"""
SHOWN = "shown: {type: print, from: shaped}"
FILES = "files: {type: file, from: shaped, path: out, format: parquet}"


def orders(rows: int, *, body: str = "", more: str = "", sink: str = FILES) -> str:
    return ORDERS.format(rows=rows, body=f"        {body}", more=f"    {more}" if more else "", sink=sink)


def wanted(rows: int) -> list[tuple[str, float, str]]:
    return [(f"order {n}", n * 7 / 100, "big" if n * 7 > 5000 else "small") for n in range(rows) if n % 5]


def test_a_script_in_a_small_epoch(place: Workspace) -> None:
    finished = place.write(orders(1000, body="console.log('order', row.id % 2);", sink=SHOWN)).run().succeeded()
    rows = [row for _, _, _, row in printed(finished.stdout)]
    assert [(row["order_id"], row["total_eur"], row["bucket"]) for row in rows] == wanted(1000)
    assert list(rows[0]) == ["bucket", "order_id", "total_eur", "_gs_op"]
    assert "script transform 'shaped': order 0 (10 times)" in finished.stderr


def test_a_script_in_large_epochs(place: Workspace) -> None:
    place.write(orders(40_000)).run(EPOCH__DRIVER_ROWS=0).succeeded()
    rows = place.rows("out", "parquet")
    assert sorted((row["order_id"], row["total_eur"], row["bucket"]) for row in rows) == sorted(wanted(40_000))


@pytest.mark.parametrize("driver_rows", [20_000, 0])
def test_an_exception_ends_the_run_and_names_the_row(place: Workspace, driver_rows: int) -> None:
    body = "if (row.id === 17) throw new Error('seventeen');"
    finished = place.write(orders(100, body=body)).run(EPOCH__DRIVER_ROWS=driver_rows).failed()
    assert "script execution failed in line 3 of the script: Error: seventeen; row " in finished.stderr
    assert '{"id":17,"cents":119,"name":"order 17","_gs_op":"i"}' in finished.stderr


@pytest.mark.parametrize("driver_rows", [20_000, 0])
def test_rows_that_a_script_rejects_become_dead_letters(place: Workspace, driver_rows: int) -> None:
    more = "on_error: dead_letter\n    dead_letter: {type: file, path: letters}"
    body = "if (row.id % 40 === 17) throw new Error('seventeen');"
    place.write(orders(100, body=body, more=more)).run(EPOCH__DRIVER_ROWS=driver_rows).succeeded()
    assert len(place.rows("out", "parquet")) == 80 - 3
    letters = [
        json.loads(line)
        for file in Path(place.directory, "letters").rglob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert sorted(letter["row"]["id"] for letter in letters) == [17, 57, 97]
    assert {letter["reason_code"] for letter in letters} == {"script_error"}
    assert {letter["reason_text"] for letter in letters} == {
        "script execution failed in line 3 of the script: Error: seventeen"
    }


def test_a_syntax_error_is_found_by_validation_at_its_place_in_the_file(place: Workspace) -> None:
    finished = place.write(orders(3, body="const x: = 5;")).run("validate", "pipeline.yaml").failed()
    lines = (place.directory / "pipeline.yaml").read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if "const x" in text)
    assert f"pipeline.yaml:{line}:{lines[line - 1].index('=') + 1}" in finished.stderr
    assert "SCRIPT_INVALID" in finished.stderr


def test_a_sandbox_that_is_missing_is_an_error_of_the_user(place: Workspace) -> None:
    finished = place.write(orders(3)).run(WASM_SCRIPT__RUNTIME_WASM_FILE_PATH="nowhere.wasm").failed()
    assert "there is no file nowhere.wasm" in finished.stderr


def test_keys_that_are_not_columns_are_dropped_with_one_warning(place: Workspace) -> None:
    text = """
sources: {numbers: {type: generator, rows: 50, primary_key: id}}
transforms:
  tiers: {type: script, from: numbers, language: js, primary_key: id, script: "row => { row.tier = 1; return row }"}
sinks: {shown: {type: print, from: tiers}}
"""
    finished = place.write(text).run().succeeded()
    assert len(printed(finished.stdout)) == 50
    assert finished.stderr.count("the script returns 'tier', which the input does not have") == 1
