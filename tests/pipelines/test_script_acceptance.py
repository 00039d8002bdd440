"""Scripts between a topic and a table: nested JSON exploded into typed rows, and casts to the declared columns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.avro_frames import framed
from support.harness import Row, Workspace
from support.kafka_broker import KafkaBroker
from support.postgres_server import PostgresServer
from support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.spark, pytest.mark.servers]

CALLS = """
      interface Call {
        path: number[]; from: string; to: string | null; input: string; kind?: number; ok?: boolean; memo?: string;
      }
      const NONE = "0x00000000";
      const selector = (call?: Call): string => (call && call.input.length >= 10 ? call.input.slice(0, 10) : NONE);

      function explode(row: any) {
        const calls: Call[] = JSON.parse(row.calls);
        if (calls.length === 0) return null;
        const byPath = new Map<string, Call>();
        for (const call of calls) byPath.set(`${call.path}`, call);
        return [...calls]
          .sort((a, b) => a.path.length - b.path.length)
          .map((call) => {
            const parent = call.path.length ? byPath.get(`${call.path.slice(0, -1)}`) : undefined;
            const address = [0, ...call.path].join(",");
            return {
              id: `${row.tx}:${address}`, tx: row.tx, block: row.block, timestamp: row.timestamp, address,
              depth: call.path.length, caller: parent?.to ?? call.from, callee: call.to ?? "",
              selector: selector(call), parent_selector: selector(parent), call_type: call.kind ?? 0,
              success: call.ok ?? true, input_size: call.input.length, position: row.id, _gs_op: "d",
            };
          });
      }
"""
COLUMNS = {
    **dict.fromkeys(("id", "tx", "address", "caller", "callee", "selector", "parent_selector", "_gs_op"), "string"),
    **dict.fromkeys(("block", "timestamp", "depth", "call_type", "input_size", "position"), "int64"),
    "success": "boolean",
}
CASTS = """
      (row) => ({
        id: row.id, digits: "7", cut: 2.9, part: "2.5", text: 42, none: null, flag: "true",
      });
"""
CAST_COLUMNS = {
    **dict.fromkeys(("id", "digits", "cut", "none"), "int64"),
    **dict.fromkeys(("text", "missing"), "string"),
    "part": "float64",
    "flag": "boolean",
}


def call(path: list[int], **more: Any) -> Row:
    return {"path": path, "from": "0xaa", "to": "0xbb", "input": "0x1667d875ff", **more}


MESSAGES = [
    [call([]), call([0], **{"from": "0xbb", "to": "0xcc", "input": "0x11112222", "kind": 3})],
    [call([], to=None)],
    [call([], input="0x1234567")],
    [call([]), call([0, 0, 5], **{"from": "0xdd"})],
    [call([], memo="😀 déjà vu")],
]
FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "tx", "type": "string"},
    {"name": "block", "type": "long"},
    {"name": "timestamp", "type": "long"},
    {"name": "calls", "type": "string"},
]


def test_typescript_explodes_calls_and_casts_columns(
    place: Workspace, kafka: KafkaBroker, schema_registry: SchemaRegistry, postgres: PostgresServer
) -> None:
    database, topic = postgres.database(), kafka.topic("calls")
    schema = json.dumps({"type": "record", "name": "R", "fields": FIELDS})
    id_ = schema_registry.register(f"{topic}-value", schema)
    rows = [
        {"id": n, "tx": f"t{n}", "block": 51666906, "timestamp": 1790123159, "calls": json.dumps(calls)}
        for n, calls in enumerate(MESSAGES)
    ]
    kafka.produce(topic, [framed(id_, schema, row, "c", b"%d" % n) for n, row in enumerate(rows)])
    place.write(f"""
sources:
  blocks: {{type: kafka, topic: {topic}, primary_key: id}}
transforms:
  exploded:
    type: script
    from: blocks
    language: typescript
    primary_key: id
    schema: {json.dumps(COLUMNS)}
    script: |{CALLS}
  cast:
    type: script
    from: blocks
    language: javascript
    primary_key: id
    schema: {json.dumps(CAST_COLUMNS)}
    script: |{CASTS}
sinks:
  calls: {{type: postgres, from: exploded, schema: public, table: calls, batch_size: 1}}
  casts: {{type: postgres, from: cast, schema: public, table: casts}}
""")
    child = place.start_warm(
        KAFKA_SOURCE__BROKERS=kafka.brokers,
        KAFKA_SOURCE__SCHEMA_REGISTRY_URL=schema_registry.url,
        CHECKPOINT_INTERVAL_SEC=1,
        **database.settings(),
    )
    child.until_epochs(1)
    child.stop().succeeded()
    wanted = "position, depth, address, caller, callee, selector, parent_selector, call_type, success"
    assert database.rows(f"SELECT {wanted} FROM calls ORDER BY position, depth") == [
        (0, 0, "0", "0xaa", "0xbb", "0x1667d875", "0x00000000", 0, True),
        (0, 1, "0,0", "0xbb", "0xcc", "0x11112222", "0x1667d875", 3, True),
        (1, 0, "0", "0xaa", "", "0x1667d875", "0x00000000", 0, True),
        (2, 0, "0", "0xaa", "0xbb", "0x00000000", "0x00000000", 0, True),
        (3, 0, "0", "0xaa", "0xbb", "0x1667d875", "0x00000000", 0, True),
        (3, 3, "0,0,0,5", "0xdd", "0xbb", "0x1667d875", "0x00000000", 0, True),
        (4, 0, "0", "0xaa", "0xbb", "0x1667d875", "0x00000000", 0, True),
    ]
    assert database.rows("SELECT DISTINCT block, timestamp FROM calls") == [(51666906, 1790123159)]
    found = database.rows("SELECT id, digits, cut, part, text, none, flag, missing FROM casts ORDER BY id")
    assert found == [(n, 7, 2, 2.5, "42", None, True, None) for n in range(5)]
