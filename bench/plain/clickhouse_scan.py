"""Columns of the whole table as Arrow with the usual client, in any order: rows and seconds of each scan."""

import sys
import time
from urllib.parse import urlsplit

import clickhouse_connect

url, user, password, database, table, columns, times = sys.argv[1:]
address = urlsplit(url)
client = clickhouse_connect.get_client(
    host=address.hostname,
    port=address.port,
    username=user,
    password=password,
    database=database,
    compress=False,
    autogenerate_session_id=False,  # the server may hold the session of a scan a moment longer than the client
)
for _ in range(int(times)):
    began, rows = time.perf_counter(), 0
    settings = {"output_format_arrow_compression_method": "none"}
    with client.query_arrow_stream(f"SELECT {columns} FROM {table}", settings=settings) as batches:
        for batch in batches:
            rows += batch.num_rows
    print(rows, time.perf_counter() - began, flush=True)
