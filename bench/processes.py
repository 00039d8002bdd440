"""Starting what is measured, and reading what it costs from /proc."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from streamling.engine.process.archive import cache_directory

_EPOCH = re.compile(r"(\d\d):(\d\d):([\d.]+) INFO\s+Epoch finalized: number=(\d+) rows=(\d+) ms=(\d+)")
_LOOK_S = 0.2


class Epoch:
    """One `Epoch finalized` line."""

    def __init__(self, match: re.Match[str]) -> None:
        hours, minutes, seconds, number, rows, ms = match.groups()
        self.at = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
        self.number, self.rows, self.ms = int(number), int(rows), int(ms)


def cache() -> Path:
    """Where measurements keep what is made once."""
    directory = cache_directory() / "bench"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def epochs(log: Path) -> list[Epoch]:
    return [Epoch(m) for line in log.read_text().splitlines() if (m := _EPOCH.match(line))]


@contextmanager
def pipeline(yaml: str, settings: Mapping[str, str] | None = None) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A running pipeline and its log; killed at the end if it has not ended."""
    with tempfile.TemporaryDirectory(prefix="streamling-bench-") as directory:
        folder = Path(directory)
        (folder / "pipeline.yaml").write_text(yaml)
        log = folder / "log"
        environment = dict(os.environ, STREAMLING__APPLICATION_ID="bench")
        environment |= {f"STREAMLING__{name}": value for name, value in (settings or {}).items()}
        with log.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "streamling.cli.main", "run", "pipeline.yaml"],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                start_new_session=True,
            )
        try:
            yield process, log
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout:
                process.stdout.close()


def run_plain(script: str, *arguments: str) -> list[str]:
    """Lines printed by a plain PySpark script of this directory."""
    path = Path(__file__).parent / "plain" / script
    result = subprocess.run(
        [sys.executable, str(path), *arguments], capture_output=True, text=True, timeout=600, check=True
    )
    return result.stdout.splitlines()


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    root = psutil.Process(process.pid)
    return [root, *root.children(recursive=True)]


def cpu_seconds(process: subprocess.Popen[str]) -> float:
    return sum(p.cpu_times().user + p.cpu_times().system for p in family(process))


def rss_bytes(process: subprocess.Popen[str]) -> int:
    return sum(p.memory_info().rss for p in family(process))


@dataclass
class Usage:
    """What a process and all below it have taken so far; those that have ended count as they were last seen."""

    rss_bytes: int = 0
    """The most of all moments."""
    root_rss_bytes: int = 0
    """The same of the process alone."""
    moments: list[tuple[float, float]] = field(default_factory=list)
    """Times of `time.monotonic`, and the CPU seconds until then."""
    _seen: dict[tuple[int, float], float] = field(default_factory=dict)

    @property
    def cpu_seconds(self) -> float:
        return self.moments[-1][1] if self.moments else 0.0

    def cpu_between(self, start: float, end: float) -> float:
        """CPU seconds of a stretch of time, as exactly as it was looked at."""
        before, after = ([cpu for at, cpu in self.moments if at <= limit] for limit in (start, end))
        return (after[-1] if after else 0.0) - (before[-1] if before else 0.0)

    def look(self, pid: int) -> None:
        root, rss = psutil.Process(pid), 0
        for process in (root, *root.children(recursive=True)):
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    self._seen[process.pid, process.create_time()] = times.user + times.system
                    memory = process.memory_info().rss
                    rss += memory
                    if process == root:
                        self.root_rss_bytes = max(self.root_rss_bytes, memory)
            except psutil.Error:
                continue
        self.rss_bytes = max(self.rss_bytes, rss)
        self.moments.append((time.monotonic(), sum(self._seen.values())))


@contextmanager
def watched(pid: int) -> Iterator[Usage]:
    """Looks at a process and all below it several times a second."""
    usage, done = Usage(), threading.Event()

    def watch() -> None:
        while not done.wait(_LOOK_S):
            try:
                usage.look(pid)
            except psutil.Error:
                continue

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield usage
    finally:
        done.set()
        thread.join()


def wait_for(process: subprocess.Popen[str], condition: object, timeout: float) -> None:
    """Poll until `condition()` holds; an early end of the process or the timeout is an error."""
    deadline = time.monotonic() + timeout
    while not condition():  # type: ignore[operator]
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the pipeline ended early or took over {timeout:.0f} s (exit {process.poll()})")
        time.sleep(0.1)


def measured(command: Sequence[str]) -> tuple[list[tuple[int, float]], float, list[float], float]:
    """The lines a script prints, `rows seconds`; the time until the first of them; CPU seconds of each; megabytes."""
    began = time.monotonic()
    found: list[tuple[int, float]] = []
    wall, cpu = 0.0, []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        if process.stdout is None:
            raise AssertionError
        with watched(process.pid) as usage:
            for line in process.stdout:
                now = time.monotonic()
                rows, seconds = line.split()
                found.append((int(rows), float(seconds)))
                wall = wall or now - began
                cpu.append(usage.cpu_between(now - float(seconds), now))
    if process.returncode:
        raise RuntimeError(f"{Path(command[1]).name} ended with {process.returncode}")
    return found, wall, cpu, usage.rss_bytes / 1e6
