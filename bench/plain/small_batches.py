"""Batches of 100 rows through a warm session, one after the other: in as Arrow, SQL, out as Arrow."""

import sys
import time

import pyarrow as pa
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[3]").config("spark.ui.enabled", "false").getOrCreate()
for number in range(int(sys.argv[1])):
    began = time.perf_counter()
    table = pa.table({"id": pa.arange(number * 100, number * 100 + 100)})
    spark.createDataFrame(table).selectExpr("id", "concat('c-', id % 3) AS customer").createOrReplaceTempView("orders")
    spark.sql("SELECT id, upper(customer) AS customer FROM orders WHERE id % 10 <> 0").toArrow()
    print(f"{(time.perf_counter() - began) * 1000:.1f}", flush=True)
spark.stop()
