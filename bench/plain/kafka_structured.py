"""What people write without us: Structured Streaming over a topic, Avro decoded, a query, everything dropped.

The query runs twice in one process. Prints the rows each time, and the seconds from the start of the query to its end.
"""

import sys
import tempfile
import time

from pyspark.sql import SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import expr

brokers, topic, jars, schema, query = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[*]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
OPERATION = "CASE element_at(headers, 1).value WHEN X'75' THEN 'u' WHEN X'64' THEN 'd' ELSE 'i' END"

for _ in range(2):
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", brokers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("minPartitions", "2")
        .option("kafka.max.poll.records", "5000")
        .load()
    )
    orders = messages.select(
        from_avro(expr("substring(value, 6)"), schema).alias("v"), expr(OPERATION).alias("_gs_op")
    ).select("v.*", "_gs_op")
    orders.createOrReplaceTempView("orders")
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        writer = spark.sql(query).writeStream.format("noop").option("checkpointLocation", directory)
        running = writer.trigger(availableNow=True).start()
        running.awaitTermination()
        took = time.perf_counter() - began
        rows = sum(progress["numInputRows"] for progress in running.recentProgress)
    print(f"{rows} {took:.3f}", flush=True)
spark.stop()
