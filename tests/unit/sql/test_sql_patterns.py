"""LIKE patterns and regular expressions in Spark's syntax."""

from __future__ import annotations

import pytest

from streamling.plan.sql.patterns import groups_of, is_well_formed, java_regexp, like_pattern, similar_pattern
from streamling.plan.sql.values import Refusal

REGEXPS = {
    "abc": "abc",
    "^a.c$": "(?d)^a.c\\z",
    "(?m)^a$": "(?d)(?m)^a$",
    r"\d+\.\d*": r"(?U)\d+\.\d*",
    "[$.]": "[$.]",
    "[]a]": r"[\]a]",
    "[^]a]": r"[^\]a]",
    "[[:alpha:]_]": "[A-Za-z_]",
    "[a[bc]]$": r"[a[bc]]\z",
    "(?P<year>x)(?<m>y)": "(x)(y)",
    "(?:a|b)": "(?:a|b)",
    "(?i)a": "(?U)(?i)a",
    r"\v\x41\x{1F600}\u{41}": r"\x0B\x{41}\x{1F600}\x{41}",
    r"\p{Greek}\pL\P{Lu}": r"\p{IsGreek}\p{L}\P{Lu}",
    r"a\$": r"a\$",
    "a{2,3}?": "a{2,3}?",
}


@pytest.mark.parametrize("pattern", REGEXPS)
def test_regexps_are_translated(pattern: str) -> None:
    assert java_regexp(pattern) == REGEXPS[pattern]


def test_case_is_ignored_in_all_scripts() -> None:
    assert java_regexp("é", "i") == "(?iU)é"


@pytest.mark.parametrize(
    "pattern",
    ["(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", r"(a)\1", r"\k<a>", "a*+", "a?+", "[a--b]", "[[:^alpha:]]", "(?x)a",
     r"\Qa\E", r"\Z", r"\<a", "a\\"],
)  # fmt: skip
def test_what_the_two_syntaxes_read_differently_is_refused(pattern: str) -> None:
    with pytest.raises(Refusal):
        java_regexp(pattern)


@pytest.mark.parametrize(
    ("pattern", "spark"),
    [("a%_", "a%_"), (r"\%\_\\", r"\%\_\\"), (r"\a", "a"), ("é", "é")],
)
def test_like_patterns_keep_only_the_escapes_spark_knows(pattern: str, spark: str) -> None:
    assert like_pattern(pattern) == spark


def test_another_escape_character_makes_the_backslash_ordinary() -> None:
    assert like_pattern(r"a!%\b", "!") == r"a\%\\b"


@pytest.mark.parametrize("pattern", REGEXPS)
def test_what_can_be_translated_is_well_formed(pattern: str) -> None:
    assert is_well_formed(pattern)


@pytest.mark.parametrize("pattern", ["(", "a)", "[a", "[", "*a", "+", "a{3,2}", "a\\", "(?:a", "x(?<n>y"])
def test_broken_regexps_are_known(pattern: str) -> None:
    assert not is_well_formed(pattern)


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [("a", 0), ("(a)(b)", 2), ("((a))", 2), ("(?:a)(b)", 1), (r"\(a\)", 0), ("[(](a)", 1), ("[^)(]]*(a)", 1),
     ("(?P<n>a)(?<m>b)(?i)c", 2), ("(?i:a)", 0)],
)  # fmt: skip
def test_groups_are_counted(pattern: str, groups: int) -> None:
    assert groups_of(pattern) == groups


@pytest.mark.parametrize(
    ("pattern", "regexp"),
    [("a%", "^(?s:a.*)$"), ("a_c", "^(?s:a.c)$"), ("a.c", r"^(?s:a\.c)$"), ("(a|b)+", "^(?s:(a|b)+)$"),
     (r"50\%", "^(?s:50%)$"), ("^$", r"^(?s:\^\$)$"), ("[a-c]*", "^(?s:[a-c]*)$")],
)  # fmt: skip
def test_similar_patterns_become_regexps(pattern: str, regexp: str) -> None:
    assert similar_pattern(pattern) == regexp


def test_a_similar_pattern_does_not_end_with_its_escape() -> None:
    with pytest.raises(Refusal):
        similar_pattern("a!", "!")
