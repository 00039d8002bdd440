"""The Spark session: settings, and the connection to a JVM that is already starting."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamling.engine.process.cores import cores, local_cores
from streamling.engine.process.jvm import Jvm, spark_home
from streamling.engine.process.master import check_reachable, driver_address, is_local
from streamling.plan.spark_settings import SESSION_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# What pyspark imports when it first meets Arrow, half a second of work: done while the JVM boots instead.
_USED_LATER = ("pandas", "pyspark.sql.pandas.conversion", "pyspark.sql.pandas.serializers", "pyspark.sql.pandas.types")


_REHEARSAL = """
SELECT a * 2 AS a, upper(concat('c', b)) AS b, round(a * 1.5D, 2) AS c, CASE WHEN a > 1 THEN 'u' ELSE 'i' END AS d
FROM VALUES (1L, 'x'), (2L, 'y') AS t(a, b) WHERE a % 2 = 0
"""
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_ANALYZER = "org.apache.spark.sql.catalyst.analysis.SimpleAnalyzer$"
# Spark sets 300 MB aside and refuses a heap below one and a half times that. A pipeline of small epochs needs neither.
_RESERVED_BYTES = 300 * 1024 * 1024


def spark_conf(overrides: Mapping[str, str], *, application: str = "", sinks: int = 1) -> dict[str, str]:
    """Spark settings of a run: ours, then the user's. The JVM is launched before the number of sinks is known."""
    available = local_cores()
    # A slot per sink beyond the cores: a small job never waits behind one that holds all of them.
    master = overrides.get("spark.master") or f"local[{available + sinks}]"
    conf = {
        "spark.app.name": f"streamling {application}".strip(),
        "spark.master": master,
        "spark.driver.memory": "1g",
        # A result beyond this is computed in pieces instead; three copies of it fit the default heap.
        "spark.driver.maxResultSize": "256m",
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
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        # What workers get at a time; of short rows the number above is reached first.
        "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
        # Up to here rows in the driver become a local relation, beyond one partition per chunk (see `intake.py`).
        "spark.sql.execution.arrow.localRelationThreshold": "1m",
        # Remembers the Python line of every call for error messages; our errors name nodes instead.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "streamling.engine.process.worker_daemon",
        "spark.python.unix.domain.socket.enabled": "true",
    }
    if is_local(master):
        conf[_SHUFFLE_PARTITIONS] = str(available)  # else known when there is a cluster to ask
    conf |= {**_addresses(master, overrides), **overrides}
    conf.setdefault(
        "spark.testing.reservedMemory", str(min(_RESERVED_BYTES, size_in_bytes(conf["spark.driver.memory"]) // 4))
    )
    return conf


def _addresses(master: str, overrides: Mapping[str, str]) -> dict[str, str]:
    """Where the driver listens. If only its host is given, Spark binds to that."""
    address = driver_address(master)
    if address is None or ("spark.driver.host" in overrides and not is_local(master)):
        return {}
    return {"spark.driver.host": address, "spark.driver.bindAddress": address}


def size_in_bytes(size: str) -> int:
    """A size as Java writes it; what is not one is left for Java to refuse."""
    found = re.fullmatch(r"(\d+)([bkmgt]?)b?", size.strip().lower())
    return int(found.group(1)) * 1024 ** "bkmgt".index(found.group(2) or "b") if found else _RESERVED_BYTES * 4


def open_session(jvm: Jvm, conf: Mapping[str, str]) -> SparkSession:
    """The session on a launched JVM. Parser and Arrow warm up beside it, on the core it leaves idle."""
    check_reachable(conf["spark.master"])
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
    if not is_local(conf["spark.master"]):
        from streamling.engine.process.shipping import (
            ship_package,  # brings the plugins along; Java is launched before them
        )

        ship_package(session.sparkContext, conf)
    if _SHUFFLE_PARTITIONS not in conf:
        session.conf.set(_SHUFFLE_PARTITIONS, str(cores(session)))
    # It would print every error a second time, as JSON with the whole Java stack.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    # When the JVM leaves first, this server would print a stack trace about its lost connection.
    session.sparkContext._accumulatorServer.handle_error = lambda *_: None
    return session


def _warm_up(jvm: Any) -> None:
    """Parse, analyse and optimize a query of literals while the context starts: none of that needs one.

    It takes a second or two off the first real query. Failing here costs that time, nothing else.
    """
    try:
        sql = jvm.org.apache.spark.sql
        plan = sql.execution.SparkSqlParser().parsePlan(_REHEARSAL)
        analyzer = jvm.java.lang.Class.forName(_ANALYZER).getField("MODULE$").get(None)
        catalogs = analyzer.catalogManager()
        optimizer = sql.execution.SparkOptimizer(catalogs, catalogs.v1SessionCatalog(), sql.ExperimentalMethods())
        optimizer.execute(analyzer.execute(plan))
        sql.catalyst.analysis.FunctionRegistry.builtin()
        sql.util.ArrowUtils.rootAllocator()
    except Exception:  # any failure means only that the first query does this work itself
        return
