"""The recipes of docs/scripts.md do what the page says."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from streamling.plan.types import DataType
from support.doc_pages import ROOT, Block, blocks_of
from support.script_samples import Script

PAGE = ROOT / "docs" / "scripts.md"
EXAMPLE = re.compile(r"^// (\{.*\}) -> (\[.*\])$", re.MULTILINE)
RECIPES = [block for block in blocks_of(PAGE) if block.language in ("javascript", "typescript")]


def type_of(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "int64"
        case float():
            return "float64"
        case list():
            return f"list<{type_of(value[0])}>"
        case dict():
            return "struct<" + ", ".join(f"{name}: {type_of(inner)}" for name, inner in value.items()) + ">"
    return "string"


def types_of(rows: list[dict[str, Any]]) -> dict[str, str | DataType]:
    return {name: type_of(value) for row in rows for name, value in row.items()}


def test_there_are_recipes() -> None:
    assert len(RECIPES) >= 8


@pytest.mark.parametrize("block", RECIPES, ids=str)
def test_a_recipe_does_what_the_page_says(block: Block) -> None:
    examples = [(json.loads(row), json.loads(rows)) for row, rows in EXAMPLE.findall(block.text)]
    assert examples
    before = [row for row, _ in examples]
    expected = [row for _, rows in examples for row in rows]
    script = Script(block.text, types_of(before), types_of(expected or before), language=block.language)
    after = [{name: value for name, value in row.items() if name != "_gs_op"} for row in script.run(before)]
    assert after == expected
