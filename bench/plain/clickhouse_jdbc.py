"""What people write without us: the table through JDBC in PySpark, cut by its key, and the same query into nothing.

Prints rows and seconds of each scan; the first one is cold.
"""

import sys
import time

from pyspark.sql import SparkSession

jars, url, user, password, database, table, rows = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[*]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
orders = (
    spark.read.format("jdbc")
    .option("url", url.replace("http://", "jdbc:clickhouse://") + f"/{database}")
    .option("driver", "com.clickhouse.jdbc.ClickHouseDriver")
    .option("user", user)
    .option("password", password)
    .option("dbtable", table)
    .option("fetchsize", "100000")
    .option("partitionColumn", "id")
    .option("lowerBound", "0")
    .option("upperBound", rows)
    .option("numPartitions", "8")
    .load()
)
shaped = orders.selectExpr("id", "upper(customer) AS customer", "amount * 1.19D AS amount", "at")
for _ in range(2):
    began = time.perf_counter()
    shaped.write.format("noop").mode("overwrite").save()
    print(rows, time.perf_counter() - began, flush=True)
spark.stop()
