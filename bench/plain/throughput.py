"""The same rows as the pipeline's, made, filtered and dropped by Spark alone, in batches: rows per second of each."""

import sys
import time

from pyspark.sql import SparkSession

rows, batches = int(sys.argv[1]), int(sys.argv[2])
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
for number in range(batches):
    began = time.perf_counter()
    spark.range(number * rows, (number + 1) * rows).selectExpr(
        "id", "concat('c-', id % 1000) AS customer", "round(rand(7) * 100, 2) AS amount"
    ).createOrReplaceTempView("orders")
    result = spark.sql("SELECT id, upper(customer) AS customer, amount * 2 AS amount FROM orders WHERE id % 10 <> 0")
    result.write.format("noop").mode("overwrite").save()
    print(f"{rows / (time.perf_counter() - began):.0f}", flush=True)
spark.stop()
