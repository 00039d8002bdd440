"""Names of Spark's own settings. Environment variables have no case, Spark's names do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

PREFIX = "spark."

# Only names with capital letters are listed: all others are correct in lower case.
KNOWN = (
    "spark.broadcast.blockSize",
    "spark.cleaner.periodicGC.interval",
    "spark.driver.bindAddress",
    "spark.driver.blockManager.port",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraClassPath",
    "spark.driver.extraJavaOptions",
    "spark.driver.extraLibraryPath",
    "spark.driver.maxResultSize",
    "spark.driver.memoryOverhead",
    "spark.driver.memoryOverheadFactor",
    "spark.dynamicAllocation.cachedExecutorIdleTimeout",
    "spark.dynamicAllocation.enabled",
    "spark.dynamicAllocation.executorIdleTimeout",
    "spark.dynamicAllocation.initialExecutors",
    "spark.dynamicAllocation.maxExecutors",
    "spark.dynamicAllocation.minExecutors",
    "spark.dynamicAllocation.schedulerBacklogTimeout",
    "spark.dynamicAllocation.shuffleTracking.enabled",
    "spark.eventLog.compress",
    "spark.eventLog.dir",
    "spark.eventLog.enabled",
    "spark.executor.defaultJavaOptions",
    "spark.executor.extraClassPath",
    "spark.executor.extraJavaOptions",
    "spark.executor.extraLibraryPath",
    "spark.executor.heartbeatInterval",
    "spark.executor.memoryOverhead",
    "spark.executor.memoryOverheadFactor",
    "spark.executorEnv.PYTHONPATH",
    "spark.jars.ivySettings",
    "spark.kubernetes.authenticate.driver.serviceAccountName",
    "spark.kubernetes.authenticate.executor.serviceAccountName",
    "spark.kubernetes.container.image.pullPolicy",
    "spark.kubernetes.container.image.pullSecrets",
    "spark.kubernetes.driver.podTemplateFile",
    "spark.kubernetes.executor.podNamePrefix",
    "spark.kubernetes.executor.podTemplateFile",
    "spark.memory.offHeap.enabled",
    "spark.memory.offHeap.size",
    "spark.memory.storageFraction",
    "spark.port.maxRetries",
    "spark.rpc.askTimeout",
    "spark.rpc.message.maxSize",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes",
    "spark.sql.adaptive.autoBroadcastJoinThreshold",
    "spark.sql.adaptive.coalescePartitions.enabled",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize",
    "spark.sql.adaptive.skewJoin.enabled",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.broadcastTimeout",
    "spark.sql.caseSensitive",
    "spark.sql.codegen.wholeStage",
    "spark.sql.debug.maxToStringFields",
    "spark.sql.execution.arrow.maxBytesPerBatch",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.maxRecordsPerFile",
    "spark.sql.session.timeZone",
    "spark.sql.sources.parallelPartitionDiscovery.threshold",
    "spark.sql.ui.retainedExecutions",
    "spark.standalone.submit.waitAppCompletion",
    "spark.storage.memoryFraction",
    "spark.submit.deployMode",
    "spark.submit.pyFiles",
    "spark.task.maxFailures",
    "spark.ui.killEnabled",
    "spark.ui.proxyBase",
    "spark.ui.reverseProxy",
    "spark.ui.reverseProxyUrl",
    "spark.ui.retainedJobs",
    "spark.ui.retainedStages",
    "spark.ui.retainedTasks",
    "spark.ui.showConsoleProgress",
    "spark.yarn.appMasterEnv.PYSPARK_PYTHON",
)


def conf_name(parts: Sequence[str]) -> str:
    """The full name of a setting written under `spark`, with or without the prefix `spark.`."""
    name = ".".join(part for part in parts if part)
    return name if name.startswith(PREFIX) else PREFIX + name


def restore_case(name: str, names: Iterable[str]) -> str:
    """A name without case as Spark spells it: as in `names` from a file, else as in KNOWN, else unchanged."""
    folded = name.casefold()
    return next((known for known in (*names, *KNOWN) if known.casefold() == folded), name)
