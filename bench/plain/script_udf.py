"""The rows and the work of the script, as a Python function that Spark calls for every row: rows per second of each."""

import os
import sys
import time

from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import udf

os.environ["PYSPARK_PYTHON"] = sys.executable
rows, batches = int(sys.argv[1]), int(sys.argv[2])
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()


@udf("id bigint, name string, domain string, total double, city string")
def shape(id, name, email, amount, quantity, city):
    if quantity < 5:
        return None
    total = round(amount * quantity * 100) / 100
    return Row(id=id, name=name.upper(), domain=email.split("@")[1].lower(), total=total, city=city[:3])


for number in range(batches):
    began = time.perf_counter()
    orders = spark.range(number * rows, (number + 1) * rows, numPartitions=2).selectExpr(
        "id",
        "concat('customer ', id % 997) AS name",
        "concat('User', id, '@Example.COM') AS email",
        "round(rand(7) * 1000, 2) AS amount",
        "id % 50 AS quantity",
        "CASE id % 3 WHEN 0 THEN 'Berlin' WHEN 1 THEN 'Paris' ELSE 'Rome' END AS city",
    )
    shaped = orders.select(shape("id", "name", "email", "amount", "quantity", "city").alias("row"))
    shaped.where("row IS NOT NULL").select("row.*").write.format("noop").mode("overwrite").save()
    print(f"{rows / (time.perf_counter() - began):.0f}", flush=True)
spark.stop()
