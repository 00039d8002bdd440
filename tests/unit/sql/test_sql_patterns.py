"""LIKE patterns and regular expressions in Spark's syntax."""

from __future__ import annotations

import pytest

from streamling.plan.sql.patterns import java_regexp, like_pattern
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
