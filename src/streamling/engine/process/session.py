"""The Spark session: settings, and the connection to a JVM that is already starting."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamling.engine.process.cores import cores, local_cores
from streamling.engine.process.jvm import Jvm, spark_home
from streamling.engine.process.master import check_reachable, driver_address, is_local
from streamling.plan.spark_settings import SESSION_SETTINGS
from streamling.spec.mask import SECRETIVE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Modules that pyspark imports when it first uses Arrow, half a second of work: imported while the JVM boots instead.
_ARROW_MODULES = (
    "pandas",
    "pyspark.sql.pandas.conversion",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
)


_WARM_UP_QUERY = """
SELECT a * 2 AS a, upper(concat('c', b)) AS b, round(a * 1.5D, 2) AS c, CASE WHEN a > 1 THEN 'u' ELSE 'i' END AS d
FROM VALUES (1L, 'x'), (2L, 'y') AS t(a, b) WHERE a % 2 = 0
"""
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_ANALYZER = "org.apache.spark.sql.catalyst.analysis.SimpleAnalyzer$"
# Spark reserves 300 MB and does not start with a heap below one and a half times that. Small epochs need neither.
_RESERVED_BYTES = 300 * 1024 * 1024


def spark_conf(overrides: Mapping[str, str], *, application: str = "", sinks: int = 1) -> dict[str, str]:
    """Spark settings of a run: ours, then the user's. The JVM is launched before the number of sinks is known."""
    available = local_cores()
    # One slot per sink in addition to the cores: a small job never waits for one that uses all cores.
    master = overrides.get("spark.master") or f"local[{available + sinks}]"
    conf = {
        "spark.app.name": f"streamling {application}".strip(),
        "spark.master": master,
        "spark.driver.memory": "1g",
        # A larger result makes the engine cut the epoch; three copies of one this large fit the default heap.
        "spark.driver.maxResultSize": "256m",
        # What Spark itself masks, in event logs and in its UI if the user turns them on.
        "spark.redaction.regex": f"(?i){SECRETIVE.pattern}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # The UI is off, so what its status listener keeps is never displayed and only grows with every epoch.
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "100",
        "spark.sql.ui.retainedExecutions": "5",
        "spark.scheduler.mode": "FAIR",
        "spark.log.level": "WARN",
        "spark.sql.catalogImplementation": "in-memory",
        **SESSION_SETTINGS,
        "spark.sql.adaptive.enabled": "false",
        # Rows buffered in the driver are few: one task for them.
        "spark.sql.leafNodeDefaultParallelism": "1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        # What workers get at a time; with short rows the number above is reached first.
        "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
        # Up to this size rows in the driver become a local relation, above it one partition per chunk (`intake.py`).
        "spark.sql.execution.arrow.localRelationThreshold": "1m",
        # It would record the Python line of every call for error messages; our errors name nodes instead.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "streamling.engine.process.worker_daemon",
        "spark.python.unix.domain.socket.enabled": "true",
    }
    if is_local(master):
        conf[_SHUFFLE_PARTITIONS] = str(available)  # with a cluster it is known once the session is open
    conf |= {**_addresses(master, overrides), **overrides}
    conf.setdefault(
        "spark.testing.reservedMemory", str(min(_RESERVED_BYTES, size_in_bytes(conf["spark.driver.memory"]) // 4))
    )
    return conf


def _addresses(master: str, overrides: Mapping[str, str]) -> dict[str, str]:
    """The addresses at which the driver listens. If the user sets only its host, Spark binds to that."""
    address = driver_address(master)
    if address is None or ("spark.driver.host" in overrides and not is_local(master)):
        return {}
    return {"spark.driver.host": address, "spark.driver.bindAddress": address}


def size_in_bytes(size: str) -> int:
    """A size in Java's notation, in bytes; Java itself rejects a text that is not one."""
    parts = re.fullmatch(r"(\d+)([bkmgt]?)b?", size.strip().lower())
    return int(parts.group(1)) * 1024 ** "bkmgt".index(parts.group(2) or "b") if parts else _RESERVED_BYTES * 4


def open_session(jvm: Jvm, conf: Mapping[str, str], *, meanwhile: Callable[[], object] = lambda: None) -> SparkSession:
    """Open the session on a launched JVM.

    Java takes about a second for it. Threads use that: one warms up Spark's parser and optimizer on an idle core, and
    one calls `meanwhile`.
    """
    check_reachable(conf["spark.master"])
    os.environ["SPARK_HOME"] = str(spark_home())
    os.environ["PYSPARK_PYTHON"] = conf.get("spark.pyspark.python", sys.executable)
    from pyspark import SparkContext
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    for module in _ARROW_MODULES:
        import_module(module)
    port, secret = jvm.gateway()
    # pyspark takes the gateway from its environment; children must not inherit the secret.
    os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = str(port), secret
    try:
        SparkContext._ensure_initialized()
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    _set_properties(SparkContext._jvm, conf)
    warm = threading.Thread(target=_warm_up, args=(SparkContext._jvm,), name="warm-up", daemon=True)
    warm.start()
    threading.Thread(target=meanwhile, name="meanwhile", daemon=True).start()
    session = SparkSession.builder.config(map=dict(conf)).getOrCreate()
    if not is_local(conf["spark.master"]):
        from streamling.engine.process.shipping import (
            ship_package,  # imports the plugin package, which launching Java does not need
        )

        ship_package(session.sparkContext, conf)
    if _SHUFFLE_PARTITIONS not in conf:
        session.conf.set(_SHUFFLE_PARTITIONS, str(cores(session)))
    # This logger would print every error a second time, as JSON with the whole Java stack.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    # If the JVM exits first, this server would print a stack trace about its lost connection.
    session.sparkContext._accumulatorServer.handle_error = lambda *_: None
    return session


def _set_properties(jvm: Any, conf: Mapping[str, str]) -> None:
    """Make the settings system properties, as `spark-submit` does: some parts of Spark look only there.

    Passed over the connection because a command line can be read by every user of the machine.
    """
    properties = jvm.java.util.Properties()
    properties.load(jvm.java.io.StringReader("".join(f"{_property(k)}={_property(v)}\n" for k, v in conf.items())))
    jvm.java.lang.System.getProperties().putAll(properties)


def _property(text: str) -> str:
    """A key or a value in the notation of a properties file, each character that might mean something escaped."""
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2)]
    return "".join(chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\u{code:04x}" for code in codes)


def _warm_up(jvm: Any) -> None:
    """Parse, analyse and optimize a query of literals while the Spark context starts; none of that needs the context.

    It makes the first real query one or two seconds faster. A failure here costs that time, nothing else.
    """
    try:
        sql = jvm.org.apache.spark.sql
        plan = sql.execution.SparkSqlParser().parsePlan(_WARM_UP_QUERY)
        analyzer = jvm.java.lang.Class.forName(_ANALYZER).getField("MODULE$").get(None)
        catalogs = analyzer.catalogManager()
        optimizer = sql.execution.SparkOptimizer(catalogs, catalogs.v1SessionCatalog(), sql.ExperimentalMethods())
        optimizer.execute(analyzer.execute(plan))
        sql.catalyst.analysis.FunctionRegistry.builtin()
        sql.util.ArrowUtils.rootAllocator()
    except Exception:  # then the first query does this work itself
        return
