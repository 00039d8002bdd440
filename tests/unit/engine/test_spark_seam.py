"""Spark gets our settings and then the user's; what it raises becomes one of our errors."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import ArithmeticException, PySparkException, PythonException

from streamling.engine.data.spark_errors import ProcessLost, errors_to_driver, spark_errors
from streamling.engine.process.engine import Engine
from streamling.engine.process.jvm import Jvm
from streamling.engine.process.session import spark_conf
from streamling.errors import (
    DATA_ERROR,
    JVM_FAILED,
    SINK_FAILED,
    SPARK_FAILED,
    Condition,
    Fenced,
    PermanentError,
    StreamlingError,
    TransientError,
)
from streamling.plan.spark_settings import SESSION_SETTINGS


def test_what_the_user_sets_wins() -> None:
    conf = spark_conf({"spark.master": "yarn", "spark.my.own": "1"}, application="shop")
    assert (conf["spark.master"], conf["spark.my.own"]) == ("yarn", "1")
    assert conf["spark.app.name"] == "streamling shop"


def test_the_settings_that_give_sql_its_meaning_are_in_force() -> None:
    conf = spark_conf({}, application="shop")
    assert {name: conf[name] for name in SESSION_SETTINGS} == SESSION_SETTINGS


def test_there_is_a_task_slot_per_sink_beyond_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamling.engine.process.session.local_cores", lambda: 4)
    assert spark_conf({}, application="shop", sinks=3)["spark.master"] == "local[7]"


def raised(error: BaseException) -> StreamlingError:
    """Our error for an error that Spark raises for the node `big`."""
    with pytest.raises(StreamlingError) as caught, spark_errors("big"):
        raise error
    return caught.value


def spark(condition: str, message: str = "[X] it happened\nat org.apache...") -> ArithmeticException:
    error = ArithmeticException(message)
    error.getCondition = lambda: condition  # type: ignore[method-assign]
    return error


@pytest.mark.parametrize("condition", ["DIVIDE_BY_ZERO", "CAST_INVALID_INPUT", "INVALID_PARAMETER_VALUE.PATTERN"])
def test_a_value_that_cannot_be_computed_is_a_data_error(condition: str) -> None:
    error = raised(spark(condition))
    assert isinstance(error, PermanentError)
    assert (error.code, error.node) == ("DATA_ERROR", "big")
    assert error.message.endswith("[X] it happened")
    assert "TRY_CAST" in (error.hint or "")


@pytest.mark.parametrize("condition", ["INTERNAL_ERROR", "", None])
def test_anything_else_of_spark_is_a_failed_job(condition: str) -> None:
    error = raised(spark(condition))
    assert (type(error), error.code, error.node) == (PermanentError, "SPARK_FAILED", "big")


WORKER = """\
Job aborted due to stage failure: Task 0 in stage 0.0 failed
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/reader.py", line 3, in read
    raise ValueError("row 7 is odd")
ValueError: row 7 is odd

\tat org.apache.spark.api.python.BasePythonRunner.compute(PythonRunner.scala:1)
"""


def test_of_a_worker_only_what_it_raised_is_told() -> None:
    assert raised(PythonException(WORKER)).message == "ValueError: row 7 is odd"


NO_WORKER = """
Error from python worker:
  Traceback (most recent call last):
    File "/x/worker_daemon.py", line 14, in <module>
      import pyarrow
  ModuleNotFoundError: No module named 'pyarrow'
PYTHONPATH was:
  /x/pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number.
"""
NO_PROGRAM = 'Cannot run program "/opt/python": error=2, No such file or directory'


@pytest.mark.parametrize(
    ("said", "told"), [(NO_WORKER, "ModuleNotFoundError: No module named 'pyarrow'"), (NO_PROGRAM, NO_PROGRAM)]
)
def test_a_python_worker_that_cannot_start_says_why(said: str, told: str) -> None:
    error = raised(PySparkException(said))
    assert (type(error), error.message) == (PermanentError, f"a Python worker cannot start: {told}")
    assert "spark.pyspark.python" in (error.hint or "")


ABORTED = "Job aborted due to stage failure: Task 1 in stage 3.0 failed 4 times, most recent failure: Lost task 1.3: "


@pytest.mark.parametrize(
    "reason",
    [
        "ExecutorLostFailure (executor 5 exited caused by one of the running tasks) Reason: Remote RPC client left",
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting 'spark.x'",
        "FetchFailed(BlockManagerId(2, 10.0.0.7, 7337, None), shuffleId=4, mapIndex=1), message=\nat org.apache...",
    ],
)
def test_a_lost_executor_or_python_worker_may_come_back(reason: str) -> None:
    error = raised(PySparkException(f"{ABORTED}{reason}\n\nDriver stacktrace:\nat org.apache..."))
    assert (type(error), error.code, error.node) == (ProcessLost, "SPARK_FAILED", "big")
    assert "Consider" not in error.message
    assert "stack" not in error.message


@pytest.mark.parametrize("error", [Py4JNetworkError("refused"), ConnectionResetError("reset by peer"), EOFError()])
def test_a_lost_connection_is_a_failed_jvm(error: Exception) -> None:
    told = raised(error)
    assert (type(told), told.code, told.node) == (PermanentError, "JVM_FAILED", "big")
    assert told.__cause__ is None, "a proxy has nothing to say once the JVM is gone"


def test_our_own_errors_pass_as_they_are() -> None:
    error = TransientError(SINK_FAILED, "not now")
    assert raised(error) is error


def test_mistakes_of_ours_are_not_disguised() -> None:
    with pytest.raises(KeyError), spark_errors("big"):
        raise KeyError("bug")


@pytest.mark.parametrize(("memory", "reserved"), [("256m", 64 << 20), ("1g", 256 << 20), ("8g", 300 << 20)])
def test_a_small_heap_is_not_refused_for_what_spark_sets_aside(memory: str, reserved: int) -> None:
    assert spark_conf({"spark.driver.memory": memory})["spark.testing.reservedMemory"] == str(reserved)


@pytest.mark.parametrize("kind", [TransientError, PermanentError, Fenced])
def test_an_error_of_ours_crosses_from_an_executor_as_what_it_is(kind: type[StreamlingError]) -> None:
    with pytest.raises(RuntimeError) as raised, errors_to_driver():
        raise kind(SINK_FAILED, "no space <left>", node="out", hint="make room")
    told = f"Traceback (most recent call last):\n  File x\nRuntimeError: {raised.value}\n SQLSTATE: 38000"
    with pytest.raises(kind, match="no space <left>") as arrived, spark_errors("query"):
        raise PySparkException(told)
    assert type(arrived.value) is kind
    assert (arrived.value.code, arrived.value.node, arrived.value.hint) == (SINK_FAILED.code, "out", "make room")


@pytest.mark.parametrize(
    ("symptom", "news"), [(SPARK_FAILED, JVM_FAILED), (JVM_FAILED, JVM_FAILED), (DATA_ERROR, DATA_ERROR)]
)
def test_a_java_that_is_gone_is_the_news_where_spark_seems_to_have_failed(
    monkeypatch: pytest.MonkeyPatch, symptom: Condition, news: Condition
) -> None:
    gone = Jvm(["/bin/sh", "-c", "exit 1"], None, address=None, verbose=False)
    monkeypatch.setattr("streamling.engine.process.engine.launch", lambda conf, verbose: gone)
    told = Engine({}).cause(PermanentError(symptom, "An error occurred"))
    assert isinstance(told, StreamlingError)
    assert told.condition is news


class Thrown:
    """A Java exception as its proxy shows it."""

    def __init__(self, name: str, message: str | None, cause: Thrown | None = None) -> None:
        self._name, self._message, self._cause = name, message, cause

    def getMessage(self) -> str | None:
        return self._message

    def getCause(self) -> Thrown | None:
        return self._cause

    def getCondition(self) -> str:
        raise Py4JError("there is no such method")

    def getClass(self) -> Thrown:
        return self

    def getName(self) -> str:
        return self._name

    def toString(self) -> str:
        return f"{self._name}: {self._message}"


def thrown(exception: Thrown, monkeypatch: pytest.MonkeyPatch) -> StreamlingError:
    monkeypatch.setattr(Py4JJavaError, "__init__", lambda self, java: setattr(self, "java_exception", java))
    monkeypatch.setattr(Py4JJavaError, "__str__", lambda self: "")
    return raised(Py4JJavaError(exception))


@pytest.mark.parametrize(
    "name",
    [
        "java.lang.OutOfMemoryError",
        "org.apache.arrow.memory.OutOfMemoryException",
        "io.netty.util.internal.OutOfDirectMemoryError",
    ],
)
def test_memory_that_runs_out_in_a_job_is_called_by_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Thrown(name, "Failure allocating buffer.", Thrown("java.lang.Exception", "something inside"))
    error = thrown(Thrown("org.apache.spark.SparkException", "Job aborted", inner), monkeypatch)
    assert error.message == f"Java ran out of memory: {name.rpartition('.')[2]}: Failure allocating buffer."
    assert "spark.driver.memory" in (error.hint or "")
    assert "epoch.bytes" in (error.hint or "")


@pytest.mark.parametrize(
    "end", [Thrown("java.io.EOFException", None), Thrown("java.net.SocketException", "Connection reset")]
)
def test_a_worker_that_died_is_tried_again(end: Thrown, monkeypatch: pytest.MonkeyPatch) -> None:
    died = Thrown(
        "org.apache.spark.SparkException", "Python worker exited unexpectedly (crashed). Consider more memory", end
    )
    error = thrown(Thrown("org.apache.spark.SparkException", "Job aborted", died), monkeypatch)
    assert isinstance(error, TransientError)
    assert error.message.endswith("Python worker exited unexpectedly (crashed)")
