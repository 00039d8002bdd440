"""Commands exit with 0, 1 or 2, print errors to standard error, and only results to standard output."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import streamling
from streamling.cli.main import main
from streamling.engine import run
from streamling.engine.execution import Execution, Summary
from streamling.engine.protocol.state import SqliteState
from streamling.errors import SINK_FAILED, PermanentError

VALID = """\
sources:
  numbers: {type: generator, rows: 3, primary_key: id}
sinks:
  out: {type: blackhole, from: numbers}
"""
INVALID = """\
sources:
  numbers: {type: generator, rows: 3}
sinks:
  out:
    type: blackhole
    from: nobody
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a valid and an invalid pipeline."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RUST_LOG", raising=False)
    Path("valid.yaml").write_text(VALID)
    Path("invalid.yaml").write_text(INVALID)
    return tmp_path


def exit_code(*arguments: str) -> int:
    """The exit code of a command, returned or raised."""
    try:
        return main(arguments)
    except SystemExit as exit_:
        assert isinstance(exit_.code, int)
        return exit_.code


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, bool]]:
    """Records the runs that commands request, instead of running them."""
    requests: list[tuple[Path, bool]] = []

    class FakeRun:
        def __init__(self, execution: Execution, settings: object, *, verbose: bool = False, **others: object) -> None:
            requests.append((Path(str(execution._pipeline)), verbose))

        def execute(self) -> Summary:
            return Summary(epochs=2, rows=1234, written={"out": 1234}, seconds=0.5)

    monkeypatch.setattr(run, "Run", FakeRun)
    return requests


# Commands


@pytest.mark.parametrize("arguments", [("valid.yaml",), ("run", "valid.yaml")])
def test_a_file_alone_is_run(arguments: tuple[str, ...], runs: list[Any], capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*arguments) == 0
    assert runs == [(Path("valid.yaml"), False)]
    out, err = capfd.readouterr()
    assert out == ""
    assert "1,234 rows in 2 epochs" in err


def test_without_a_file_the_one_of_the_settings_is_run(runs: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert exit_code() == 0
    monkeypatch.setenv("STREAMLING__PIPELINE_DEFINITION_LOCATION", "other.yaml")
    assert exit_code("run", "-v") == 0
    assert runs == [(Path("pipeline.yaml"), False), (Path("other.yaml"), True)]


def test_an_unknown_word_is_taken_for_a_file(runs: list[Any]) -> None:
    assert exit_code("vallidate") == 0
    assert runs == [(Path("vallidate"), False)]


@pytest.mark.parametrize(
    "arguments",
    [
        ("vallidate", "valid.yaml"),
        ("run", "valid.yaml", "--no-such-option"),
        ("run", "-v", "-q", "valid.yaml"),
        ("validate", "--config"),
        ("state",),
        ("state", "burn"),
        ("state", "show"),
    ],
)
def test_wrong_usage_is_exit_2(arguments: tuple[str, ...], runs: list[Any], capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*arguments) == 2
    assert runs == []
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert "usage: streamling" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("preview", "--rows", "0"), "invalid value for '--rows': input should be greater than or equal to 1"),
        (("preview", "--seconds", "nan"), "invalid value for '--seconds': input should be less than or equal to 600"),
        (("preview", "--format", "xml"), "invalid value for '--format': 'xml' is not one of 'text', 'json', 'events'"),
        (("preview", "--row", "1"), "no such option: --row"),
    ],
)
def test_a_wrong_value_names_its_option(
    arguments: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(*arguments) == 2
    assert capfd.readouterr().err.splitlines()[0] == f"error: {message}"


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("state", "--help")])
def test_help_and_version_are_exit_0(arguments: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*arguments) == 0
    assert "streamling" in capfd.readouterr().out


def test_a_run_that_fails_is_exit_1_without_a_stack_trace(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Failing:
        def __init__(self, *_: object, **__: object) -> None: ...

        def execute(self) -> Summary:
            raise PermanentError(SINK_FAILED, "refused by the target", node="out")

    monkeypatch.setattr(run, "Run", Failing)
    assert exit_code("valid.yaml") == 1
    err = capfd.readouterr().err
    assert "Error: refused by the target [SINK_FAILED]" in err
    assert "Traceback" not in err
    assert exit_code("valid.yaml", "--traceback") == 1
    assert "Traceback" in capfd.readouterr().err


def test_a_reader_that_closes_the_pipe_sees_no_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "streamling.cli.main", "init", "--list"]
    environment = {**os.environ, "PYTHONPATH": str(Path(streamling.__file__).parents[1])}
    read, write = os.pipe()
    os.close(read)
    with subprocess.Popen(command, stdout=write, stderr=subprocess.PIPE, env=environment) as process:
        os.close(write)
        assert process.stderr is not None
        assert process.stderr.read() == b""


# Validation


def test_a_valid_pipeline_is_exit_0(capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code("validate", "valid.yaml") == 0
    assert exit_code("run", "valid.yaml", "--dry-run") == 0
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("arguments", [("validate", "invalid.yaml"), ("invalid.yaml", "--dry-run")])
def test_an_invalid_pipeline_is_exit_1_and_shown(arguments: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*arguments) == 1
    out, err = capfd.readouterr()
    assert out == ""
    errors, _, warnings = err.partition("Warning: ")
    assert "NO_KEY" in warnings
    assert errors.splitlines() == [
        "Streamling Error (2 problems)",
        "Error: generator source 'numbers' has no consumers [NO_CONSUMERS]",
        "  at invalid.yaml:2:3",
        "     2 |   numbers: {type: generator, rows: 3}",
        "           ^",
        "  hint: read it in a transform or sink, or remove it",
        "Error: blackhole sink 'out': there is no source or transform named 'nobody' [NODE_NOT_FOUND]",
        "  at invalid.yaml:6:11",
        "     6 |     from: nobody",
        "                   ^",
        "  hint: nodes that can be read: numbers",
    ]


def report(capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capfd.readouterr().out)


def test_a_report_of_a_valid_pipeline_has_its_warnings(capfd: pytest.CaptureFixture[str]) -> None:
    Path("keyless.yaml").write_text(VALID.replace(", primary_key: id", ""))
    assert exit_code("--validate", "keyless.yaml") == 0
    content = report(capfd)
    assert (content["success"], content["is_valid"], content["errors"]) == (True, True, [])
    assert "no primary key" in content["warnings"][0]


def test_a_report_of_an_invalid_pipeline_has_all_problems(capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code("invalid.yaml", "--validate") == 1
    content = report(capfd)
    assert (content["success"], content["is_valid"]) == (True, False)
    assert ["no consumers" in e or "not found" in e for e in content["errors"]] == [True, True]


@pytest.mark.parametrize("arguments", [("nowhere.yaml",), ("valid.yaml", "--config", "nowhere")])
def test_a_report_is_given_even_when_a_file_is_missing(
    arguments: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(*arguments, "--validate") == 1
    content = report(capfd)
    assert not content["is_valid"]
    assert "nowhere" in content["errors"][0]


def test_a_missing_pipeline_file_is_exit_1(capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code("validate", "nowhere.yaml") == 1
    assert "Error: pipeline file 'nowhere.yaml' not found [PIPELINE_FILE]" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["run", "validate", "plan"])
@pytest.mark.parametrize(
    ("file", "hint"),
    [
        ("valid.yml", "did you mean 'valid.yaml'?"),
        ("vald.yaml", "did you mean 'valid.yaml'?"),
        ("orders.yaml", "create one with `streamling init orders.yaml`"),
        ("nowhere/valid.yaml", "there is no directory 'nowhere'"),
    ],
)
def test_a_missing_pipeline_file_is_answered_with_what_helps(
    command: str, file: str, hint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(command, file) == 1
    err = capfd.readouterr().err
    assert f"  hint: {hint}\n" in err
    assert "Caused by" not in err


def test_a_mistyped_command_is_answered_with_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code("vallidate") == 1
    assert "did you mean the command 'streamling validate'?" in capfd.readouterr().err


@pytest.mark.parametrize("command", [("run", "valid.yaml"), ("validate", "valid.yaml"), ("state", "list")])
def test_a_missing_config_file_is_exit_1(
    command: tuple[str, ...], runs: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(*command, "--config", "nowhere") == 1
    assert runs == []
    err = capfd.readouterr().err
    assert "configuration file 'nowhere' not found" in err
    assert "[CONFIG_FILE]" in err


def test_a_wrong_setting_is_exit_1(runs: list[Any], monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setenv("STREAMLING__CHECKPOINT_INTERVAL_SEC", "soon")
    assert exit_code("valid.yaml") == 1
    assert runs == []
    assert "[SETTING_INVALID]" in capfd.readouterr().err


# State


@pytest.fixture
def positions() -> Callable[[str], dict[str, Any]]:
    """Positions of two applications in the default state file; returns a function that reads them."""
    for application, values in (("local_app_v1", {"a:k": {"next": 5}, "b:k": "x" * 200}), ("other", {"c:k": 1})):
        store = SqliteState(Path("state.db"), application)
        store.put(values)
        store.close()

    def look(application: str) -> dict[str, Any]:
        store = SqliteState(Path("state.db"), application)
        try:
            return store.items()
        finally:
            store.close()

    return look


def test_a_list_has_a_line_per_key(positions: object, capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code("state", "list") == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == 'a:k\t{"next": 5}'
    assert lines[1].startswith('b:k\t"xxx') and lines[1].endswith("...")
    assert len(lines) == 2


def test_an_empty_list_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code("state", "list", "--application", "nobody") == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert err == "no positions are stored for application 'nobody' (./state.db)\n"
    assert exit_code("state", "list", "-q") == 0
    assert capfd.readouterr().err == ""


def test_one_key_is_one_key(positions: object, capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code("state", "reset", "--yes", "--application", "other") == 0
    assert capfd.readouterr().out == "removed 1 key of 'other'\n"


def test_another_application_can_be_looked_at(positions: object, capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code("state", "list", "--application", "other") == 0
    assert capfd.readouterr().out == "c:k\t1\n"


def test_show_gives_whole_values(positions: object, capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code("state", "show", "b:k") == 0
    assert report(capfd) == {"key": "b:k", "value": "x" * 200}


def test_showing_a_key_that_is_not_there_is_exit_1(positions: object, capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code("state", "show", "a:k", "z") == 1
    out, err = capfd.readouterr()
    assert json.loads(out)["key"] == "a:k"
    assert "z" in err


def test_a_reset_forgets_this_application_only(positions: Any, capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code("state", "reset", "--yes") == 0
    assert "2 keys of 'local_app_v1'" in capfd.readouterr().out
    assert positions("local_app_v1") == {}
    assert positions("other") == {"c:k": 1}


class Terminal:
    """A user at the keyboard."""

    def __init__(self, answer: str) -> None:
        self._answer = answer

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return f"{self._answer}\n"


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, 0), ("yes", 0, 0), ("n", 1, 2), ("", 1, 2)])
def test_a_reset_asks_first(answer: str, code: int, left: int, positions: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert exit_code("state", "reset") == code
    assert len(positions("local_app_v1")) == left


def test_a_reset_that_can_ask_nobody_is_refused(positions: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y"))
    assert exit_code("state", "reset") == 2
    assert len(positions("local_app_v1")) == 2


def test_a_state_file_that_cannot_be_opened_is_exit_1(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STREAMLING__STATE_BACKEND__SQLITE__DATABASE_PATH", "valid.yaml/state.db")
    assert exit_code("state", "list") == 1
    err = capfd.readouterr().err
    assert "[STATE_UNREADABLE]" in err
    assert "hint: set state_backend.sqlite.database_path" in err
