"""Java's log is bounded while it runs, and says why it ended."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamling.engine.process import java_log
from streamling.engine.process.java_log import MAX_BYTES, JavaLog, out_of_memory
from streamling.engine.process.jvm import Jvm
from support.doubles import until

HEAP = "Terminating due to java.lang.OutOfMemoryError: Java heap space"
STACK = "\n".join(f"\tat org.apache.spark.Something.line{n}(Something.scala:{n})" for n in range(40))


@contextmanager
def java(script: str, *arguments: str, heap: str | None = None) -> Iterator[Jvm]:
    """A process in Java's place."""
    command = ["/bin/sh", "-c", script, "sh", *arguments]
    started = Jvm(command, None, address="127.0.0.1", verbose=False, heap=heap)
    try:
        yield started
    finally:
        started.kill()


def size_of(jvm: Jvm) -> int:
    assert jvm._log is not None
    return os.fstat(jvm._log.file.fileno()).st_size


def test_a_log_without_end_takes_bounded_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_log, "_LOOK_S", 0.01)
    line = "x" * 1000
    with java(f"n=0; while [ $n -lt 60000 ]; do n=$((n+1)); echo {line} >&2; done; echo last") as jvm:
        most, deadline = 0, time.monotonic() + 60
        while jvm._process.poll() is None and time.monotonic() < deadline:
            most = max(most, size_of(jvm))
            time.sleep(0.005)
        assert jvm._process.poll() == 0
        # What is written between two checks is added to that.
        assert most < 8 * MAX_BYTES
        until(lambda: size_of(jvm) <= MAX_BYTES)
        assert jvm.failure("it ended").message.endswith("\nlast")


def test_a_cut_keeps_the_last_lines() -> None:
    log = JavaLog()
    log.file.write(b"old\n" + b"y" * MAX_BYTES + b"\nnew\n")
    log.cut()
    log.file.write(b"newer\n")
    assert os.fstat(log.file.fileno()).st_size == len(b"newer\n")
    assert log.text().endswith("y\nnew\nnewer\n")
    assert "old" not in log.text()
    log.stop_watching()


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (f"starting\n{HEAP}", "OutOfMemoryError: Java heap space"),
        (f"{HEAP}\n{STACK}", "OutOfMemoryError: Java heap space"),
        (
            f"org.apache.arrow.memory.OutOfMemoryException: Failure allocating buffer.\n{STACK}",
            "OutOfMemoryException: Failure allocating buffer.",
        ),
        (
            f"Caused by: java.lang.OutOfMemoryError: Cannot reserve 4 bytes of direct buffer memory\n{STACK}",
            "OutOfMemoryError: Cannot reserve 4 bytes of direct buffer memory",
        ),
    ],
)
def test_out_of_memory_is_said_first_and_what_to_raise(tmp_path: Path, log: str, reason: str) -> None:
    assert out_of_memory(log) == reason
    (tmp_path / "log").write_text(log)
    with java('cat "$1" >&2; exit 3', str(tmp_path / "log"), heap="512m") as jvm:
        assert jvm.ended()
        failure = jvm.failure("the Java virtual machine ended")
    assert failure.message == f"the Java virtual machine ended because it ran out of memory: {reason}"
    assert failure.hint is not None
    assert failure.hint.startswith("raise spark.driver.memory (now 512m)")
    assert "epoch.bytes" in failure.hint


def test_the_exit_code_tells_where_nothing_was_written() -> None:
    with java("exit 52") as jvm:
        assert jvm.ended()
        assert jvm.failure("it ended").message == "it ended because it ran out of memory"


def test_another_end_shows_the_last_lines() -> None:
    with java("echo one; echo two >&2; exit 1") as jvm:
        assert jvm.ended()
        assert jvm.failure("it ended").message == "it ended; its last output:\none\ntwo"


def test_spark_may_take_a_while_to_end_java_when_memory_is_out() -> None:
    with java(f"echo '{HEAP}'; sleep 1.5; exit 52") as jvm:
        until(lambda: size_of(jvm) > 0)
        assert jvm.ended()
