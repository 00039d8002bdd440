"""The same function as the pipeline's, as a row-by-row UDF of PySpark, in batches: rows per second of each."""

import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, udf

rows, batches = int(sys.argv[1]), int(sys.argv[2])
spark = (
    SparkSession.builder.master("local[*]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.execution.pythonUDF.arrow.enabled", "false")
    .getOrCreate()
)


@udf(returnType="struct<id: bigint, customer: string, amount: double>", useArrow=False)
def shape(id_: int, customer: str, amount: float) -> tuple[int, str, float] | None:
    return None if id_ % 10 == 0 else (id_, customer.upper(), amount * 1.19)


for number in range(batches):
    began = time.perf_counter()
    orders = spark.range(number * rows, (number + 1) * rows).selectExpr(
        "id", "concat('c-', id % 1000) AS customer", "round(rand(7) * 100, 2) AS amount"
    )
    shaped = orders.select(shape("id", "customer", "amount").alias("row")).where(col("row").isNotNull()).select("row.*")
    shaped.write.format("noop").mode("overwrite").save()
    print(f"{rows / (time.perf_counter() - began):.0f}", flush=True)
spark.stop()
