"""The innermost ring imports nothing from the outer ones."""

from __future__ import annotations

import ast
from pathlib import Path

import streamling.spec

ALLOWED = {"pydantic", "pydantic_core", "ruamel"}


def test_spec_imports_only_itself_the_errors_and_its_libraries() -> None:
    import sys

    for path in Path(streamling.spec.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            for name in names:
                top = name.split(".")[0]
                ours = name == "streamling.errors" or name.startswith("streamling.spec.")
                assert ours or top in ALLOWED or top in sys.stdlib_module_names, f"{path.name} imports {name}"
