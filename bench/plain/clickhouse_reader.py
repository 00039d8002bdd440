"""The reader of our source alone, in the ranges of large epochs, without an engine: rows and seconds of each scan."""

import sys
import time

import pyarrow as pa

from streamling.connector import Room, kinds
from streamling.engine.preparation import probe_sources
from streamling.spec.pipeline import load_pipeline
from streamling.spec.secret import Secret
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import ClickHouseSourceSettings

url, user, password, database, table, columns, times = sys.argv[1:]
text = f"""
sources: {{s: {{type: clickhouse, table_name: {table}, columns: '{columns}'}}}}
sinks: {{out: {{type: blackhole, from: s}}}}
"""
pipeline = load_pipeline(text, "pipeline.yaml", kinds.kinds())
block = ClickHouseSourceSettings(url=url, user=user, password=Secret(password), database=database)
settings = Settings(clickhouse_source=block)
schema = probe_sources(pipeline, settings)["s"].schema
source = kinds.build(pipeline.sources[0], settings)
source.prepare(schema, schema.names)
reader = source.reader()
for _ in range(int(times)):
    began, rows = time.perf_counter(), 0
    source.open({})
    while (offer := source.offer(Room(2_000_000, 2, 10_000))) is not None:
        for part in offer.slices[0].parts:
            rows += sum(batch.num_rows for batch in reader.read(part) if isinstance(batch, pa.RecordBatch))
    print(rows, time.perf_counter() - began, flush=True)
source.close()
