"""What the demo wrote: reads the Parquet files as any other program would."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq


def main(directory: Path) -> None:
    files = sorted(directory.glob("*.parquet"))
    orders = pq.ParquetDataset(files).read()
    unique = pc.count_distinct(orders["order_id"]).as_py()
    print(f"{directory}: {len(files)} files, {orders.num_rows:,} rows, {unique:,} different order ids")
    kept = orders.filter(pc.equal(orders["_gs_op"], "i"))
    totals = kept.group_by("country").aggregate([("total", "sum"), ("order_id", "count")]).sort_by("country")
    for row in totals.to_pylist():
        print(f"  {row['country']}  {row['order_id_count']:>7,} orders  {row['total_sum']:>15,} EUR")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
