"""Rules of the project that no other test would notice."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import streamling
from streamling import errors

SRC = Path(streamling.__path__[0])
FILES = sorted(SRC.rglob("*.py"))

VALID = """\
sources:
  numbers: {type: generator, rows: 3, primary_key: id}
transforms:
  some: {type: sql, primary_key: id, sql: SELECT id FROM numbers}
sinks:
  out: {type: file, from: some, path: out, format: parquet}
  shown: {type: print, from: numbers}
"""


def module_of(path: Path) -> str:
    parts = path.relative_to(SRC.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def ours(path: Path) -> Iterator[str]:
    """The modules of ours that a file imports anywhere, for type checkers only included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "streamling")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            if node.module == "streamling":
                yield from (f"streamling.{alias.name}" for alias in node.names)
            elif node.module and node.module.startswith("streamling."):
                yield node.module


def within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == f"streamling.{p}" or module.startswith(f"streamling.{p}.") for p in packages)


@pytest.mark.parametrize(
    ("ring", "allowed"),
    [("errors", ("errors",)), ("spec", ("spec", "errors")), ("plan", ("plan", "spec", "errors"))],
)
def test_inner_rings_import_only_inner_rings(ring: str, allowed: tuple[str, ...]) -> None:
    files = [path for path in FILES if within(module_of(path), (ring,))]
    assert files
    outwards = {f"{module_of(p)} imports {name}" for p in files for name in ours(p) if not within(name, allowed)}
    assert outwards == set()


def test_nobody_but_the_command_line_imports_the_command_line() -> None:
    others = [path for path in FILES if not within(module_of(path), ("cli", "__main__"))]
    assert others
    assert {module_of(p) for p in others for name in ours(p) if within(name, ("cli",))} == set()


def test_only_programs_and_the_command_line_start_the_admin_api() -> None:
    others = [path for path in FILES if not within(module_of(path), ("web", "cli", "api"))]
    assert {module_of(p) for p in others for name in ours(p) if within(name, ("web",))} == set()


def test_the_engine_runs_without_the_libraries_of_the_admin_api(tmp_path: Path) -> None:
    script = (
        "import sys; import streamling.engine.run, streamling.engine.execution, streamling.cli.run, streamling.api; "
        "import streamling.engine.data.sampling, streamling.engine.protocol.steps; "
        "print(sorted({'starlette', 'uvicorn'} & set(sys.modules)))"
    )
    result = python(script, tmp_path)
    assert result.stdout == "[]\n", result.stderr


def test_connectors_do_not_know_the_engine() -> None:
    rooms = ("sources", "sinks", "transforms", "formats", "clients", "connector", "plugin")
    connectors = [path for path in FILES if within(module_of(path), rooms)]
    assert connectors
    assert {module_of(p) for p in connectors for name in ours(p) if within(name, ("engine",))} == set()


def test_every_condition_is_declared_once() -> None:
    codes = Counter(
        node.args[0].value
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "condition"
        if isinstance(node.args[0], ast.Constant)
    )
    assert set(codes) >= set(errors.CONDITIONS)
    assert {code: count for code, count in codes.items() if count > 1} == {}


def test_declaring_a_condition_twice_is_refused() -> None:
    with pytest.raises(AssertionError, match="INTERNAL"):
        errors.condition("INTERNAL", "again", "and again")


def test_a_condition_is_called_by_its_code_and_used() -> None:
    names = {name: value.code for name, value in vars(errors).items() if isinstance(value, errors.Condition)}
    assert all(name == code for name, code in names.items())
    texts = [path.read_text() for path in FILES if not within(module_of(path), ("errors",))]
    unused = {name for name in names if not any(re.search(rf"\b{name}\b", text) for text in texts)}
    assert unused == set()


def test_no_module_outgrows_a_head() -> None:
    lengths = {module_of(path): len(path.read_text().splitlines()) for path in FILES}
    assert {name: length for name, length in lengths.items() if length > 450} == {}


def python(script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=directory,
        env={"PYTHONPATH": str(SRC.parent), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_validating_imports_neither_spark_nor_arrow_nor_colours(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(VALID)
    heavy = "{'pyspark', 'pyarrow', 'py4j', 'pandas', 'numpy', 'rich', 'opentelemetry'}"
    script = (
        "import sys; from streamling.cli.main import main; code = main(['validate', 'x.yaml']); "
        f"print(code, sorted({heavy} & set(sys.modules)))"
    )
    result = python(script, tmp_path)
    assert result.stdout == "0 []\n", result.stderr


def test_what_launches_java_imports_nothing_heavy(tmp_path: Path) -> None:
    heavy = "{'typer', 'rich', 'pydantic', 'sqlglot', 'pyspark', 'pyarrow', 'opentelemetry'}"
    result = python(f"import sys, streamling.cli.main; print(sorted({heavy} & set(sys.modules)))", tmp_path)
    assert result.stdout == "[]\n", result.stderr


def test_counting_in_a_worker_does_not_need_the_telemetry_library(tmp_path: Path) -> None:
    """Libraries are not shipped to the hosts of a cluster."""
    script = (
        "import sys; sys.modules['opentelemetry'] = None; "
        "from streamling.plugin.nodes.processor import ProcessCounts; counts = ProcessCounts(); "
        "counts.count('seen', 2, {}); counts.gauge('depth', 1, {}); counts.latency('elapsed', 1, {}); "
        "print(dict(counts.take()))"
    )
    result = python(script, tmp_path)
    assert (result.stdout, result.stderr) == ("{'[\"seen\", {}]': 2}\n", "")


@pytest.mark.parametrize(
    ("text", "code", "is_valid"),
    [(VALID, 0, True), (VALID.replace("from: some", "from: nobody"), 1, False), ("not: [a, pipeline", 1, False)],
)
def test_the_validation_report_is_one_json_object_and_all_of_the_output(
    tmp_path: Path, text: str, code: int, is_valid: bool
) -> None:
    (tmp_path / "x.yaml").write_text(text)
    script = "import sys; from streamling.cli.main import main; sys.exit(main(['x.yaml', '--validate']))"
    result = python(script, tmp_path)
    report = json.loads(result.stdout)
    assert (result.returncode, report["is_valid"], report["success"]) == (code, is_valid, True)
    assert bool(report["errors"]) is not is_valid
    assert set(report) == {"success", "is_valid", "errors", "warnings", "problems"}


@pytest.mark.parametrize("package", ["streamling.connector", "streamling.plugin"])
def test_every_name_that_a_public_package_offers_is_there(package: str) -> None:
    module = importlib.import_module(package)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
