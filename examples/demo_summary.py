"""What the demo wrote: reads the files as any other program would."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq


def main(directory: Path) -> None:
    files = sorted((directory / "orders").glob("*.parquet"))
    orders = pq.ParquetDataset(files).read()
    unique = pc.count_distinct(orders["order_id"]).as_py()
    print(f"{directory}/orders: {len(files)} files, {orders.num_rows:,} rows, {unique:,} different order ids")
    kept = orders.filter(pc.equal(orders["_gs_op"], "i"))
    sums = [("total", "sum"), ("points", "sum"), ("order_id", "count")]
    totals = (
        kept.group_by(["channel", "country"])
        .aggregate(sums)
        .sort_by([("channel", "descending"), ("country", "ascending")])
    )
    for row in totals.to_pylist():
        print(
            f"  {row['channel']:<5}  {row['country']}  {row['order_id_count']:>7,} orders  {row['total_sum']:>15,} EUR"
            f"  {row['points_sum']:>9,} points"
        )
    letters = [
        json.loads(line) for file in sorted((directory / "dead-letters").glob("*.jsonl")) for line in file.open()
    ]
    print(f"{directory}/dead-letters: {len(letters)} rows that could not be read")
    for letter in letters:
        print(f"  row {letter['source']['row']} of {Path(letter['source']['file']).name}: {letter['reason_text']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
