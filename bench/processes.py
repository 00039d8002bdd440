"""Starting what is measured, and reading what it costs from /proc."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

_EPOCH = re.compile(r"(\d\d):(\d\d):([\d.]+) INFO\s+Epoch finalized: number=(\d+) rows=(\d+) ms=(\d+)")


class Epoch:
    """One `Epoch finalized` line."""

    def __init__(self, match: re.Match[str]) -> None:
        hours, minutes, seconds, number, rows, ms = match.groups()
        self.at = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
        self.number, self.rows, self.ms = int(number), int(rows), int(ms)


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


def wait_for(process: subprocess.Popen[str], condition: object, timeout: float) -> None:
    """Poll until `condition()` holds; an early end of the process or the timeout is an error."""
    deadline = time.monotonic() + timeout
    while not condition():  # type: ignore[operator]
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the pipeline ended early or took over {timeout:.0f} s (exit {process.poll()})")
        time.sleep(0.1)
