"""From text to tree, and syntax errors in plain words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise

from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError, SqlglotError

from streamling.errors import SQL_SYNTAX, SQL_UNSUPPORTED, UserError
from streamling.plan.sql.constructs import unsupported
from streamling.plan.sql.dialect import parsed, tokens
from streamling.plan.sql.grammar import adjacent, first_flaw, is_word
from streamling.plan.sql.origin import Origin

# fmt: off
_KEYWORDS = (
    "SELECT", "FROM", "WHERE", "UNION", "BETWEEN", "LIKE", "CASE", "WHEN", "THEN", "ELSE", "END", "WITH", "ORDER",
    "GROUP", "HAVING", "LIMIT",
)
# fmt: on
_TEMPLATE = re.compile(r"\{\{|\{%|\{#|\$\{")


def checked_tokens(origin: Origin) -> list[Token]:
    """The tokens of one statement, without the semicolon that may end it."""
    try:
        found = tokens(origin.sql)
    except SqlglotError as error:
        raise _token_error(origin, error) from None
    while found and found[-1].token_type == TokenType.SEMICOLON:
        found.pop()
    if not found:
        raise origin.error(SQL_SYNTAX, "the SQL is empty")
    _refuse_templates(origin, found)
    for token, following in pairwise(found):
        if token.token_type == TokenType.SEMICOLON:
            raise unsupported(origin, "several statements", following.start)
    flaw = first_flaw(found)
    if flaw is not None:
        if flaw.condition is SQL_UNSUPPORTED:
            raise unsupported(origin, flaw.reason, flaw.token.start)
        raise not_parsed(origin, flaw.token, flaw.reason, hint=flaw.hint or _misspelt_hint(found, flaw.token.start))
    return found


def tree_of(origin: Origin, found: list[Token], *, expression: bool = False) -> exp.Expr:
    """The tree of a query or of an expression."""
    try:
        return parsed(found, origin.sql, expression=expression)
    except ParseError as error:
        raise _syntax_error(origin, found, error) from None
    except SqlglotError as error:
        raise origin.error(SQL_SYNTAX, "the SQL does not parse", cause=error) from None


def meant_keyword(word: str) -> str | None:
    """The keyword a word that is none may stand for."""
    text = word.upper()
    if text in _KEYWORDS or len(text) < 3:
        return None
    swapped = next((k for k in _KEYWORDS if sorted(k) == sorted(text)), None)
    return swapped or next(iter(get_close_matches(text, _KEYWORDS, n=1, cutoff=0.75)), None)


def _refuse_templates(origin: Origin, found: Sequence[Token]) -> None:
    for token in found:
        opening = token.text in ("{", "{%", "$") and token.token_type != TokenType.STRING
        if opening and _TEMPLATE.match(origin.sql, token.start):
            hint = "this looks like a template placeholder; the file is not templated"
            end = origin.sql[token.start :].split("\n")[0][:2]
            raise origin.error(SQL_SYNTAX, f"the SQL does not parse at `{end}`", at=token.start, hint=hint)


def _syntax_error(origin: Origin, found: Sequence[Token], error: ParseError) -> UserError:
    details = error.errors[0] if error.errors else {}
    line, column, near = details.get("line"), details.get("col"), str(details.get("highlight") or "")
    if not line or not column:
        return origin.error(SQL_SYNTAX, "the SQL does not parse", cause=error)
    offset = origin.offset(int(line), int(column) - len(near) + 1)
    at = next((n for n, token in enumerate(found) if token.start <= offset <= token.end), len(found) - 1)
    misspelt = _misspelt(found, at)
    if misspelt is not None:
        token, keyword = misspelt
        return not_parsed(
            origin, token, f"{_expected(keyword)} was expected here", hint=f"did you mean {keyword}?", cause=error
        )
    reason = _plainly(str(details.get("description") or ""))
    return not_parsed(origin, found[at], reason, hint=_dashed(found, at), cause=error)


def not_parsed(
    origin: Origin, token: Token, reason: str, *, hint: str | None = None, cause: BaseException | None = None
) -> UserError:
    message = f"the SQL does not parse at `{origin.sql[token.start : token.end + 1]}`: {reason}"
    return origin.error(SQL_SYNTAX, message, at=token.start, hint=hint, cause=cause)


def _expected(keyword: str) -> str:
    return "FROM or a comma" if keyword == "FROM" else keyword


def _misspelt(found: Sequence[Token], at: int) -> tuple[Token, str] | None:
    """A word at a place or right before it that may be a keyword with a slip in it."""
    for index in (at, at - 1):
        token = found[max(0, index)]
        called = index + 1 < len(found) and found[index + 1].token_type == TokenType.L_PAREN
        keyword = meant_keyword(token.text) if token.token_type == TokenType.VAR and not called else None
        if keyword is not None:
            return token, keyword
    return None


def _misspelt_hint(found: Sequence[Token], offset: int) -> str | None:
    at = next((n for n, token in enumerate(found) if token.start == offset), 0)
    misspelt = _misspelt(found, at)
    return f"did you mean {misspelt[1]}?" if misspelt else None


def _dashed(found: Sequence[Token], at: int) -> str | None:
    """What to do about `FROM my-src`."""
    if found[at].token_type != TokenType.DASH or at < 1:
        return None
    first, last = at - 1, at
    while last + 1 < len(found) and adjacent(found[last], found[last + 1]) and _part_of_name(found[last + 1]):
        last += 1
    while first > 0 and adjacent(found[first - 1], found[first]) and _part_of_name(found[first - 1]):
        first -= 1
    if not adjacent(found[at - 1], found[at]) or found[first - 1].token_type != TokenType.FROM:
        return None
    name = "".join(token.text for token in found[first : last + 1])
    return f"a name with '-' needs double quotes: \"{name}\""


def _part_of_name(token: Token) -> bool:
    return is_word(token) or token.token_type in (TokenType.DASH, TokenType.DOT, TokenType.NUMBER)


def _plainly(description: str) -> str:
    """sqlglot's reason as a sentence; those of our own parsers begin with `Expected`, too."""
    if description.startswith("Required keyword"):
        return "something is missing here"
    if description.startswith("Expected table name"):
        return "the name of a table was expected here"
    expected = re.fullmatch(r"Expect(?:ing|ed) (\S+)(?: (?:after|before) (.+))?", description)
    if expected is None:
        return "it was not expected here"
    after = f" after {expected[2]}" if expected[2] else ""
    word = {"value": "a value", "type": "a type"}.get(expected[1]) or expected[1]
    word = word if word.replace(" ", "").isalpha() else f"`{word}`"
    return f"{word} was expected{after or ' here'}"


def _token_error(origin: Origin, error: SqlglotError) -> UserError:
    """sqlglot's message is `Missing ' from 2:19`: a line, and the offset of the open quote in the whole text."""
    message = str(error.__cause__ or error).split("\n")[0]
    missing = re.fullmatch(r"Missing (.+) from (\d+):(\d+)", message)
    if missing is not None:
        return origin.error(
            SQL_SYNTAX, f"the SQL does not parse: {missing[1]} is missing, opened here", at=int(missing[3])
        )
    comment = _open_comment(origin.sql)
    if comment is not None:
        return origin.error(SQL_SYNTAX, "the SQL does not parse: */ is missing, opened here", at=comment)
    return origin.error(SQL_SYNTAX, "the SQL does not parse: a character is not part of the language", cause=error)


def _open_comment(sql: str) -> int | None:
    quoted_or_comment = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|(/\*)", re.DOTALL)
    return next((m.start() for m in quoted_or_comment.finditer(sql) if m[1]), None)
