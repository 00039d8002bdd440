"""A run ends with a summary: what it wrote, where that is, and whether the next run resumes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from streamling.cli.logs import start_logging
from streamling.cli.summary import RunReport, block, log_report, report_of
from streamling.engine.preparation import check
from streamling.engine.protocol.progress import Progress
from streamling.engine.run import Summary
from streamling.plan.pipeline import Plan
from streamling.spec.places import place_of
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import BackendType, StateBackend

PIPELINE = """\
sources:
  orders: {type: generator, rows: 3, primary_key: id}
sinks:
  files: {type: file, from: orders, path: out/orders, format: json}
  table: {type: postgres, from: orders, schema: shop, table: orders}
  topic: {type: kafka, from: orders, topic: orders-v1, data_format: json}
  hook: {type: webhook, from: orders, url: "https://me:correct-horse@example.com/rows?token=abcdefgh"}
  rows: {type: clickhouse, from: orders, table: shop.orders, primary_key: id}
  screen: {type: print, from: orders}
  nothing: {type: blackhole, from: orders}
"""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE)
    return check(file, Settings(), probe=False)


def test_the_place_of_a_node_is_shown_without_secrets(plan: Plan) -> None:
    assert {node.spec.name: place_of(node.spec) for node in plan.nodes} == {
        "orders": None,
        "files": "out/orders",
        "table": "shop.orders",
        "topic": "orders-v1",
        "hook": "https://me:*****@example.com/rows?token=*****",
        "rows": "shop.orders",
        "screen": "standard output",
        "nothing": None,
    }


def test_a_report_knows_where_everything_is(plan: Plan) -> None:
    progress = Progress()
    progress.set_plan(plan)
    progress.set_running({}, {}, bounded=True)
    progress.meter("files").reject("rows_skipped", 2, stage="decode", reason="decode_error")
    report = report_of(Summary(3, 100, {"files": 98}, 2.0), progress, Settings())
    assert (report.set_aside, report.state, report.resumes) == (2, "./state.db", True)
    assert report.rows_per_second == 100 / (2.0 - report.start_seconds)
    assert report.outputs["files"] == "out/orders"
    forgetful = Settings(state_backend=StateBackend(backend_type=BackendType.IN_MEMORY))
    assert not report_of(Summary(3, 100, {}, 2.0), progress, forgetful).resumes


REPORT = RunReport(
    rows=12_345,
    epochs=3,
    seconds=61.4,
    start_seconds=11.4,
    written={"files": 12_000, "screen": 5},
    outputs={"files": "out/orders"},
    set_aside=7,
    state="./state.db",
    resumes=True,
)


def test_the_block_says_it_in_a_few_lines() -> None:
    assert ["".join(text for text, _ in line) for line in block(REPORT)] == [
        "read       12,345 rows in 3 epochs, 0:01:01 (start 11.4 s), 247 rows/s",
        "written    files   12,000 rows  out/orders",
        "           screen       5 rows",
        "set aside  7 rows",
        "state      ./state.db; run it again and it resumes",
    ]


def test_a_run_without_anything_new_says_so_and_how_to_start_over(capfd: pytest.CaptureFixture[str]) -> None:
    again = replace(REPORT, rows=0, epochs=0, written={"files": 0}, set_aside=0)
    assert ["".join(text for text, _ in line) for line in block(again)] == [
        "read       0 rows in 0 epochs, 0:01:01 (start 11.4 s), 0 rows/s",
        "           nothing new: the sources have only rows that earlier runs have processed",
        "written    files  0 rows  out/orders",
        "state      ./state.db; to start over: streamling state reset",
    ]
    start_logging(format_="text", level="info")
    log_report(again)
    assert "nothing new: the sources have only rows" in capfd.readouterr().err
    for other in (replace(again, stopped=True), replace(again, resumes=False)):
        assert not any("nothing new" in text for line in block(other) for text, _ in line)


def test_a_reset_needs_the_configuration_of_the_run() -> None:
    report = report_of(Summary(0, 0, {}, 1.0), Progress(), Settings(), "my prod.yaml")
    assert report.reset_command == "streamling state reset --config 'my prod.yaml'"


def test_json_logs_have_the_numbers_as_fields(capfd: pytest.CaptureFixture[str]) -> None:
    start_logging(format_="json", level="info")
    log_report(REPORT)
    out, err = capfd.readouterr()
    assert out == ""
    first, *_ = (json.loads(line) for line in err.splitlines())
    assert first["message"] == "done: 12,345 rows in 3 epochs, 61.4 s (start 11.4 s), 247 rows/s"
    assert first["summary"]["written"] == {"files": 12_000, "screen": 5}
    assert first["summary"]["rows_per_second"] == 246.9
    assert "reset_command" not in first["summary"]


def test_text_logs_have_the_lines_they_always_had(capfd: pytest.CaptureFixture[str]) -> None:
    start_logging(format_="text", level="info")
    log_report(REPORT)
    done, written, aside = (line.split("INFO    ")[1] for line in capfd.readouterr().err.splitlines())
    assert done == "done: 12,345 rows in 3 epochs, 61.4 s (start 11.4 s), 247 rows/s"
    assert written == "written: files 12,000, screen 5"
    assert aside == "set aside: 7 rows"


def test_one_row_is_one_row(capfd: pytest.CaptureFixture[str]) -> None:
    start_logging(format_="text", level="info")
    report = replace(REPORT, rows=1, epochs=1, written={"files": 1}, set_aside=1)
    log_report(report)
    logged = capfd.readouterr().err
    assert "done: 1 row in 1 epoch, " in logged
    assert "set aside: 1 row\n" in logged
    shown = "\n".join("".join(text for text, _ in line) for line in block(report))
    assert "rows" not in shown.replace("rows/s", "")


def test_a_run_that_was_stopped_is_not_called_done(capfd: pytest.CaptureFixture[str]) -> None:
    start_logging(format_="text", level="info")
    log_report(replace(REPORT, stopped=True))
    logged = capfd.readouterr().err
    assert "stopped: 12,345 rows in 3 epochs" in logged
    assert "done" not in logged
