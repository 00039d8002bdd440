"""Pipelines that are valid, with the warnings their files announce, or without any."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.annotated_pipelines import annotated, assert_as_announced, files, validated

pytestmark = pytest.mark.usefixtures("clean_process")


@pytest.mark.parametrize("file", files("warned_pipelines"), ids=lambda path: path.stem)
def test_a_pipeline_is_valid_with_the_warnings_announced(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked = validated(capsys, str(file), "--format", "json")
    assert (checked.code, checked.report["errors"]) == (0, [])
    assert annotated(file).warnings, "a pipeline without warnings belongs to the valid ones"
    assert_as_announced(checked.found("warning"), annotated(file).warnings)
    shown = validated(capsys, str(file))
    assert (shown.code, shown.out) == (0, "")
    for warning in annotated(file).warnings:
        assert f"  at {file}:{warning.line}:{warning.column}" in shown.err
        assert f"[{warning.code}]" in shown.err


@pytest.mark.parametrize("file", files("valid_pipelines"), ids=lambda path: path.stem)
def test_a_pipeline_is_valid_without_warnings(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked = validated(capsys, str(file), "--format", "json")
    assert (checked.code, checked.report["success"], checked.report["errors"]) == (0, True, [])
    assert checked.found("warning") == []
    assert "valid, " in validated(capsys, str(file)).err
