"""The report for programs: complete in every case, and free of secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamling.cli.main import main

SOURCE = "sources:\n  s: {type: generator, rows: 1}\n"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def report(capsys: pytest.CaptureFixture[str], text: str, *arguments: str) -> dict[str, Any]:
    Path("p.yaml").write_text(text)
    main(["validate", "p.yaml", "--format", "json", *arguments])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    "line",
    [
        'Authorization: "Bearer hunter2',
        "Authorization: @hunter2",
        "Authorization: Bearer: hunter2",
        "bad name: hunter2",
        "Authorization: [hunter2]",
        'Authorization: "x\\qhunter2"',
    ],
)
def test_nothing_quotes_a_header(capsys: pytest.CaptureFixture[str], line: str) -> None:
    text = f"{SOURCE}sinks:\n  o:\n    type: webhook\n    from: s\n    url: http://h\n    headers:\n      {line}\n"
    found = report(capsys, text)
    assert not found["is_valid"]
    assert "hunter2" not in json.dumps(found)
    main(["validate", "p.yaml", "--traceback"])
    shown = capsys.readouterr().err
    assert "Error:" in shown and "hunter2" not in shown


@pytest.mark.parametrize("text", ['postgres_sink:\n  pass: "hunter2\n', "http_secret_value: {crm: @hunter2}\n"])
def test_nothing_quotes_a_secret_setting(capsys: pytest.CaptureFixture[str], text: str) -> None:
    Path("config.yaml").write_text(text)
    found = report(capsys, SOURCE + "sinks: {}\n")
    assert [p["code"] for p in found["problems"]] == ["CONFIG_FILE"]
    assert "hunter2" not in json.dumps(found)


def test_a_check_without_usable_settings_was_not_carried_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert report(capsys, SOURCE, "--config", "nope")["success"] is False
    monkeypatch.setenv("STREAMLING__JOB_MODE", "perhaps")
    found = report(capsys, SOURCE)
    assert (found["success"], found["is_valid"]) == (False, False)
    assert [p["code"] for p in found["problems"]] == ["SETTING_INVALID"]


def test_warnings_are_told_beside_errors(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, SOURCE + "sinks:\n  o: {type: memory, from: s, primary_key: nope}\n")
    assert (found["success"], found["is_valid"]) == (True, False)
    assert [(p["severity"], p["code"], p["line"]) for p in found["problems"]] == [
        ("error", "PRIMARY_KEY", 4),
        ("warning", "NO_KEY", 2),
    ]
    assert len(found["errors"]) == len(found["warnings"]) == 1


def test_a_text_without_its_hint_would_tell_half(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, SOURCE + "sinks:\n  o: {type: memory, from: sss, primary_key: id}\n")
    assert found["errors"][-1:] == [
        "memory sink 'o': plan 'sss' not found; caused by: memory sink 'o': there is no source or transform named 'sss'"
        " (hint: nodes that can be read: s)"
    ]


def test_a_plugin_path_that_does_not_exist_is_an_error_of_the_user(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMLING__PLUGIN__PATH", "plugins")
    found = report(capsys, SOURCE + "sinks:\n  o: {type: memory, from: s, primary_key: id}\n")
    assert (found["success"], found["is_valid"]) == (True, False)
    assert found["problems"][0]["code"] == "PLUGIN_NOT_LOADED"
    assert "'plugins', which does not exist" in found["errors"][0]


def test_a_lookup_that_goes_wrong_in_any_way_leaves_the_others_their_problems(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from streamling.sources.file import listing

    def odd(path: str) -> tuple[object, str]:
        if path.startswith("s3://"):
            raise OSError("no credentials")
        return real(path)

    real = listing.file_system
    monkeypatch.setattr(listing, "file_system", odd)
    text = """\
sources:
  a: {type: file, path: "s3://bucket/x.csv", format: csv, primary_key: id}
  b: {type: file, path: nowhere.csv, format: csv, primary_key: id}
sinks:
  oa: {type: memory, from: a}
  ob: {type: memory, from: b}
"""
    found = report(capsys, text, "--probe")
    errors = [p for p in found["problems"] if p["severity"] == "error"]
    assert [(p["code"], p["node"], p["line"]) for p in errors] == [
        ("SCHEMA_NOT_FOUND", "a", 2),
        ("SCHEMA_NOT_FOUND", "b", 3),
    ]
    assert "no credentials" in errors[0]["message"] and "no files matched" in errors[1]["message"]
