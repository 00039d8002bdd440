"""What people write without us: a file read with its schema, a query, Parquet files."""

import sys

from pyspark.sql import SparkSession

format_, path, out, query, memory = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[*]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", memory)
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
if format_ == "csv":
    schema = "id BIGINT, customer STRING, amount DOUBLE, at TIMESTAMP_NTZ, note STRING"
    orders = spark.read.csv(path, schema=schema, header=True)
else:
    orders = spark.read.parquet(path)
orders.createOrReplaceTempView("orders")
spark.sql(query).write.parquet(out)
spark.stop()
