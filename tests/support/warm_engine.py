"""Pipelines one after the other in a process that keeps Java and the Spark session: a run takes a second, not ten.

The runs are those of the command line, with arguments, environment, working directory and output of their own. What is
about processes, signals or Java takes a process of its own.

Started as a program this module is that process: a line of JSON on standard input asks for a run, a line on standard
output answers with its exit code.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

# Workers, views and classes of earlier pipelines add up.
_MOST_RUNS = 60


class Job:
    """A run on the warm engine, from the request to its exit code."""

    def __init__(self, engine: WarmEngine, process: subprocess.Popen[str], answers: queue.SimpleQueue[str]) -> None:
        self._engine = engine
        self._process = process
        self._answers = answers
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, if the run has ended."""
        with suppress(queue.Empty):
            return self._take(0)
        return None

    def wait(self, timeout: float) -> int:
        """The exit code. Raises TimeoutError; then the engine is gone, and the run with it."""
        try:
            return self._take(timeout)
        except queue.Empty:
            self._code = -signal.SIGKILL
            self._engine.close()
            raise TimeoutError from None

    def signal(self, number: signal.Signals) -> None:
        """To the driver, which handles it as the command line does."""
        self._process.send_signal(number)

    def _take(self, timeout: float) -> int:
        if self._code is None:
            answer = self._answers.get(timeout=timeout) if timeout else self._answers.get_nowait()
            if not answer:
                self._code = -signal.SIGKILL
                self._engine.close()
                raise AssertionError("the process of the warm engine ended during a run")
            self._code = int(json.loads(answer)["code"])
        return self._code


class WarmEngine:
    """The tests' side: starts the process when it is first needed, and again after one that did not answer."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._runs = 0
        self._job: Job | None = None

    def begin(self, arguments: list[str], cwd: Path, environment: Mapping[str, str], out: Path, err: Path) -> Job:
        """Run `streamling` with these arguments, beside the test. One run at a time."""
        assert self._job is None or self._job.poll() is not None, "the warm engine has another run"
        if self._runs == _MOST_RUNS:
            self.close()
        process = self._process or self._start(environment)
        self._runs += 1
        request = {"arguments": arguments, "cwd": str(cwd), "environment": dict(environment)}
        files = {"out": str(out), "err": str(err)}
        assert process.stdin
        process.stdin.write(json.dumps(request | files) + "\n")
        process.stdin.flush()
        self._job = Job(self, process, self._answers)
        return self._job

    def close(self) -> None:
        process, self._process = self._process, None
        self._job = None
        if process is None:
            return
        process.kill()  # Java leaves when its input ends
        process.wait()

    def _start(self, environment: Mapping[str, str]) -> subprocess.Popen[str]:
        self._runs = 0
        self._process = process = subprocess.Popen(
            [sys.executable, __file__],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._answers = answers = queue.SimpleQueue()

        def listen(output: IO[str]) -> None:
            for line in output:
                answers.put(line)
            answers.put("")

        assert process.stdout
        threading.Thread(target=listen, args=(process.stdout,), daemon=True).start()
        return process


def _serve() -> None:
    """Answers requests until the input ends."""
    import streamling.engine.run
    from streamling.engine.process.engine import Engine
    from streamling.engine.process.signals import listen

    class KeptEngine(Engine):
        """Survives the runs that use it."""

        def close(self) -> None:
            pass

        def kill(self) -> None:
            pass

    kept: KeptEngine | None = None

    def start_engine(conf: Mapping[str, str], *, verbose: bool) -> Engine:
        nonlocal kept
        if kept is None:
            kept = KeptEngine(conf)
        return kept

    streamling.engine.run.start_engine = start_engine
    # It would end this process some time after a run that has failed.
    streamling.engine.run.Watchdog = lambda *arguments, **options: None
    signals = listen()
    requests = os.fdopen(os.dup(0))
    answers = os.fdopen(os.dup(1), "w")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for line in requests:
        signals.received, signals.interrupted_again = None, False  # those that an earlier run has handled
        code = _run(**json.loads(line))
        print(json.dumps({"code": code}), file=answers, flush=True)
    os._exit(0)


def _run(arguments: list[str], cwd: str, environment: dict[str, str], out: str, err: str) -> int:
    from streamling.cli.main import main

    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in ((1, out), (2, err)):
        with Path(path).open("wb") as file:
            os.dup2(file.fileno(), number)
    code: Any = 1
    try:
        code = main(arguments)
    except SystemExit as leaving:
        code = leaving.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return int(code or 0)


if __name__ == "__main__":
    _serve()
