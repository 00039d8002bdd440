"""Each file in `wrong_pipelines` announces its mistakes; `validate` finds these and no others, at their positions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from streamling.connector import kinds
from streamling.spec.pipeline import Role
from support.annotated_pipelines import AnnotatedPipeline, Checked, annotated, assert_as_announced, files, validated

pytestmark = pytest.mark.usefixtures("clean_process")

FILES = files("wrong_pipelines")
# The file or the run is wrong, no node in particular.
OF_NO_NODE = ("INVALID_YAML", "MISSING_SECTION", "JOB_MODE")
# Tools expect `success: false` in reports of these.
UNSUCCESSFUL = ("SOURCE_FILTER", "MESSAGE_KEY")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_all_mistakes_are_found_and_no_others(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = annotated(path)
    for name, value in pipeline.settings.items():
        monkeypatch.setenv(f"STREAMLING__{name}", value)
    report = validated(capsys, str(path), "--format", "json")
    problems = report.found("error")
    assert pipeline.errors, "a wrong pipeline announces what is wrong"
    assert_as_announced(problems, pipeline.errors)
    assert_a_complete_report(report, problems)
    for problem in problems:
        assert_a_place_and_a_node(path, problem)
    shown = validated(capsys, str(path))
    assert_fit_for_people(shown, report)
    assert_no_secrets(pipeline, report.out + shown.err)


def assert_a_complete_report(report: Checked, problems: list[dict[str, Any]]) -> None:
    told = report.report
    assert (report.code, told["is_valid"], len(told["errors"])) == (1, False, len(problems))
    assert told["success"] == all(p["code"] not in UNSUCCESSFUL for p in problems)


def assert_a_place_and_a_node(path: Path, problem: dict[str, Any]) -> None:
    """A problem without a node concerns the file; all others begin with their node."""
    assert problem["file"] == str(path)
    assert problem["line"] >= 1 and problem["column"] >= 1
    message = problem["message"]
    if problem["node"] is None:
        assert problem["code"] in OF_NO_NODE or message.startswith("section '"), problem
    elif problem["code"] != "CYCLE":
        named = r"([\w ]*(source|transform|sink)|Primary key validation failed for node) '"
        assert re.match(named, message), message


def assert_fit_for_people(shown: Checked, report: Checked) -> None:
    """Each problem is printed with its line and a caret; no stack trace, and nothing on standard output."""
    assert (shown.code, shown.out) == (1, "")
    assert shown.err.startswith("Streamling Error")
    assert "Traceback" not in shown.err
    errors = [p for p in report.report["problems"] if p["severity"] == "error"]
    carets = re.findall(r"^ +(\d+) \| .*\n +\^$", shown.err, re.MULTILINE)
    assert [int(line) for line in carets] == [problem["line"] for problem in errors]
    for problem in errors:
        assert f"{problem['message']} [{problem['code']}]" in shown.err


def assert_no_secrets(pipeline: AnnotatedPipeline, output: str) -> None:
    for secret in pipeline.hidden:
        assert secret not in output


def test_every_kind_of_node_is_wrong_in_two_ways_at_least() -> None:
    texts = [error.message for path in FILES for error in annotated(path).errors]
    for role, kind in kinds.built_in_kinds():
        told = [text for text in texts if f"{kind} {Role(role).value} '" in text]
        assert len(told) >= 2, f"{kind} {role.value}"
