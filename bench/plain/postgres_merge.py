"""Rows that are ready in memory to a keyed table, by hand: COPY into a temporary table, then one merge, per 200,000.

Prints `rows seconds` for inserts, then for updates of the same keys. Nothing is decoded, sorted or encoded while the
time runs.
"""

import json
import sys
import time
from decimal import Decimal

import psycopg
import pyarrow as pa
from pgpq import ArrowToPostgresBinaryEncoder

BATCH, STRIDE, KINDS = 200_000, 611_953, 10_000
COLUMNS = ("id", "customer", "product", "country", "note", "amount", "price", "created", "quantity")
TYPES = "id bigint, customer text, product text, country text, note text, amount float8, price numeric, "
TYPES += "created bigint, quantity int"
server, table, rows = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])


def encoded(first: int, shift: int) -> list[bytes]:
    places = sorted(range(first, min(first + BATCH, rows)), key=lambda place: place * STRIDE % rows)
    kinds = [(place + shift) % KINDS for place in places]
    mixed = [kind * 7919 for kind in kinds]
    columns = [
        pa.array([place * STRIDE % rows for place in places], pa.int64()),
        pa.array([f"CUSTOMER-{m % 9973}" for m in mixed]),
        pa.array([f"product-{m % 997}" for m in mixed]),
        pa.array([("DE", "FR", "JP", "US")[kind % 4] for kind in kinds]),
        pa.array([f"note {kind}" for kind in kinds]),
        pa.array([m % 100_000 / 100 for m in mixed], pa.float64()),
        pa.array([Decimal(m * 31 - 5_000_000).scaleb(-4) for m in mixed], pa.decimal128(20, 4)),
        pa.array([1_700_000_000_000 + kind for kind in kinds], pa.int64()),
        pa.array([kind % 100 for kind in kinds], pa.int32()),
    ]
    batch = pa.RecordBatch.from_arrays(columns, names=list(COLUMNS))
    encoder = ArrowToPostgresBinaryEncoder(batch.schema)
    return [encoder.write_header(), encoder.write_batch(batch), encoder.finish()]


changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in COLUMNS[1:])
names = ", ".join(COLUMNS)
with psycopg.connect(**server, sslmode="disable") as connection:
    for shift in (0, 1):
        batches = [encoded(first, shift) for first in range(0, rows, BATCH)]
        began = time.perf_counter()
        for pieces in batches:
            with connection.cursor() as cursor:
                cursor.execute(f"CREATE TEMPORARY TABLE IF NOT EXISTS staged ({TYPES}) ON COMMIT DELETE ROWS")
                with cursor.copy(f"COPY staged ({names}) FROM STDIN (FORMAT binary)") as copy:
                    for piece in pieces:
                        copy.write(piece)
                merge = (
                    f"INSERT INTO {table} ({names}) SELECT {names} FROM staged ON CONFLICT (id) DO UPDATE SET {changes}"
                )
                cursor.execute(merge)
            connection.commit()
        print(f"{rows} {time.perf_counter() - began:.3f}", flush=True)
