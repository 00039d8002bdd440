"""`streamling` on an engine without Spark: a start takes a second, so faults of the protocol can be tried by the dozen.

Epochs that are small and have no SQL in them never reach Spark. A pipeline that asks for more than that fails.
Started as a program with the arguments of the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import streamling.engine.run
from streamling.cli import main as command_line
from streamling.engine.process.engine import Engine


class _Context:
    master = "local[2]"

    def __init__(self) -> None:
        self.environment: dict[str, str] = {}

    def setLocalProperty(self, name: str, value: str | None) -> None:
        """Of jobs, of which there are none."""

    def setJobGroup(self, name: str, description: str, interrupt: bool = False) -> None:
        """The same."""


class _Session:
    def __init__(self) -> None:
        self.sparkContext = _Context()


class WithoutSpark(Engine):
    def __init__(self) -> None:
        self._without_spark = _Session()

    def session(self, conf: Mapping[str, str], *, meanwhile: Callable[[], object]) -> Any:
        meanwhile()
        return self._without_spark

    def cause(self, error: BaseException) -> BaseException:
        return error

    def kill(self) -> None:
        """There is no Java."""

    def close(self) -> None:
        """There is no Java."""


if __name__ == "__main__":
    streamling.engine.run.start_engine = lambda conf, *, verbose: WithoutSpark()
    command_line.launch_early = lambda arguments, quick=False: None
    command_line.entry()
