"""What people write who do not take Spark: Flink SQL over a topic, Avro decoded, a query, everything dropped.

The query runs twice in one process, from the topic's begin to what is its end then. Prints, each time, the rows that it
was told of and the seconds that the query took. The first time the start of Java is among them.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

brokers, registry, topic, rows, query, java, jars = sys.argv[1:]
SETTINGS = """\
execution.target: local
parallelism.default: 1
table.dml-sync: true
pipeline.object-reuse: true
"""
STATEMENTS = f"""\
CREATE TABLE orders (
  id BIGINT NOT NULL, customer STRING NOT NULL, product STRING NOT NULL, country STRING NOT NULL, note STRING NOT NULL,
  amount DOUBLE NOT NULL, price DECIMAL(20, 4) NOT NULL, created BIGINT NOT NULL, quantity INT NOT NULL,
  headers MAP<STRING, BYTES> METADATA,
  _gs_op AS CASE DECODE(headers['dbz.op'], 'UTF-8') WHEN 'u' THEN 'u' WHEN 'd' THEN 'd' ELSE 'i' END
) WITH (
  'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{brokers}',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
  'value.format' = 'avro-confluent', 'value.avro-confluent.url' = '{registry}'
);
CREATE TABLE dropped (
  id BIGINT, customer STRING, product STRING, country STRING, note STRING, amount DOUBLE, price DECIMAL(20, 4),
  created BIGINT, quantity INT, _gs_op STRING
) WITH ('connector' = 'blackhole');
INSERT INTO dropped {query};
INSERT INTO dropped {query};
"""
# What Flink's own scripts give to Java, which keeps its inner parts closed otherwise.
OPENED = (
    "lang",
    "net",
    "io",
    "nio",
    "lang.reflect",
    "text",
    "time",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
)
DONE = "Complete execution of the SQL update statement"

with tempfile.TemporaryDirectory() as directory:
    folder = Path(directory)
    (folder / "config.yaml").write_text(SETTINGS)
    (folder / "statements.sql").write_text(STATEMENTS)
    command = [java, "-Xmx1g", *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPENED), "-cp", jars]
    command += ["org.apache.flink.table.client.SqlClient", "embedded", "-f", str(folder / "statements.sql")]
    began, done = time.perf_counter(), 0
    environment = dict(os.environ, FLINK_CONF_DIR=directory)
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        said = []
        for line in process.stdout or ():
            said.append(line)
            if DONE in line:
                now = time.perf_counter()
                print(f"{rows} {now - began:.3f}", flush=True)
                began, done = now, done + 1
    if process.returncode or done != 2:
        sys.exit("".join(said))
