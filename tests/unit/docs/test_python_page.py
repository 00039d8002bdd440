"""The recipes of the page about Python functions do what their headings say."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from support.doc_pages import FENCE, ROOT

PAGE = (ROOT / "docs" / "python.md").read_text()
_HEADING = re.compile(r"^### (.+)$", re.MULTILINE)
RECIPES = dict(zip(*[iter(_HEADING.split(PAGE.partition("## Recipes")[2].partition("\n## ")[0])[1:])] * 2, strict=True))
ITEMS = [{"sku": "a", "count": 1}, {"sku": "b", "count": 2}]
WANTED: dict[str, tuple[dict[str, Any], Any]] = {
    "Rename and drop columns": ({"id": 1, "name": "x", "age": 3}, {"customer_id": 1, "name": "x"}),
    "Explode a list": (
        {"id": 7, "items": ITEMS},
        [{"order_id": 7, "line": number, **item} for number, item in enumerate(ITEMS, start=1)],
    ),
    "Parse JSON": (
        {"id": 1, "payload": '{"address": {"city": "Bonn"}}'},
        {"id": 1, "city": "Bonn", "tags": []},
    ),
    "Mask personal data": ({"email": "ann@example.com"}, {"email": "a***@example.com", "person": "49915e0d7d4b"}),
    "Exact amounts": (
        {"price": Decimal("1.05"), "quantity": 3},
        {"price": Decimal("1.05"), "quantity": 3, "total": Decimal("3.75")},
    ),
    "Local time": (
        {"id": 1, "at": datetime(2024, 6, 30, 22, 30, tzinfo=UTC)},
        {"id": 1, "day": date(2024, 7, 1), "hour": 0},
    ),
    "Reject a row": ({"total": -1}, "negative total -1"),
}


def test_every_recipe_is_tried() -> None:
    assert RECIPES.keys() == WANTED.keys()


@pytest.mark.parametrize("name", WANTED)
def test_a_recipe(name: str) -> None:
    row, wanted = WANTED[name]
    names: dict[str, Any] = {}
    match = FENCE.search(RECIPES[name])
    assert match is not None
    exec(match["text"], names)
    if isinstance(wanted, str):
        with pytest.raises(ValueError, match=wanted):
            names["process"](row)
        return
    returned = names["process"](row)
    assert (returned if isinstance(returned, dict) else list(returned)) == wanted
