"""Help ends with examples, errors suggest what was meant, and the shell completes what it can."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from streamling.cli.app import Command, CommandGroup, load_command
from streamling.cli.commands import COMMANDS, with_command
from streamling.cli.main import main
from streamling.engine.protocol.state import SqliteState
from streamling.errors import CONDITIONS

INNER = [("state", "list"), ("state", "show"), ("state", "reset"), ("plugin", "list")]
INNER += [("dev", name) for name in ("up", "down", "status", "env", "produce", "tail")]
ALL = [(), *((name,) for name in COMMANDS), *INNER]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def help_of(path: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> str:
    assert main([*path, "--help"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return out


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_ends_with_examples_and_fits_80_columns(path: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    text = help_of(path, capfd)
    _, _, examples = text.rpartition("\nExamples:\n")
    lines = examples.splitlines()
    assert lines and all(line.startswith("  streamling") for line in lines)
    assert max(map(len, text.splitlines())) < 80
    assert "..." not in text.partition("Commands:")[2]
    assert "<str>" not in text


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_examples_have_options_that_exist(path: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    for line in help_of(path, capfd).rpartition("\nExamples:\n")[2].splitlines():
        command = re.split(r"  +| \| | > ", line.strip())[0]
        words = with_command(shlex.split(command)[1:])
        loaded = load_command(words[0])
        loaded = loaded.commands[words[1]] if isinstance(loaded, CommandGroup) else loaded
        known = {option for parameter in loaded.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line


def test_short_help_works_too(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["-h"]) == 0
    assert main(["state", "list", "-h"]) == 0
    assert "Usage: streamling state list" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("run", "--conifg", "x"), "did you mean --config?"),
        (("valdate", "x.yaml"), "did you mean the command 'validate'?"),
        (("doctr", "--start"), "did you mean the command 'doctor'?"),
        (("state", "lst"), "did you mean 'list'?"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(
    arguments: tuple[str, ...], hint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    err = capfd.readouterr().err
    assert hint in err.lower()
    assert "usage: streamling" in err


def test_a_mistyped_command_alone_is_a_file_that_is_not_there(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["vallidate"]) == 1
    assert "did you mean the command 'streamling validate'?" in capfd.readouterr().err


def test_every_command_is_a_module_with_help() -> None:
    assert all(isinstance(load_command(name), Command | CommandGroup) for name in COMMANDS)
    assert all(load_command(name).help for name in COMMANDS)


# Completion


@pytest.fixture
def completed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[[str], list[str]]:
    """The completions of a line."""

    def ask(line: str) -> list[str]:
        words = ["streamling", *line.split(" ")]
        monkeypatch.setenv("_STREAMLING_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(words))
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        with pytest.raises((SystemExit, typer.Exit)):
            main([])
        return capfd.readouterr().out.split()

    return ask


def test_commands_and_pipeline_files_are_completed(completed: Callable[[str], list[str]]) -> None:
    Path("vast.yaml").touch()
    Path("vast.txt").touch()
    Path("vault").mkdir()
    Path("vault/in.yml").touch()
    assert completed("va") == ["validate", "vast.yaml", "vault/"]
    assert completed("run v") == ["vast.yaml", "vault/"]
    assert completed("run vault/") == ["vault/in.yml"]
    assert completed("vast.yaml --dr") == ["--dry-run"]


def test_options_are_completed(completed: Callable[[str], list[str]]) -> None:
    assert completed("validate --p") == ["--probe"]
    assert completed("validate --format j") == ["json"]


def test_kinds_and_codes_are_completed(completed: Callable[[str], list[str]]) -> None:
    assert completed("init --source k") == ["kafka"]
    assert completed("init --transform s") == ["script", "sql"]
    assert completed("init --sink p") == ["postgres", "postgres_aggregate", "print"]
    assert completed("explain SQL_T") == [code for code in sorted(CONDITIONS) if code.startswith("SQL_T")]


def test_state_keys_are_completed_and_nothing_is_made(completed: Callable[[str], list[str]]) -> None:
    assert completed("state show n") == []
    assert not Path("state.db").exists()
    store = SqliteState(Path("state.db"), "local_app_v1")
    store.put({"numbers:generator": 1, "names:file": 2, "other": 3})
    store.close()
    assert completed("state show n") == ["names:file", "numbers:generator"]
    assert completed("state r") == ["reset", "rewind"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_can_be_shown(
    shell: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("typer.completion._get_shell_name", lambda: shell)
    with pytest.raises(SystemExit) as exit_:
        main(["--show-completion"])
    assert exit_.value.code == 0
    assert "_STREAMLING_COMPLETE" in capfd.readouterr().out
