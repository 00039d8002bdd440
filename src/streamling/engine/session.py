"""The Spark session: settings, and the connection to a JVM that is already starting."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamling.engine.jvm import Jvm, spark_home
from streamling.plan.spark_settings import SESSION_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# What pyspark imports when it first meets Arrow, half a second of work: done while the JVM boots instead.
_USED_LATER = ("pandas", "pyspark.sql.pandas.conversion", "pyspark.sql.pandas.serializers", "pyspark.sql.pandas.types")


def spark_conf(overrides: Mapping[str, str], *, application: str = "", sinks: int = 1) -> dict[str, str]:
    """Spark settings of a run: ours, then the user's. The JVM is launched before the number of sinks is known."""
    cores = os.cpu_count() or 1
    conf = {
        "spark.app.name": f"streamling {application}".strip(),
        # A slot per sink beyond the cores: a small job never waits behind one that holds all of them.
        "spark.master": f"local[{cores + sinks}]",
        "spark.driver.memory": "1g",
        # A result beyond this is computed in pieces instead; three copies of it fit the default heap.
        "spark.driver.maxResultSize": "256m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # What the status listener keeps is never shown; it would be garbage that grows with every epoch.
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "100",
        "spark.sql.ui.retainedExecutions": "5",
        "spark.scheduler.mode": "FAIR",
        "spark.log.level": "WARN",
        "spark.sql.catalogImplementation": "in-memory",
        **SESSION_SETTINGS,
        "spark.sql.adaptive.enabled": "false",
        # Rows in hand are few: one task for them.
        "spark.sql.leafNodeDefaultParallelism": "1",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        # Remembers the Python line of every call for error messages; our errors name nodes instead.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "streamling.engine.worker_daemon",
        "spark.python.unix.domain.socket.enabled": "true",
    }
    return conf | dict(overrides)


def open_session(jvm: Jvm, conf: Mapping[str, str]) -> SparkSession:
    """The session on a launched JVM. Parser and Arrow warm up beside it, on the core it leaves idle."""
    os.environ["SPARK_HOME"] = str(spark_home())
    os.environ["PYSPARK_PYTHON"] = conf.get("spark.pyspark.python", sys.executable)
    from pyspark import SparkContext
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    for module in _USED_LATER:
        import_module(module)
    port, secret = jvm.gateway()
    # pyspark takes the gateway from its environment; children must not inherit the secret.
    os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = str(port), secret
    try:
        SparkContext._ensure_initialized()
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    warm = threading.Thread(target=_warm_up, args=(SparkContext._jvm,), name="warm-up", daemon=True)
    warm.start()
    session = SparkSession.builder.config(map=dict(conf)).getOrCreate()
    warm.join()
    # It would print every error a second time, as JSON with the whole Java stack.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    # When the JVM leaves first, this server would print a stack trace about its lost connection.
    session.sparkContext._accumulatorServer.handle_error = lambda *_: None
    return session


def _warm_up(jvm: Any) -> None:
    """Load what the first query needs while the context starts. Failing here costs time, nothing else."""
    try:
        sql = jvm.org.apache.spark.sql
        sql.execution.SparkSqlParser().parsePlan("SELECT a + 1 AS b, upper('c') AS d FROM t WHERE a > 0")
        sql.catalyst.analysis.FunctionRegistry.builtin()
        sql.util.ArrowUtils.rootAllocator()
    except Exception:  # any failure means only that the first query does this work itself
        return
