"""What people write without us: Structured Streaming from a topic into another one, Avro decoded and encoded again.

The query runs twice in one process. Prints the rows each time, and the seconds from the start of the query to its end.
"""

import sys
import tempfile
import time

from pyspark.sql import SparkSession
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.functions import col, expr, struct, to_json

brokers, topic, target, jars, schema, format_ = sys.argv[1:]
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
        from_avro(expr("substring(value, 6)"), schema).alias("v"), expr(OPERATION).alias("_gs_op"), "headers"
    ).select("v.*", "_gs_op", "headers")
    row = struct(*(col(name) for name in orders.columns if name != "headers"))
    value = to_json(row) if format_ == "json" else to_avro(row)
    out = orders.select(col("id").cast("string").alias("key"), value.alias("value"), "headers")
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        writer = (
            out.writeStream.format("kafka")
            .option("kafka.bootstrap.servers", brokers)
            .option("topic", target)
            .option("includeHeaders", "true")
            .option("kafka.compression.type", "lz4")
            .option("kafka.linger.ms", "200")
            .option("kafka.batch.size", "1000000")
            .option("checkpointLocation", directory)
        )
        running = writer.trigger(availableNow=True).start()
        running.awaitTermination()
        took = time.perf_counter() - began
        rows = sum(progress["numInputRows"] for progress in running.recentProgress)
    print(f"{rows} {took:.3f}", flush=True)
spark.stop()
