"""Tests that fail beside others are run again alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

AGAIN = Path(__file__).parents[1] / "again.py"
FAILS_ONCE = """\
def test_it(request):
    seen = request.path.with_suffix(".seen")
    if not seen.exists():
        seen.touch()
        assert False
"""


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Plugins take most of a second to import.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=project, env=environment, capture_output=True, text=True, check=False
    )


def run_twice(project: Path, tests: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The tests are run, and then again."""
    (project / "pytest.ini").touch()
    for name, text in tests.items():
        file = project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert run(project, "-m", "pytest", "-q").returncode == 1
    return run(project, str(AGAIN))


def test_a_test_that_passes_alone_is_named(tmp_path: Path) -> None:
    again = run_twice(tmp_path, {"tests/test_a.py": FAILS_ONCE, "tests/test_b.py": "def test_it(): pass"})
    assert again.returncode == 0, again.stdout
    assert "1 passed" in again.stdout
    assert "UNSTABLE: tests/test_a.py::test_it failed beside other tests" in again.stdout


def test_a_test_that_fails_again_fails(tmp_path: Path) -> None:
    again = run_twice(tmp_path, {"tests/test_a.py": FAILS_ONCE, "tests/test_b.py": "def test_it(): assert False"})
    assert again.returncode == 1
    assert "1 failed, 1 passed" in again.stdout
    assert "UNSTABLE" not in again.stdout


def test_many_failures_are_no_coincidence(tmp_path: Path) -> None:
    again = run_twice(tmp_path, {f"tests/test_{n}.py": FAILS_ONCE for n in range(4)})
    assert again.returncode == 1
    assert "not run again: 4 tests failed" in again.stdout


def test_a_lost_row_is_no_coincidence(tmp_path: Path) -> None:
    again = run_twice(tmp_path, {"tests/faults/test_kills.py": FAILS_ONCE})
    assert again.returncode == 1
    assert "not run again: tests/faults/test_kills.py::test_it failed" in again.stdout


def test_a_file_that_cannot_be_imported_fails(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text("import absent")
    run(tmp_path, "-m", "pytest", "-q")
    assert run(tmp_path, str(AGAIN)).returncode != 0
