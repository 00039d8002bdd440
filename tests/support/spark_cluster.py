"""A real Spark cluster for tests: a standalone master and two workers of one core each.

A worker stands for another host: it has a working directory of its own, and a Python environment in which the
dependencies can be imported but `streamling` cannot.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil

from streamling.dev.processes import free_ports
from streamling.engine.process.java import find_java, java_home
from streamling.engine.process.jvm import spark_home

WORKERS = 2
_HOST = "127.0.0.1"
_MARKER = "STREAMLING_TEST_CLUSTER"
_DEPLOY = "org.apache.spark.deploy"
# 15 s on two quiet cores; a busy machine may need several times that.
_START_S = 90.0
# The shell leads a process group with everything the program starts, executors included, and takes it along when the
# test process is gone: then the pipe is at its end.
_GUARDED = '"$@" < /dev/null & cat > /dev/null; kill -KILL 0'


class Daemon:
    """A master or a worker, with all it has started."""

    def __init__(self, name: str, directory: Path, environment: Mapping[str, str], *arguments: str) -> None:
        self._log = directory / f"{name}.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _GUARDED, "sh", str(spark_home() / "bin" / "spark-class"), *arguments],
                cwd=directory,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """As a power cut does: the process and all its children at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")


class SparkCluster:
    """A running cluster. A test that kills a worker starts it again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._marker = uuid.uuid4().hex
        self._master_port, self._web_port, *self._worker_ports = free_ports(2 + 2 * WORKERS)
        self.master = f"spark://{_HOST}:{self._master_port}"
        self._pythons = [_bare_environment(directory / f"python-{n}") for n in range(WORKERS)]
        ports = ("--port", str(self._master_port), "--webui-port", str(self._web_port))
        command = (f"{_DEPLOY}.master.Master", "--host", _HOST, *ports)
        self._master = Daemon("master", directory, self._environment(), *command)
        self._workers: dict[int, Daemon] = {}

    def start_worker(self, number: int) -> None:
        """Returns at once."""
        environment = self._environment() | {"PYSPARK_PYTHON": str(self._pythons[number])}
        port, web_port = self._worker_ports[2 * number : 2 * number + 2]
        self._workers[number] = Daemon(
            f"worker-{number}",
            self._directory,
            environment,
            f"{_DEPLOY}.worker.Worker",
            *("--host", _HOST, "--port", str(port), "--webui-port", str(web_port)),
            *("--cores", "1", "--memory", "1g", "--work-dir", str(self.work_directory(number))),
            self.master,
        )

    def kill_worker(self, number: int) -> None:
        """The worker and its executors, with SIGKILL; their Python processes read the end of their input."""
        self._workers.pop(number).kill()

    def work_directory(self, number: int) -> Path:
        """Where the executors of a worker have their working directories."""
        return self._directory / f"work-{number}"

    def settings(self) -> dict[str, object]:
        """What a pipeline needs to run here, as a workspace takes it."""
        return {"SPARK__MASTER": self.master}

    def python_processes(self) -> list[psutil.Process]:
        """The Python processes of executors that live now."""
        return [p for p in self._processes() if "streamling.engine.process.worker_daemon" in _command(p)]

    def executors(self) -> list[psutil.Process]:
        return [p for p in self._processes() if "CoarseGrainedExecutorBackend" in _command(p)]

    def wait_for_workers(self, count: int = WORKERS) -> None:
        """Until so many workers are registered with the master."""
        self._wait(lambda: self._alive() >= count, f"{count} workers")

    def close(self) -> None:
        for daemon in (*self._workers.values(), self._master):
            daemon.kill()
        for process in self._processes():
            with suppress(psutil.Error):
                process.kill()

    def _alive(self) -> int:
        try:
            state = httpx.get(f"http://{_HOST}:{self._web_port}/json/", timeout=10).json()
        except (httpx.HTTPError, json.JSONDecodeError):
            return 0
        return sum(worker["state"] == "ALIVE" for worker in state["workers"])

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _START_S
        while not condition():
            if time.monotonic() > deadline:
                said = "\n".join(d.said[-2000:] for d in (self._master, *self._workers.values()))
                raise AssertionError(f"never saw: {what}\n{said}")
            time.sleep(0.2)

    def _processes(self) -> list[psutil.Process]:
        wanted = f"{_MARKER}={self._marker}".encode()
        found = []
        for process in psutil.process_iter():
            with suppress(OSError):
                if wanted in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                    found.append(process)
        return found

    def _environment(self) -> dict[str, str]:
        """Nothing of the test process: neither its Python path nor settings of streamling."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self._directory),
            "LANG": "C.UTF-8",
            "JAVA_HOME": str(java_home(find_java())),
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_LOCAL_DIRS": str(self._directory / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            _MARKER: self._marker,
        }


@contextmanager
def spark_cluster() -> Iterator[SparkCluster]:
    with tempfile.TemporaryDirectory(prefix="streamling-cluster-", ignore_cleanup_errors=True) as directory:
        cluster = SparkCluster(Path(directory))
        try:
            for number in range(WORKERS):
                cluster.start_worker(number)
            cluster.wait_for_workers()
            yield cluster
        finally:
            cluster.close()


def _bare_environment(directory: Path) -> Path:
    """A Python that finds the packages of the running one, but not those that it has in an editable form.

    Path files are read in site-packages only, not in the directories which they name.
    """
    venv.create(directory, with_pip=False, symlinks=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = directory / "bin" / "python"
    probe = "import importlib.util as u, sys; sys.exit(bool(u.find_spec('streamling')) or not u.find_spec('pyarrow'))"
    subprocess.run([python, "-c", probe], check=True, env={"PATH": os.environ["PATH"]}, cwd=directory)
    assert python != Path(sys.executable)
    return python


def _command(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""
