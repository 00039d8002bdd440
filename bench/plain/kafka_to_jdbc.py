"""What people write without us: Structured Streaming over a topic, each batch appended to a table through JDBC.

Prints the rows, and the seconds from the start of the query to its end. Rows are only added: JDBC knows no updates.
"""

import json
import sys
import tempfile
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import expr

brokers, topic, jars, schema, server_json, table = sys.argv[1:]
server = json.loads(server_json)
URL = f"jdbc:postgresql://{server['host']}:{server['port']}/{server['dbname']}?sslmode=disable"
PROPERTIES = {"user": server["user"], "password": server["password"], "driver": "org.postgresql.Driver"}
QUERY = "SELECT id, upper(customer) AS customer, product, country, note, amount, price, created, quantity FROM orders"
spark = (
    SparkSession.builder.master("local[*]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)


def append(batch: DataFrame, _number: int) -> None:
    batch.write.jdbc(URL, table, mode="append", properties=PROPERTIES)


messages = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", brokers)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .option("minPartitions", "2")
    .option("maxOffsetsPerTrigger", "200000")
    .load()
)
orders = messages.select(from_avro(expr("substring(value, 6)"), schema).alias("v")).select("v.*")
orders.createOrReplaceTempView("orders")
with tempfile.TemporaryDirectory() as directory:
    began = time.perf_counter()
    writer = spark.sql(QUERY).writeStream.foreachBatch(append).option("checkpointLocation", directory)
    running = writer.trigger(availableNow=True).start()
    running.awaitTermination()
    took = time.perf_counter() - began
    rows = sum(progress["numInputRows"] for progress in running.recentProgress)
print(f"{rows} {took:.3f}", flush=True)
spark.stop()
