"""The doctor shows what is installed and what is missing, and exits with 1 only if no pipeline could run."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from streamling.cli import health
from streamling.cli.main import main
from streamling.engine.protocol.state import SqliteState


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checks_of(capfd: pytest.CaptureFixture[str], code: int = 0) -> dict[str, dict[str, Any]]:
    """The checks by name."""
    assert main(["doctor", "--format", "json"]) == code
    report = json.loads(capfd.readouterr().out)
    assert report["ok"] is (code == 0)
    return {check["name"]: check for check in report["checks"]}


def test_a_sound_machine_is_exit_0(capfd: pytest.CaptureFixture[str]) -> None:
    checks = checks_of(capfd)
    assert {"Python", "pyspark", "Java", "class archive", "memory", "temporary files", "positions"} <= set(checks)
    assert main(["doctor"]) == 0
    assert "ready to run" in capfd.readouterr().out
    assert list(Path().iterdir()) == []


def test_the_packages_looked_for_are_those_of_the_project() -> None:
    root = Path(__file__).resolve().parents[3]
    declared = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    without_extras = {re.sub(r"\[.*\]", "", one) for one in declared}
    assert {f"{name}{wanted}" for name, wanted in health.NEEDED.items()} == without_extras


def test_a_missing_package_is_named_with_the_command_that_gets_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(health.NEEDED, "no-such-package", ">=1")
    check = checks_of(capfd, code=1)["no-such-package"]
    assert (check["status"], check["hint"]) == ("missing", "pip install 'no-such-package>=1'")


def test_an_unfitting_version_is_pointed_out(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(health.NEEDED, "pandas", ">=1,<2")
    assert checks_of(capfd)["pandas"]["status"] == "warning"


def test_a_java_home_that_leads_nowhere_is_missing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    java = checks_of(capfd, code=1)["Java"]
    assert java["status"] == "missing"
    assert "unset it" in java["hint"]


def test_an_untrained_machine_is_told_how_to_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive = checks_of(capfd)["class archive"]
    assert archive["status"] == "warning"
    assert "streamling setup" in archive["hint"]


@pytest.mark.parametrize(
    ("variable", "value", "shown"),
    [
        ("STREAMLING__STATE_BACKEND__POSTGRES__PASSWORD", "correct-horse", "*****horse"),
        ("STREAMLING__HTTP_SECRET_VALUE__CRM", "correct-horse", "*****"),
        ("STREAMLING__PLUGIN__CRM__SITE", "correct-horse", "*****"),
        ("STREAMLING__CLICKHOUSE_SINK__URL", "http://me:horse@host:8123", "http://me:*****@host:8123"),
        ("STREAMLING__JOB_MODE", "true", "true"),
    ],
)
def test_variables_are_shown_without_secrets(
    variable: str, value: str, shown: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, value)
    assert checks_of(capfd)[variable]["text"] == shown


def test_what_is_no_setting_is_flagged(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("STREAMLING__JOB_MOOD", "true")
    monkeypatch.setenv("STREAMLING_JOB_MODE", "true")
    checks = checks_of(capfd)
    assert "job_mode" in checks["settings"]["text"]
    assert checks["settings"]["status"] == "warning"
    assert "STREAMLING__JOB_MODE" in checks["STREAMLING_JOB_MODE"]["hint"]


def test_a_wrong_setting_is_exit_1(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("STREAMLING__JOB_MODE", "perhaps")
    assert checks_of(capfd, code=1)["settings"]["status"] == "missing"


def test_a_state_that_cannot_be_written_is_exit_1(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STREAMLING__STATE_BACKEND__SQLITE__DATABASE_PATH", "/nowhere/state.db")
    check = checks_of(capfd, code=1)["directory"]
    assert "does not exist" in check["text"]
    assert "database_path" in check["hint"]


def test_more_heap_than_memory_is_pointed_out(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STREAMLING__SPARK__DRIVER__MEMORY", "900t")
    assert checks_of(capfd)["memory"]["status"] == "warning"


def test_a_plugin_path_that_leads_nowhere_is_exit_1(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STREAMLING__PLUGIN__PATH", "/nowhere")
    assert checks_of(capfd, code=1)["path"]["status"] == "missing"


def test_a_plugin_that_cannot_be_loaded_is_exit_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.py").write_text("def half(:\n")
    monkeypatch.setenv("STREAMLING__PLUGIN__PATH", str(tmp_path))
    check = checks_of(capfd, code=1)["plugins"]
    assert check["status"] == "missing"
    assert "broken.py" in check["text"]
    assert "SyntaxError" in check["text"] or "invalid syntax" in check["text"]


def test_a_plugin_may_print_and_register_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "idle.py").write_text("print('hello')\n")
    monkeypatch.setenv("STREAMLING__PLUGIN__PATH", str(tmp_path))
    check = checks_of(capfd)["plugins"]
    assert check["status"] == "warning"
    assert "registers nothing" in check["text"]


def test_a_state_file_that_is_none_is_exit_1(capfd: pytest.CaptureFixture[str]) -> None:
    Path("state.db").write_text("no database at all, but long enough to have a header " * 20)
    check = checks_of(capfd, code=1)["positions"]
    assert "file is not a database" in check["text"]
    assert "database_path" in check["hint"]


def test_a_state_file_in_use_is_left_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    store = SqliteState(Path("state.db"), "app")
    store.put({"a:k": 1})
    assert checks_of(capfd)["positions"]["status"] == "ok"
    assert store.items() == {"a:k": 1}
    store.close()
    assert checks_of(capfd)["positions"]["status"] == "ok"
    assert [file.name for file in Path().iterdir()] == ["state.db"]


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [("4.3.0", ">=4.3,<4.4", True), ("4.4.0", ">=4.3,<4.4", False), ("2.1.9", ">=2.2,<3", False), ("3.0", "<3", False)],
)
def test_a_version_is_compared_by_its_numbers(version: str, wanted: str, fits: bool) -> None:
    assert health._is_within(version, wanted) is fits
