"""`run`, `validate` and `plan` share the same stages; only a run requires what it needs to run."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from streamling.connector import Discovery, Kind, kinds
from streamling.engine import preparation
from streamling.engine.preparation import check, prepare
from streamling.errors import SCHEMA_NOT_FOUND, InvalidPipeline, PermanentError
from streamling.plan.types import INT64, OPERATION_FIELD, STRING, Field, Schema
from streamling.sinks.blackhole import BlackholeOptions
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import Keyed, SourceOptions
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import PostgresConnection

ROWS = Schema((Field("id", INT64, nullable=False), Field("name", STRING), OPERATION_FIELD))
PIPELINE = """\
sources:
  a: {type: asked}
transforms:
  t: {type: sql, primary_key: id, sql: "SELECT id, upper(name) AS n FROM a"}
sinks:
  out: {type: memory, from: t}
  raw: {type: memory, from: a}
"""


class AskedOptions(Keyed, SourceOptions):
    """A source whose columns have to be looked up."""

    topic: str = "x"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Registers the kind `asked`; gives the names of the nodes that were looked up."""
    names: list[str] = []

    def probe(node: NodeSpec, settings: Settings, seconds: float) -> Discovery:
        names.append(node.name)
        if node.name.startswith("bad"):
            raise PermanentError(SCHEMA_NOT_FOUND, f"{node.described()}: nobody knows it", where=node.where)
        return Discovery(ROWS, ("id",))

    kinds.kinds()
    kind = Kind(Role.SOURCE, "asked", AskedOptions, probe=probe)
    monkeypatch.setitem(kinds._kinds, (Role.SOURCE, "asked"), kind)
    return names


def written(directory: Path, text: str) -> Path:
    (directory / "p.yaml").write_text(text)
    return directory / "p.yaml"


def codes(error: InvalidPipeline) -> list[tuple[str, str | None]]:
    return [(p.code, p.node) for p in error.problems]


def test_the_file_alone_is_checked_without_asking_anybody(tmp_path: Path, asked: list[str]) -> None:
    plan = check(written(tmp_path, PIPELINE), Settings(), probe=False)
    assert asked == []
    assert [(c.code, c.node) for c in plan.cautions] == [("SCHEMA_UNKNOWN", "a"), ("NOT_RUNNABLE", "a")]
    assert [n.columns for n in plan.nodes] == [None, None, None, None]


def test_a_query_over_unknown_columns_is_checked_as_far_as_it_goes(tmp_path: Path, asked: list[str]) -> None:
    text = PIPELINE.replace("upper(name)", "uper(name) || lowr(name)").replace("from: a}", "from: nobody}")
    with pytest.raises(InvalidPipeline) as caught:
        check(written(tmp_path, text), Settings(), probe=False)
    assert codes(caught.value) == [
        ("SQL_UNKNOWN_FUNCTION", "t"),
        ("SQL_UNKNOWN_FUNCTION", "t"),
        ("NODE_NOT_FOUND", "raw"),
    ]


def test_probing_tells_columns_and_keys(tmp_path: Path, asked: list[str]) -> None:
    plan = check(written(tmp_path, PIPELINE), Settings(), probe=True)
    assert asked == ["a"]
    assert plan.node("t").schema.names == ("id", "n", "_gs_op")
    assert plan.node("raw").primary_key == ("id",)


def test_what_was_learned_is_checked(tmp_path: Path, asked: list[str]) -> None:
    text = PIPELINE.replace("upper(name)", "upper(nmae)").replace("type: asked", "type: asked, primary_key: key")
    with pytest.raises(InvalidPipeline) as caught:
        check(written(tmp_path, text), Settings(), probe=True)
    assert codes(caught.value) == [("PRIMARY_KEY", "a"), ("SQL_UNKNOWN_COLUMN", "t")]


def test_a_lookup_that_fails_is_a_problem_among_others(tmp_path: Path, asked: list[str]) -> None:
    text = PIPELINE.replace("  a: {type: asked}\n", "  a: {type: asked}\n  bad: {type: asked}\n  bad2: {type: asked}\n")
    text = text.replace("from: a}", "from: bad}\n  other: {type: memory, from: bad2, batch_size: none}")
    with pytest.raises(InvalidPipeline) as caught:
        check(written(tmp_path, text), Settings(), probe=True)
    assert codes(caught.value) == [("SCHEMA_NOT_FOUND", "bad"), ("SCHEMA_NOT_FOUND", "bad2"), ("WRONG_TYPE", "other")]


def test_sources_are_looked_up_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = threading.Barrier(3, timeout=20)

    def probe(node: NodeSpec, settings: Settings, seconds: float) -> Discovery:
        meeting.wait()
        return Discovery(ROWS, ("id",))

    kinds.kinds()
    monkeypatch.setitem(kinds._kinds, (Role.SOURCE, "asked"), Kind(Role.SOURCE, "asked", AskedOptions, probe=probe))
    names = ("a", "b", "c")
    text = "sources:\n" + "".join(f"  {n}: {{type: asked}}\n" for n in names)
    text += "sinks:\n" + "".join(f"  o{n}: {{type: memory, from: {n}}}\n" for n in names)
    assert len(check(written(tmp_path, text), Settings(), probe=True).nodes) == 6


def test_a_lookup_that_hangs_does_not_hold_up_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    released = threading.Event()

    def probe(node: NodeSpec, settings: Settings, seconds: float) -> Discovery:
        released.wait(60)
        return Discovery(ROWS)

    monkeypatch.setattr(preparation, "PROBE_SECONDS", 0.2)
    monkeypatch.setitem(kinds._kinds, (Role.SOURCE, "asked"), Kind(Role.SOURCE, "asked", AskedOptions, probe=probe))
    began = time.monotonic()
    with pytest.raises(InvalidPipeline) as caught:
        check(written(tmp_path, PIPELINE), Settings(), probe=True)
    assert time.monotonic() - began < 30
    released.set()
    assert codes(caught.value) == [("SCHEMA_NOT_FOUND", "a")]
    assert "within" in caught.value.message


def test_a_run_refuses_what_it_cannot_run_and_names_everything(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(kinds._kinds, (Role.SINK, "planned"), Kind(Role.SINK, "planned", BlackholeOptions))
    text = PIPELINE.replace("type: memory, from: t", "type: planned, from: t")
    with pytest.raises(InvalidPipeline) as caught:
        prepare(written(tmp_path, text), Settings())
    assert codes(caught.value) == [("NOT_RUNNABLE", "a"), ("NOT_RUNNABLE", "out")]
    assert [p.where and p.where.line for p in caught.value.problems] == [2, 6]


def test_job_mode_names_every_source_that_never_ends(tmp_path: Path) -> None:
    text = "sources:\n  b: {type: generator}\n  a: {type: generator}\n  c: {type: generator, rows: 1}\nsinks:\n"
    text += "".join(f"  o{n}: {{type: memory, from: {n}, primary_key: id}}\n" for n in "abc")
    with pytest.raises(InvalidPipeline) as caught:
        check(written(tmp_path, text), Settings(job_mode=True), probe=False)
    assert caught.value.code == "JOB_MODE"
    assert caught.value.message == "job_mode does not support sources that never end: 'a', 'b'"


def test_a_connection_that_fits_no_sink_is_named(tmp_path: Path) -> None:
    text = (
        "sources: {n: {type: generator, rows: 1, primary_key: id}}\n"
        "sinks: {My-Sink: {type: postgres, from: n, schema: s, table: t}}\n"
    )
    own = {"my_sink": PostgresConnection(), "my_snk": PostgresConnection()}
    plan = check(written(tmp_path, text), Settings(postgres_sink_connections=own), probe=False)
    [caution] = [caution for caution in plan.cautions if caution.code == "UNKNOWN_SETTING"]
    assert (
        caution.message
        == "'postgres_sink_connections.my_snk' does not match any Postgres sink or lookup of the pipeline"
    )
    assert caution.hint == "did you mean 'my_sink'?"
