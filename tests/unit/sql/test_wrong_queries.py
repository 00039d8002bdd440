"""Wrong queries and their problems: the code, the exact position, the words that matter. All problems at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from support.sql_samples import problems

QUERIES: list[dict[str, Any]] = YAML(typ="safe").load(Path(__file__).parent / "wrong_queries.yaml")


def test_there_are_enough_of_them() -> None:
    assert len(QUERIES) >= 60
    assert sum(len(query["problems"]) > 1 for query in QUERIES) >= 4


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query["sql"])
def test_a_wrong_query_is_refused_with_its_place(query: dict[str, Any]) -> None:
    found = problems(query["sql"])
    places = [f"{problem.where.line}:{problem.where.column}" for problem in found if problem.where]
    assert [(problem.code, place) for problem, place in zip(found, places, strict=True)] == [
        (code, place) for code, place, *_ in query["problems"]
    ]
    for problem, (_, place, words, *hint) in zip(found, query["problems"], strict=True):
        assert words in problem.message
        assert hint in ([], [problem.hint])
        assert problem.quote is not None and "SQL of 'n'" in problem.quote
        assert query["sql"].split("\n")[int(place.split(":")[0]) - 1].strip() in problem.quote
        assert problem.message.count("Did you mean") <= 1
