"""Runs pipelines as users do: a YAML file, a child process, its output, and nothing left behind.

Every child carries a marker in its environment that its JVM and workers inherit. So they are found in /proc also
after their parent has died.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

import streamling
from support import without_spark
from support.warm_engine import Job, WarmEngine

Row = dict[str, Any]

_MARKER = "STREAMLING_TEST_MARKER"
_SOURCE = Path(streamling.__file__).parents[1]
# A start takes 7 s on an idle machine with two cores; a busy one may need several times that.
PATIENCE_S = 120.0
# A JVM whose driver was killed reads the end of its input at once, but may be in the middle of a job.
ORPHANS_S = 10.0
# A short run ends before the optimizing compiler has paid off, and the machine has better things to do. Who wants to
# see what users have takes AS_INSTALLED into the environment.
_QUICK_JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
AS_INSTALLED: dict[str, str | None] = dict.fromkeys(_QUICK_JAVA)
_FORMATS = {"parquet": "parquet", "json": "jsonl", "csv": "csv"}


@dataclass(frozen=True)
class Finished:
    """What a command left: exit code and output."""

    code: int
    stdout: str
    stderr: str
    seconds: float

    def succeeded(self) -> Finished:
        assert self.code == 0, f"exit code {self.code}\n{self.stderr[-4000:]}"
        return self

    def failed(self) -> Finished:
        """Failed as a user should see it: exit code 1, an error block, no stack trace."""
        assert self.code == 1, f"exit code {self.code}\n{self.stderr[-4000:]}"
        assert "Streamling Error" in self.stderr, self.stderr[-4000:]
        assert "Traceback" not in self.stderr, self.stderr[-4000:]
        assert "\tat " not in self.stderr, self.stderr[-4000:]
        return self


class Running:
    """A command under way: its output, and its end."""

    def __init__(self, stdout: Path, stderr: Path) -> None:
        self._began = time.monotonic()
        self._stdout = stdout
        self.stderr_path = stderr

    def ended(self) -> int | None:
        """The exit code, if it has ended."""
        raise NotImplementedError

    @property
    def stdout(self) -> str:
        return self._stdout.read_text(errors="replace")

    @property
    def stderr(self) -> str:
        return self.stderr_path.read_text(errors="replace")

    @property
    def epochs(self) -> int:
        """Epochs this process has finalized so far."""
        return self.stderr.count("Epoch finalized")

    def until(self, condition: Callable[[], object], what: str, timeout: float = PATIENCE_S) -> None:
        """Wait for something this process does; it is an error if it ends before."""
        deadline = time.monotonic() + timeout
        while not condition():
            code = self.ended()
            if code is not None and condition():
                return
            if code is not None or time.monotonic() > deadline:
                state = "still running" if code is None else f"ended with {code}"
                raise AssertionError(f"never saw: {what}; the process {state}\n{self.stderr[-4000:]}")
            time.sleep(0.02)

    def until_epochs(self, count: int) -> None:
        self.until(lambda: self.epochs >= count, f"{count} finalized epochs")

    def _finished(self, code: int) -> Finished:
        return Finished(code, self.stdout, self.stderr, time.monotonic() - self._began)


class WarmRun(Running):
    """A pipeline on the warm engine, beside the test. Ends by itself, or when it is told to."""

    def __init__(self, job: Job, stdout: Path, stderr: Path) -> None:
        super().__init__(stdout, stderr)
        self._job = job

    def ended(self) -> int | None:
        return self._job.poll()

    def stop(self) -> Finished:
        """As SIGTERM does; the end of the run."""
        if self.ended() is None:
            self._job.signal(signal.SIGTERM)
        return self.wait()

    def wait(self, timeout: float = PATIENCE_S) -> Finished:
        try:
            code = self._job.wait(timeout)
        except TimeoutError:
            raise AssertionError(f"still running after {timeout:.0f} s\n{self.stderr[-4000:]}") from None
        return self._finished(code)


class Child(Running):
    """A running command, in a process group of its own."""

    def __init__(self, command: list[str], cwd: Path, environment: Mapping[str, str], name: str) -> None:
        super().__init__(cwd / f"{name}.out", cwd / f"{name}.err")
        self.marker = uuid.uuid4().hex
        with self._stdout.open("wb") as out, self.stderr_path.open("wb") as err:
            self.process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**environment, _MARKER: self.marker},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def ended(self) -> int | None:
        return self.process.poll()

    def signal(self, number: signal.Signals) -> None:
        """To the driver only."""
        if self.process.poll() is None:
            self.process.send_signal(number)

    def signal_group(self, number: signal.Signals) -> None:
        """To the driver and all it has started, as a terminal does."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def jvm(self) -> psutil.Process:
        """The JVM of this process; waits until it is there."""
        self.until(lambda: self._jvms(), "a JVM", timeout=20)
        return self._jvms()[0]

    def _jvms(self) -> list[psutil.Process]:
        return [p for p in relatives(self.marker) if _name(p) == "java"]

    def wait(self, timeout: float = PATIENCE_S) -> Finished:
        """The end of the process, with nothing of it left behind."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.destroy()
            raise AssertionError(f"still running after {timeout:.0f} s\n{self.stderr[-4000:]}") from None
        finished = self._finished(code)
        self.assert_alone()
        return finished

    def assert_alone(self, within: float = ORPHANS_S) -> None:
        """Neither a JVM nor a worker survives its driver for long."""
        deadline = time.monotonic() + within
        while left := relatives(self.marker):
            if time.monotonic() > deadline:
                names = ", ".join(f"{p.pid} {_name(p)}" for p in left)
                self.destroy()
                raise AssertionError(f"left behind after {within:.0f} s: {names}\n{self.stderr[-4000:]}")
            time.sleep(0.05)

    def destroy(self) -> None:
        """Kill everything that carries the marker, stopped or not."""
        for _ in range(3):
            for process in relatives(self.marker):
                _quietly(process.kill)
            if self.process.poll() is None:
                self.process.kill()
        self.process.wait(10)


class Workspace:
    """A directory with a pipeline, its state and what it writes; survives the processes that use it."""

    def __init__(self, directory: Path, warm: WarmEngine | None = None, **settings: object) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._warm = warm
        self._warm_runs: list[WarmRun] = []
        self._settings = settings
        self._children: list[Child] = []
        self._read: dict[tuple[Path, int, int], pa.Table] = {}

    def write(self, text: str, *, plugin: str | None = None) -> Workspace:
        """Put down the pipeline, and a plugin that it uses."""
        (self.directory / "pipeline.yaml").write_text(text)
        if plugin is not None:
            path = self.directory / "own_plugin.py"
            path.write_text(plugin)
            self._settings = {**self._settings, "PLUGIN__PATH": path}
        return self

    def start(
        self,
        *arguments: str,
        environment: Mapping[str, str | None] | None = None,
        spark: bool = True,
        **settings: object,
    ) -> Child:
        """Start `streamling` with these arguments; `EPOCH__ROWS=5` sets STREAMLING__EPOCH__ROWS.

        Without Spark a start takes a second; then the pipeline must have small epochs and no SQL.
        """
        program = ["-m", "streamling.cli.main"] if spark else [without_spark.__file__]
        command = [*program, *(arguments or ("run", "pipeline.yaml"))]
        return self._start(command, self._environment(environment or {}, settings))

    def run_program(self, text: str) -> Finished:
        """Run a Python program that uses the package."""
        (self.directory / "program.py").write_text(text)
        return self._start(["program.py"], self._environment({}, {})).wait()

    def _start(self, arguments: list[str], environment: Mapping[str, str]) -> Child:
        name = f"run-{len(self._children)}"
        self._children.append(Child([sys.executable, *arguments], self.directory, environment, name))
        return self._children[-1]

    def run(
        self,
        *arguments: str,
        environment: Mapping[str, str | None] | None = None,
        cold: bool = False,
        **settings: object,
    ) -> Finished:
        """Run `streamling` to its end. A plain run, a preview or a replay of dead letters shares Java with other
        tests, unless it is to be `cold`."""
        plain = not arguments or (arguments[0] in ("run", "dlq", "preview") and "-v" not in arguments)
        own_java = any(name.startswith("SPARK__") for name in settings)
        if cold or environment or not plain or own_java or self._warm is None:
            return self.start(*arguments, environment=environment, **settings).wait()
        return self._begin(self._warm, list(arguments or ("run", "pipeline.yaml")), settings).wait()

    def start_warm(self, **settings: object) -> WarmRun:
        """Start the pipeline on the warm engine, for a test that watches it, and then stops it."""
        assert self._warm, "there is no warm engine here"
        return self._begin(self._warm, ["run", "pipeline.yaml"], settings)

    def _begin(self, engine: WarmEngine, arguments: list[str], settings: Mapping[str, object]) -> WarmRun:
        out, err = (self.directory / f"warm-{len(self._warm_runs)}.{suffix}" for suffix in ("out", "err"))
        for path in (out, err):
            path.touch()
        job = engine.begin(arguments, self.directory, self._environment({}, settings), out, err)
        self._warm_runs.append(WarmRun(job, out, err))
        return self._warm_runs[-1]

    def rows(self, path: str, format_: str) -> list[Row]:
        """What the files of a sink hold, in the order of their names, which is the order of epochs and parts."""
        return [row for table in self.tables(path, format_) for row in table.to_pylist()]

    def count(self, path: str, format_: str) -> int:
        """How many rows the files of a sink hold; cheap enough to wait for them."""
        return sum(table.num_rows for table in self.tables(path, format_))

    def tables(self, path: str, format_: str) -> list[pa.Table]:
        """Each file of a sink, read once as long as it stays as it is."""
        found = []
        for file in self.files(path, format_):
            state = file.stat()
            key = (file, state.st_mtime_ns, state.st_size)
            if key not in self._read:
                self._read[key] = read_file(file, format_)
            found.append(self._read[key])
        return found

    def files(self, path: str, format_: str) -> list[Path]:
        return sorted((self.directory / path).glob(f"*.{_FORMATS[format_]}"))

    def state(self) -> dict[str, Any]:
        """What `state list` prints, by key; without long values, which it shortens."""
        listed = self.run("state", "list").succeeded().stdout
        pairs = [line.split("\t") for line in listed.splitlines()]
        return {key: json.loads(value) for key, value in pairs if not value.endswith("...")}

    def suspend(self, child: Child, *, group: bool = False) -> None:
        """SIGSTOP at any moment but one: who sleeps inside a SQLite transaction locks everybody out of the file."""
        send = child.signal_group if group else child.signal
        for _ in range(100):
            send(signal.SIGSTOP)
            time.sleep(0.05)  # the signal is delivered at the next return to user mode
            if not self._locked():
                return
            send(signal.SIGCONT)
            time.sleep(0.05)
        raise AssertionError("the state file is always locked")

    def _locked(self) -> bool:
        with closing(sqlite3.connect(self.directory / "state.db", timeout=0, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return True
            return False

    def close(self) -> None:
        for child in self._children:
            child.destroy()
        if self._warm and any(run.ended() is None for run in self._warm_runs):
            self._warm.close()

    def _environment(self, own: Mapping[str, str | None], settings: Mapping[str, object]) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("STREAMLING") and k != "RUST_LOG"}
        paths = [str(_SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]
        chosen = {
            "APPLICATION_ID": "test_app",
            "STATE_BACKEND__SQLITE__DATABASE_PATH": self.directory / "state.db",
            **self._settings,
            **settings,
        }
        named = {f"STREAMLING__{name}": str(value) for name, value in chosen.items()}
        paths_and_java = {"PYTHONPATH": os.pathsep.join(paths), **_QUICK_JAVA}
        merged: dict[str, str | None] = {**inherited, **paths_and_java, **named, **own}
        return {name: value for name, value in merged.items() if value is not None}


MakeWorkspace = Callable[..., Workspace]


@contextmanager
def workspace(directory: Path, warm: WarmEngine | None = None, **settings: object) -> Iterator[Workspace]:
    """A workspace whose processes do not outlive it, whatever happens to the test."""
    made = Workspace(directory, warm, **settings)
    try:
        yield made
    finally:
        made.close()


def read_file(path: Path, format_: str) -> pa.Table:
    """Nothing is inferred beyond what the format leaves open."""
    match format_:
        case "parquet":
            return pa.parquet.read_table(path)
        case "csv":
            return pa.csv.read_csv(path)
        case _:
            return pa.json.read_json(path)


def printed(stdout: str) -> list[tuple[int, int, str, Row]]:
    """Lines of the print sink as (running number, sample_every, operation, row). Any other line is an error."""
    form = re.compile(r"(\d+) -> \(sample_every=(\d+)\) \[(Insert|Update|Delete)\] (\{.*\})")
    lines = []
    for line in stdout.splitlines():
        match = form.fullmatch(line)
        assert match, f"not a row: {line!r}"
        number, every, operation, row = match.groups()
        lines.append((int(number), int(every), operation, json.loads(row)))
    return lines


def relatives(marker: str) -> list[psutil.Process]:
    """Living processes that were started, directly or not, with this marker."""
    wanted = f"{_MARKER}={marker}".encode()
    found = []
    for process in psutil.process_iter():
        try:
            # The environment of a zombie is empty, so those do not count.
            if wanted in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                found.append(process)
        except OSError:  # gone, or not ours
            continue
    return found


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return "gone"


def _quietly(action: Callable[[], object]) -> None:
    try:
        action()
    except psutil.Error:
        return
