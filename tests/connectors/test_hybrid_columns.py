"""What a probe of a hybrid source finds: one schema for all phases, and the offset table."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from streamling.connector import kinds
from streamling.engine.preparation import probe_sources
from streamling.errors import InvalidPipeline, StreamlingError
from streamling.plan.contract import Discovery
from streamling.spec.pipeline import load_pipeline
from streamling.spec.secret import Secret
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import ClickHouseSourceSettings, KafkaSourceSettings
from support.clickhouse_server import ClickHouseServer
from support.schema_registry import SchemaRegistry

pytestmark = pytest.mark.servers

FIELDS = {"id": "long", "name": "string", "tags": {"type": "array", "items": "string"}}


class Probed:
    """A topic that has a schema and no messages, and a database."""

    def __init__(self, clickhouse: ClickHouseServer, registry: SchemaRegistry) -> None:
        self._clickhouse, self._registry = clickhouse, registry
        self._database = clickhouse.database()
        self._topic = f"probed-{uuid.uuid4().hex[:8]}"
        fields = [{"name": n, "type": t} for n, t in FIELDS.items()]
        registry.register(f"{self._topic}-value", json.dumps({"type": "record", "name": "R", "fields": fields}))

    def table(self, columns: str, name: str = "t", order: str = "id") -> None:
        self._clickhouse.execute(
            f"CREATE TABLE {self._database}.{name} ({columns}) ENGINE = MergeTree ORDER BY {order}"
        )

    def probe(
        self, more: str = "", phase: str = "source_type: clickhouse, table_name: t", *, job: bool = False
    ) -> Discovery:
        text = f"""\
sources:
  s:
    type: hybrid
    primary_key: id
    bounded_sources: [{{{phase}}}]
    unbounded_source: {{source_type: kafka, topic: {self._topic}}}
{more}
sinks: {{out: {{type: print, from: s}}}}
"""
        server = self._clickhouse
        settings = Settings(
            job_mode=job,
            clickhouse_source=ClickHouseSourceSettings(
                url=server.url, user=server.user, password=Secret(server.password), database=self._database
            ),
            kafka_source=KafkaSourceSettings(schema_registry_url=self._registry.url),
        )
        found = probe_sources(load_pipeline(text, "x.yaml", kinds.kinds()), settings)["s"]
        if isinstance(found, StreamlingError):
            raise found
        return found


@pytest.fixture
def probed(clickhouse: ClickHouseServer, schema_registry: SchemaRegistry) -> Probed:
    return Probed(clickhouse, schema_registry)


def test_a_column_is_nullable_if_a_table_may_have_null_in_it(probed: Probed) -> None:
    probed.table("id Int64, name Nullable(String), tags Array(String)")
    found = probed.probe()
    assert [(f.name, f.nullable) for f in found.schema][:2] == [("id", False), ("name", True)]
    assert found.primary_key == ("id",)


def test_columns_that_cannot_be_cast_are_named_with_the_reason_of_the_server(probed: Probed) -> None:
    probed.table("id Int64, name Array(String), tags Int64")
    with pytest.raises(InvalidPipeline) as caught:
        probed.probe()
    (problem,) = caught.value.problems
    assert (problem.code, str(problem.where)) == ("SCHEMA_UNUSABLE", "x.yaml:5:61")
    assert "the column 'tags' is Int64, which cannot be cast to list<string>" in problem.message


def test_a_default_offset_table_may_be_missing_and_a_job_does_not_need_it(probed: Probed) -> None:
    probed.table("id Int64, name String, tags Array(String)")
    (caution,) = probed.probe().cautions
    assert caution.code == "OFFSETS_UNKNOWN"
    assert "there is no table 'kafka_offsets'" in caution.message and "from 'earliest' on" in caution.message
    assert probed.probe(job=True).cautions == ()
    probed.table("topic String, partition Int32, offset Int64", "kafka_offsets", "topic")
    assert probed.probe().cautions == ()


def test_an_offset_table_that_the_pipeline_names_must_be_usable(probed: Probed) -> None:
    probed.table("id Int64, name String, tags Array(String)")
    named = "    offset_table: {topic_name: t, table_name: done}"
    with pytest.raises(StreamlingError, match=r"the offset table 'done' cannot be read.*UNKNOWN_TABLE") as caught:
        probed.probe(named)
    assert str(caught.value.where) == "x.yaml:7:19"
    probed.table("topic String, partition Int32, at Int64", "done", "topic")
    with pytest.raises(StreamlingError, match="UNKNOWN_IDENTIFIER"):
        probed.probe(named)
    assert probed.probe(named.replace("done", "done, offset_column: at")).cautions == ()


def test_files_must_have_the_columns_too(probed: Probed, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "name": "one"}\n')
    with pytest.raises(InvalidPipeline) as caught:
        probed.probe(phase=f"source_type: file, format: jsonl, path: {tmp_path}", job=True)
    (problem,) = caught.value.problems
    assert "lack columns of the unbounded source: [tags]" in problem.message
    (tmp_path / "a.jsonl").write_text('{"id": 1, "name": "one", "tags": ["a"], "more": 1}\n')
    assert "more" not in probed.probe(phase=f"source_type: file, format: jsonl, path: {tmp_path}", job=True).schema
