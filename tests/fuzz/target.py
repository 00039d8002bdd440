"""What is fuzzed: for each kind of input, how an input is made and what must become of it.

An input is good if it is understood, or rejected with errors of ours. Anything else that is raised is a find, and so is
an input that takes too long, and one whose errors show the planted secret.
"""

from __future__ import annotations

import json
import tempfile
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from random import Random

from streamling.cli.failure import chain, render
from streamling.errors import InvalidPipeline, StreamlingError

TESTS = Path(__file__).parents[1]
PLANT = "Zq7/Xw@9Kv#Jy"
_PARTS = [PLANT[i : i + 4] for i in range(len(PLANT) - 3)]


class Find(Exception):
    """An input that was neither understood nor rejected as it should be."""


def shown(error: BaseException) -> str:
    """What the command line prints for an error."""
    problems = error.problems if isinstance(error, InvalidPipeline) else (error,)
    return "\n".join([render(error, with_trace=False), *(chain(problem) for problem in problems)])


def check_hidden(text: str) -> None:
    if any(part in text for part in _PARTS):
        raise Find(f"the secret is shown: {text}")


class Target(ABC):
    """One kind of input. `close` removes what it has created."""

    name: str
    seconds = 5.0
    """Time limit of an input."""

    def __init__(self) -> None:
        self.resources = ExitStack()
        self.directory = Path(self.resources.enter_context(tempfile.TemporaryDirectory(prefix="streamling-fuzz-")))

    @abstractmethod
    def make(self, random: Random) -> bytes: ...

    @abstractmethod
    def run(self, data: bytes) -> None:
        """Raises StreamlingError, which is fine, or anything else, which is a find."""

    def close(self) -> None:
        self.resources.close()

    def file(self, name: str, data: bytes) -> Path:
        path = self.directory / name
        path.write_bytes(data)
        return path


def run(target: Target, data: bytes) -> str:
    """The verdict about one input: `ok`, or the codes of the errors. Raises what is a find."""
    try:
        target.run(data)
    except StreamlingError as error:
        if error.kind == "internal error":
            raise
        text = shown(error)
        if _is_planted(data):
            check_hidden(text)
        return error.code
    return "ok"


# Where the secret is planted, a mutation may have given it another meaning; then nothing is known about it.
PLANTED = [f"  password: {json.dumps(PLANT)}\n".encode(), f"      Authorization: {json.dumps(PLANT)}\n".encode()]


def _is_planted(data: bytes) -> bool:
    around = b"\n    headers:\n" + PLANTED[1]
    return data.count(PLANT.encode()) == 1 and (around in data or b"clickhouse_sink:\n" + PLANTED[0] in data)
