"""YAML text becomes a tree with positions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamling.errors import UserError, Where
from streamling.spec.yaml import MapNode, ScalarNode, load


def value(text: str) -> object:
    return load(f"v: {text}\n", "p.yaml").plain()["v"]


def scalar(text: str, key: str = "v") -> ScalarNode:
    node = load(text, "p.yaml").get(key)
    assert isinstance(node, ScalarNode)
    return node


def refusal(text: str) -> UserError:
    with pytest.raises(UserError) as caught:
        load(text, "p.yaml")
    assert caught.value.code == "INVALID_YAML"
    assert "invalid YAML" in caught.value.message
    assert caught.value.where is not None
    return caught.value


@pytest.mark.parametrize(
    "word", ["yes", "no", "on", "off", "y", "2024-01-31", "2024-01-31T10:00:00Z", "1_000", "12:30"]
)
def test_words_outside_the_core_schema_are_text(word: str) -> None:
    assert value(word) == word


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("False", False),
        ("12", 12),
        ("-7", -7),
        ("0o17", 15),
        ("0xff", 255),
        ("010", 10),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("~", None),
        ("null", None),
        ("", None),
        ('"12"', "12"),
        ("'true'", "true"),
        ("!!str 12", "12"),
        ('!!int "12"', 12),
        ("! 12", "12"),
    ],
)
def test_scalars_follow_the_core_schema(text: str, expected: object) -> None:
    assert value(text) == expected
    assert type(value(text)) is type(expected)


def test_a_value_keeps_its_text_as_written() -> None:
    assert scalar("v: 007\n").text == "007"


def test_json_is_yaml() -> None:
    document = {"a": [1, 2.5, None, True, {"b": 'x/\n\t"😀'}], "c": {}}
    assert load(json.dumps(document), "p.json").plain() == document
    assert load(json.dumps(document, indent="\t"), "p.json").plain() == document


def test_every_key_and_value_has_its_place() -> None:
    tree = load("a:\n  b: 1\n  c: [x, y]\n", "p.yaml")
    inner = tree.get("a")
    assert isinstance(inner, MapNode)
    entry = inner.entry("c")
    assert entry is not None
    assert entry.where == Where("p.yaml", 3, 3)
    assert entry.value.where == Where("p.yaml", 3, 6)


def test_keys_are_text_as_written() -> None:
    assert load("1: a\ntrue: b\nnull: c\n", "p.yaml").plain() == {"1": "a", "true": "b", "null": "c"}


def test_merge_keys_are_not_applied() -> None:
    tree = load("a: &a {x: 1}\nb:\n  <<: *a\n  y: 2\n", "p.yaml")
    assert tree.plain()["b"] == {"<<": {"x": 1}, "y": 2}


def test_a_duplicate_key_is_refused_where_it_stands() -> None:
    error = refusal("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n")
    assert error.where == Where("p.yaml", 5, 3)
    assert "'c'" in error.message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "empty"),
        ("# only a comment\n", "empty"),
        ("---\n", "empty"),
        ("- a\n- b\n", "a list"),
        ("just text\n", "text"),
        ("a: 1\n---\nb: 2\n", "more than one document"),
        ("a:\n\tb: 1\n", "tab"),
        ("a: \x00", "U+0000"),
        ("\x7fELF\x02\x01", "not allowed"),
        ("a: [1, 2\n", "expected"),
        ("a: *nobody\n", "no anchor"),
        ("a: &a [*a]\n", "inside its own anchor"),
        ("? [a]\n: b\n", "a key must be text"),
        ("a: !python/object:os.system x\n", "not part of the core schema"),
        ("a: !!binary aGk=\n", "not part of the core schema"),
        ('a: "\\U00110000"\n', "cannot be parsed"),
        ('a: "\\ud83d"\n', ""),
        (f"a: {'9' * 5000}\n", "digits"),
        ("a: " + "[" * 5000, "levels deep"),
        ("%YAML 7.0\n---\na: 1\n", ""),
    ],
)
def test_what_is_not_one_document_is_refused(text: str, part: str) -> None:
    assert part in refusal(text).message


def test_a_tab_is_answered_with_advice() -> None:
    error = refusal("a:\n\tb: 1\n")
    assert error.where == Where("p.yaml", 2, 1)
    assert error.hint is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("v:\tx\n", {"v": "x"}),
        ("v: x\t\n", {"v": "x"}),
        ("v: x\t# note\n", {"v": "x"}),
        ("v: {}\t# note\n", {"v": {}}),
        ("v: 1\n\t\nw: 2\n", {"v": 1, "w": 2}),
        ("v:\n\t# note\n  w: 2\n", {"v": {"w": 2}}),
        ("v:\n  -\tx\n", {"v": ["x"]}),
        ("v:\t|\n  x\ty\n  \tz\n", {"v": "x\ty\n\tz\n"}),
        ("v: \"x\ty\"\t\nw: 'x\ty'\n", {"v": "x\ty", "w": "x\ty"}),
        ("v: x\ty\n", {"v": "x\ty"}),
    ],
)
def test_tabs_may_separate_and_stay_in_texts(text: str, expected: object) -> None:
    assert load(text, "p.yaml").plain() == expected


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("\tv: 1\n", (1, 1)),
        ("v:\n  \tw: 1\n", (2, 3)),
        ("v: x\n\tw: 1\n", (2, 1)),
        ("v:\n-\t- x\n", (2, 3)),
        ("v:\n  -\tw: 1\n", (2, 6)),
    ],
)
def test_tabs_never_indent(text: str, place: tuple[int, int]) -> None:
    where = refusal(text).where
    assert where is not None
    assert (where.line, where.column) == place


def test_aliases_share_a_value() -> None:
    tree = load("a: &a {x: [1]}\nb: *a\nc: *a\n", "p.yaml")
    assert tree.plain() == {"a": {"x": [1]}, "b": {"x": [1]}, "c": {"x": [1]}}


def test_nested_aliases_cannot_explode() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    assert "aliases counted" in refusal("\n".join(lines)).message


def test_chained_aliases_cannot_grow_deep() -> None:
    lines = ["a0: &a0 [x]", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 300))]
    assert "aliases counted" in refusal("\n".join(lines)).message


def test_a_byte_order_mark_is_no_character() -> None:
    assert load("\ufeffa: 1\n", "p.yaml").entry("a") is not None


LITERAL = "v: |\n  SELECT a,\n\n    b\n  FROM t\n"


@pytest.mark.parametrize(
    ("text", "position", "place"),
    [
        ("v: SELECT a\n", (1, 8), (1, 11)),
        ('v: "SELECT a"\n', (1, 8), (1, 12)),
        ("v: 'SELECT a'\n", (1, 8), (1, 12)),
        ("v: &x !!str SELECT a\n", (1, 8), (1, 20)),
        (LITERAL, (1, 8), (2, 10)),
        (LITERAL, (3, 3), (4, 5)),
        (LITERAL, (4, 1), (5, 3)),
        ("v: |-\n\n\n   x\n", (3, 1), (4, 4)),
        ("v: |2+ # comment\n    x\n", (1, 3), (2, 5)),
        (LITERAL.replace("\n", "\r\n"), (4, 1), (5, 3)),
        ("v: >\n  SELECT a\n  FROM t\n", (1, 10), (3, 3)),
        ("v: >-  # folded\n\n    SELECT a,\n\n    b\n  \n    FROM t\n", (2, 10), (5, 5)),
        ("v: >\r\n  SELECT a\r\n  FROM t\r\n", (1, 15), (3, 8)),
        ("v: SELECT a\n  FROM t\n", (1, 10), (2, 3)),
        ('v: "SELECT \\"a\\""\n', (1, 9), (1, 14)),
        ('v: "SELECT\\n  \\u0061,\\\n   b"\n', (2, 3), (1, 15)),
        ('v: "SELECT\\n  \\u0061,\\\n   b"\n', (2, 5), (2, 4)),
        ("v: 'it''s\n  a'\n", (1, 4), (1, 9)),
        ("v: 'it''s\n  a'\n", (1, 6), (2, 3)),
        ("v: &x |\n  SELECT a\n", (1, 8), (2, 10)),
        ("v: SELECT a\n", (1, 99), (1, 12)),
    ],
)
def test_a_position_in_a_text_leads_to_the_file(text: str, position: tuple[int, int], place: tuple[int, int]) -> None:
    assert scalar(text).locate(*position) == Where("p.yaml", *place)


def test_a_position_outside_of_the_text_is_nowhere() -> None:
    assert scalar("v: SELECT a\n").locate(2, 1) is None
    assert scalar("v: SELECT a\n").locate(1, 0) is None


WORDS = st.lists(st.text("abc'\"\\#,: é", min_size=1, max_size=6).map(str.strip).filter(bool), min_size=1, max_size=8)


@settings(max_examples=200, deadline=None)
@given(WORDS, st.sampled_from(["plain", "folded", "single", "double"]))
def test_texts_over_several_lines_are_located_exactly(words: list[str], style: str) -> None:
    lines = {
        "plain": ["v: x", *(f"  {word}" for word in words)],
        "folded": ["v: >", *(f"  {word}" for word in words)],
        "single": ["v: '", *("  " + word.replace("'", "''") for word in words), "  '"],
        "double": ['v: "', *("  " + word.replace("\\", "\\\\").replace('"', '\\"') for word in words), '  "'],
    }[style]
    try:
        node = scalar("\n".join(lines) + "\n")
    except (UserError, AssertionError):
        return  # not every heap of words is a text
    for number, line in enumerate(node.text.split("\n"), start=1):
        for column, char in enumerate(line, start=1):
            where = node.locate(number, column)
            assert where is not None
            if not char.isspace():
                source = lines[where.line - 1][where.column - 1 :]
                assert source[0] == char or source[:2] == "\\" + char


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp", "Cs"]), max_size=8), max_size=5)
)
def test_literal_blocks_are_located_exactly(lines: list[str]) -> None:
    source = ["v: |", *(f"  {line}" for line in ["first", *lines, "last"])]
    try:
        node = scalar("\n".join(source) + "\n")
    except UserError:
        return
    for number, line in enumerate(node.text.split("\n"), start=1):
        for column, char in enumerate(line, start=1):
            where = node.locate(number, column)
            assert where is not None
            assert source[where.line - 1][where.column - 1] == char
