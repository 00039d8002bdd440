"""`plan` shows the graph of a pipeline and the facts of its nodes; `explain` explains an error code."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamling.cli.main import main
from streamling.errors import CONDITIONS

PIPELINE = """\
sources:
  Shop.Orders: {type: generator, rows: 3, primary_key: id, columns: {id: id, name: "concat('n', id)"}}
  clicks: {type: kafka, topic: clicks, primary_key: id}
transforms:
  seen: {type: dynamic_table, backend_type: InMemory, backend_entity_name: seen}
  big:
    type: sql
    primary_key: id
    sql: SELECT id, nullif(name, 'n1') AS title FROM shop.orders WHERE dynamic_table_check('seen', name)
  both: {type: sql, primary_key: id, sql: SELECT id FROM big UNION ALL SELECT id FROM shop.orders}
sinks:
  lines: {type: print, from: BIG}
  odd "name" <b>: {type: blackhole, from: both}
  files: {type: file, from: both, path: out, format: json, primary_key: id}
  hook: {type: webhook, from: clicks, url: https://example.com/}
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The current directory, with the pipeline; restores logging."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RUST_LOG", raising=False)
    Path("pipeline.yaml").write_text(PIPELINE)
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["plan"]) == 0
    return capsys.readouterr().out.splitlines()


def paragraph(shown: list[str], heading: str) -> list[str]:
    start = shown.index(heading)
    end = shown.index("", start) if "" in shown[start:] else len(shown)
    return shown[start + 1 : end]


# Text


def test_the_graph_is_a_tree_below_each_source(shown: list[str]) -> None:
    assert shown[: shown.index("Shop.Orders: generator source") - 1] == [
        "Shop.Orders",
        "├─ big",
        "│  ├─ both",
        '│  │  ├─ odd "name" <b>',
        "│  │  └─ files",
        "│  └─ lines",
        "└─ both (see above)",
        "clicks",
        "└─ hook",
        "seen",
    ]


def test_a_source_is_shown_with_readers_key_and_columns(shown: list[str]) -> None:
    assert paragraph(shown, "Shop.Orders: generator source") == [
        "  feeds:     big, both",
        "  key:       id",
        "  runs:      on the driver up to 20,000 rows per epoch, on the executors above that",
        "  columns:   id      int64 not null",
        "             name    string not null",
        "             _gs_op  string not null",
    ]


@pytest.mark.parametrize(
    ("transforms", "reads", "runs"),
    [
        ("{}", "rows", "on the driver"),
        ("{q: {type: sql, sql: SELECT id FROM rows, primary_key: id}}", "q", "on the driver up to 20,000 rows"),
    ],
    ids=["nothing between", "a query between"],
)
def test_rows_that_nothing_computes_are_read_on_the_driver(
    transforms: str, reads: str, runs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "{type: file, path: '*.csv', format: csv, schema: {id: int64}, primary_key: id}"
    text = f"sources: {{rows: {source}}}\ntransforms: {transforms}\nsinks: {{out: {{type: print, from: {reads}}}}}\n"
    Path("pipeline.yaml").write_text(text)
    assert main(["plan", "--format", "json"]) == 0
    nodes = {node["name"]: node for node in json.loads(capsys.readouterr().out)}
    assert nodes["rows"]["runs"].split(" per epoch")[0] == runs


def test_a_transform_is_shown_with_what_it_reads_and_asks(shown: list[str]) -> None:
    assert paragraph(shown, "big: sql transform") == [
        "  reads:     Shop.Orders",
        "  asks:      seen",
        "  feeds:     both, lines",
        "  key:       id",
        "  runs:      in Spark",
        "  columns:   id      int64 not null",
        "             title   string",
        "             _gs_op  string not null",
    ]


def test_a_sink_is_shown_with_its_guarantee(shown: list[str]) -> None:
    assert paragraph(shown, "files: file sink")[:3] == [
        "  reads:     both",
        "  key:       id",
        "  delivery:  exactly once",
    ]
    assert "  delivery:  at least once" in paragraph(shown, "lines: print sink")


def test_columns_that_only_another_system_knows_are_said_to_be(shown: list[str]) -> None:
    assert "  columns:   not known without --probe" in paragraph(shown, "clicks: kafka source")
    assert "  columns:   not known without --probe" in paragraph(shown, "hook: webhook sink")
    assert not [line for line in paragraph(shown, "seen: dynamic_table transform") if "columns" in line]


def test_no_line_ends_with_spaces(shown: list[str]) -> None:
    assert [line for line in shown if line != line.rstrip()] == []


# Mermaid


def test_a_flowchart_has_every_node_and_every_arrow(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "pipeline.yaml", "--format", "mermaid"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "flowchart LR",
        '  node_0(["Shop.Orders<br/><small>generator</small>"])',
        '  node_1(["clicks<br/><small>kafka</small>"])',
        '  node_2["seen<br/><small>dynamic_table</small>"]',
        '  node_3["big<br/><small>sql</small>"]',
        '  node_4["both<br/><small>sql</small>"]',
        '  node_5[("lines<br/><small>print</small>")]',
        '  node_6[("odd #34;name#34; #60;b#62;<br/><small>blackhole</small>")]',
        '  node_7[("files<br/><small>file</small>")]',
        '  node_8[("hook<br/><small>webhook</small>")]',
        "  node_0 --> node_3",
        "  node_2 -.-> node_3",
        "  node_3 --> node_4",
        "  node_0 --> node_4",
        "  node_3 --> node_5",
        "  node_4 --> node_6",
        "  node_4 --> node_7",
        "  node_1 --> node_8",
    ]


# JSON


@pytest.fixture
def nodes(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    assert main(["plan", "pipeline.yaml", "--format", "json"]) == 0
    return {node["name"]: node for node in json.loads(capsys.readouterr().out)}


def test_json_has_the_nodes_behind_what_they_read(nodes: dict[str, dict[str, Any]]) -> None:
    assert list(nodes) == [
        "Shop.Orders", "clicks", "seen", "big", "both", "lines", 'odd "name" <b>', "files", "hook",
    ]  # fmt: skip
    assert {name: node["reads"] for name, node in nodes.items() if node["reads"]} == {
        "big": ["Shop.Orders"],
        "both": ["big", "Shop.Orders"],
        "lines": ["big"],
        'odd "name" <b>': ["both"],
        "files": ["both"],
        "hook": ["clicks"],
    }


def test_json_has_all_that_is_known_of_a_node(nodes: dict[str, dict[str, Any]]) -> None:
    assert nodes["big"] == {
        "name": "big",
        "role": "transform",
        "type": "sql",
        "reads": ["Shop.Orders"],
        "asks": ["seen"],
        "joins": [],
        "primary_key": ["id"],
        "delivery": None,
        "runs": "in Spark",
        "columns": [
            {"name": "id", "type": "int64", "nullable": False},
            {"name": "title", "type": "string", "nullable": True},
            {"name": "_gs_op", "type": "string", "nullable": False},
        ],
    }
    assert (nodes["files"]["role"], nodes["files"]["delivery"]) == ("sink", "exactly once")
    assert nodes["clicks"]["columns"] is None


# All forms


@pytest.mark.parametrize("format_", ["text", "mermaid", "json"])
def test_warnings_stand_on_standard_error(format_: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--format", format_]) == 0
    out, err = capsys.readouterr()
    assert "Warning" not in out
    assert "Warning: kafka source 'clicks': its columns were not looked up" in err


@pytest.mark.parametrize("format_", ["text", "mermaid", "json"])
def test_a_wrong_pipeline_has_no_plan(format_: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pipeline.yaml").write_text(PIPELINE.replace("from: BIG", "from: bigg"))
    assert main(["plan", "--format", format_]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "print sink 'lines': there is no source or transform named 'bigg' [NODE_NOT_FOUND]" in err
    assert "Traceback" not in err


def test_an_empty_pipeline_has_an_empty_plan(capsys: pytest.CaptureFixture[str]) -> None:
    Path("pipeline.yaml").write_text("sources: {}\nsinks: {}\n")
    for format_, expected in (("text", "\n"), ("mermaid", "flowchart LR\n"), ("json", "[]\n")):
        assert main(["plan", "--format", format_]) == 0
        assert capsys.readouterr().out == expected


# Error codes


@pytest.mark.parametrize("code", ["SQL_TYPES", "sql_types", "[SQL_TYPES]"])
def test_a_code_is_explained_however_it_is_copied(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", code]) == 0
    out = capsys.readouterr().out
    assert out.startswith("SQL_TYPES\n\nAn operator or function in the SQL")
    assert "TRY_CAST" in out


@pytest.mark.parametrize("code", sorted(CONDITIONS))
def test_every_code_has_an_explanation_and_a_remedy_that_fit_a_terminal(
    code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", code]) == 0
    paragraphs = capsys.readouterr().out.split("\n\n")
    assert len(paragraphs) == 3
    assert all(len(line) <= 100 for paragraph in paragraphs for line in paragraph.splitlines())


def test_an_unknown_code_is_exit_1_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "SQL_TYPE"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "there is no error code 'SQL_TYPE'; did you mean 'SQL_TYPES'?\n")
    assert main(["explain", "xyzzy"]) == 1
    assert "`streamling explain` lists them all" in capsys.readouterr().err


def test_without_a_code_all_are_listed_one_to_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(CONDITIONS)
