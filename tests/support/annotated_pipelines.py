"""Pipeline files with the expected result of `validate` in comments at the top.

# setting: JOB_MODE=true                 as the variable STREAMLING__JOB_MODE
# hides: hunter2                         a word of the file that no output may show
# error: UNKNOWN_FIELD 12:5              code, line and column; one entry for every problem
#   message: unknown field 'topics'      a part of its message
#   hint: did you mean 'topic'?          a part of its hint
# warning: NO_KEY 7:3                    the same for a warning
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from streamling.cli.main import main

_DIRECTORY = Path(__file__).parents[1] / "unit" / "plan"
# Reported for every node that cannot run yet or was not probed; these tests are not about them.
PASSING = ("NOT_RUNNABLE", "SCHEMA_UNKNOWN")


@dataclass
class Expected:
    """A problem that a file announces."""

    code: str
    line: int
    column: int
    message: str = ""
    hint: str = ""

    @property
    def place(self) -> tuple[int, int, str]:
        return self.line, self.column, self.code


@dataclass
class AnnotatedPipeline:
    path: Path
    settings: dict[str, str] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)
    errors: list[Expected] = field(default_factory=list)
    warnings: list[Expected] = field(default_factory=list)


def annotated(path: Path) -> AnnotatedPipeline:
    pipeline = AnnotatedPipeline(path)
    last: Expected | None = None
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        word, _, text = line[1:].strip().partition(": ")
        match word:
            case "setting":
                name, _, value = text.partition("=")
                pipeline.settings[name] = value
            case "hides":
                pipeline.hidden.append(text)
            case "error" | "warning":
                code, place = text.split()
                last = Expected(code, *map(int, place.split(":")))
                (pipeline.errors if word == "error" else pipeline.warnings).append(last)
            case "message" | "hint":
                assert last is not None, f"{path.name}: {word} of nothing"
                setattr(last, word, text)
            case _:
                raise AssertionError(f"{path.name}: '{line}' is not part of the syntax")
    return pipeline


def files(directory: str) -> list[Path]:
    return sorted((_DIRECTORY / directory).iterdir())


@dataclass(frozen=True)
class Checked:
    """The output of the command."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    def found(self, severity: str) -> list[dict[str, Any]]:
        """The problems of a report, in the order of the file."""
        found = [p for p in self.report["problems"] if p["severity"] == severity and p["code"] not in PASSING]
        return sorted(found, key=lambda p: (p["line"] or 0, p["column"] or 0, p["code"], p["message"]))


def validated(capsys: pytest.CaptureFixture[str], *arguments: str) -> Checked:
    capsys.readouterr()
    code = main(["validate", *arguments])
    out, err = capsys.readouterr()
    return Checked(code, out, err)


def assert_as_announced(found: list[dict[str, Any]], expected: list[Expected]) -> None:
    """Every problem announced is found, and no other."""
    announced = sorted(expected, key=lambda e: (*e.place, e.message))
    assert [(p["line"], p["column"], p["code"]) for p in found] == [e.place for e in announced]
    left = list(found)
    for one in announced:
        same = [p for p in left if (p["line"], p["column"], p["code"]) == one.place]
        match = next((p for p in same if one.message in p["message"] and one.hint in (p["hint"] or "")), None)
        assert match is not None, f"{one} is not among {same}"
        left.remove(match)
