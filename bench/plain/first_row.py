"""What people write without us: a session, a frame, a query, the first row on standard output."""

from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[3]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.range(100).selectExpr("id", "concat('c-', id % 3) AS customer")
rows.createOrReplaceTempView("orders")
for row in spark.sql("SELECT id, upper(customer) AS customer FROM orders WHERE id >= 4").toArrow().to_pylist():
    print(row, flush=True)
spark.stop()
