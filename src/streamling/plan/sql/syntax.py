"""From SQL text to a syntax tree, with syntax errors reworded for users."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise

from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError, SqlglotError

from streamling.errors import SQL_SYNTAX, SQL_UNSUPPORTED, UserError
from streamling.plan.sql.constructs import unsupported
from streamling.plan.sql.dialect import parse_tokens, tokenize
from streamling.plan.sql.grammar import are_adjacent, first_flaw, is_word
from streamling.plan.sql.origin import SqlOrigin

# fmt: off
_KEYWORDS = (
    "SELECT", "FROM", "WHERE", "UNION", "BETWEEN", "LIKE", "CASE", "WHEN", "THEN", "ELSE", "END", "WITH", "ORDER",
    "GROUP", "HAVING", "LIMIT",
)
# fmt: on
_TEMPLATE = re.compile(r"\{\{|\{%|\{#|\$\{")


def checked_tokens(origin: SqlOrigin) -> list[Token]:
    """The tokens of one statement, without a semicolon at the end."""
    try:
        tokens = tokenize(origin.sql)
    except SqlglotError as error:
        raise _token_error(origin, error) from None
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise origin.error(SQL_SYNTAX, "the SQL is empty")
    _refuse_templates(origin, tokens)
    for token, following in pairwise(tokens):
        if token.token_type == TokenType.SEMICOLON:
            raise unsupported(origin, "several statements", following.start)
    flaw = first_flaw(tokens)
    if flaw is not None:
        if flaw.condition is SQL_UNSUPPORTED:
            raise unsupported(origin, flaw.reason, flaw.token.start)
        hint = flaw.hint or _misspelling_hint(tokens, flaw.token.start)
        raise syntax_error(origin, flaw.token, flaw.reason, hint=hint)
    return tokens


def tree_of(origin: SqlOrigin, tokens: list[Token], *, expression: bool = False) -> exp.Expr:
    """The tree of a query or of an expression."""
    try:
        return parse_tokens(tokens, origin.sql, expression=expression)
    except ParseError as error:
        raise _parse_error(origin, tokens, error) from None
    except SqlglotError as error:
        raise origin.error(SQL_SYNTAX, "the SQL does not parse", cause=error) from None


def similar_keyword(word: str) -> str | None:
    """The keyword that a word is a probable misspelling of."""
    text = word.upper()
    if text in _KEYWORDS or len(text) < 3:
        return None
    swapped = next((k for k in _KEYWORDS if sorted(k) == sorted(text)), None)
    return swapped or next(iter(get_close_matches(text, _KEYWORDS, n=1, cutoff=0.75)), None)


def _refuse_templates(origin: SqlOrigin, tokens: Sequence[Token]) -> None:
    for token in tokens:
        opening = token.text in ("{", "{%", "$") and token.token_type != TokenType.STRING
        if opening and _TEMPLATE.match(origin.sql, token.start):
            hint = "this looks like a template placeholder; the file is not templated"
            end = origin.sql[token.start :].split("\n")[0][:2]
            raise origin.error(SQL_SYNTAX, f"the SQL does not parse at `{end}`", at=token.start, hint=hint)


def _parse_error(origin: SqlOrigin, tokens: Sequence[Token], error: ParseError) -> UserError:
    details = error.errors[0] if error.errors else {}
    line, column, near = details.get("line"), details.get("col"), str(details.get("highlight") or "")
    if not line or not column:
        return origin.error(SQL_SYNTAX, "the SQL does not parse", cause=error)
    offset = origin.offset(int(line), int(column) - len(near) + 1)
    at = next((n for n, token in enumerate(tokens) if token.start <= offset <= token.end), len(tokens) - 1)
    misspelling = _misspelling(tokens, at)
    if misspelling is not None:
        token, keyword = misspelling
        return syntax_error(
            origin, token, f"{_expected(keyword)} was expected here", hint=f"did you mean {keyword}?", cause=error
        )
    reason = _reason(str(details.get("description") or ""))
    return syntax_error(origin, tokens[at], reason, hint=_dash_hint(tokens, at), cause=error)


def syntax_error(
    origin: SqlOrigin, token: Token, reason: str, *, hint: str | None = None, cause: BaseException | None = None
) -> UserError:
    message = f"the SQL does not parse at `{origin.sql[token.start : token.end + 1]}`: {reason}"
    return origin.error(SQL_SYNTAX, message, at=token.start, hint=hint, cause=cause)


def _expected(keyword: str) -> str:
    return "FROM or a comma" if keyword == "FROM" else keyword


def _misspelling(tokens: Sequence[Token], at: int) -> tuple[Token, str] | None:
    """The token at an index, or right before it, that may be a misspelt keyword, and the keyword."""
    for index in (at, at - 1):
        token = tokens[max(0, index)]
        is_call = index + 1 < len(tokens) and tokens[index + 1].token_type == TokenType.L_PAREN
        keyword = similar_keyword(token.text) if token.token_type == TokenType.VAR and not is_call else None
        if keyword is not None:
            return token, keyword
    return None


def _misspelling_hint(tokens: Sequence[Token], offset: int) -> str | None:
    at = next((n for n, token in enumerate(tokens) if token.start == offset), 0)
    misspelling = _misspelling(tokens, at)
    return f"did you mean {misspelling[1]}?" if misspelling else None


def _dash_hint(tokens: Sequence[Token], at: int) -> str | None:
    """The hint for `FROM my-src`."""
    if tokens[at].token_type != TokenType.DASH or at < 1:
        return None
    first, last = at - 1, at
    while last + 1 < len(tokens) and are_adjacent(tokens[last], tokens[last + 1]) and _is_name_part(tokens[last + 1]):
        last += 1
    while first > 0 and are_adjacent(tokens[first - 1], tokens[first]) and _is_name_part(tokens[first - 1]):
        first -= 1
    if not are_adjacent(tokens[at - 1], tokens[at]) or tokens[first - 1].token_type != TokenType.FROM:
        return None
    name = "".join(token.text for token in tokens[first : last + 1])
    return f"a name with '-' needs double quotes: \"{name}\""


def _is_name_part(token: Token) -> bool:
    return is_word(token) or token.token_type in (TokenType.DASH, TokenType.DOT, TokenType.NUMBER)


def _reason(description: str) -> str:
    """sqlglot's reason as part of our sentence; reasons of our own parsers begin with `Expected`, too."""
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


def _token_error(origin: SqlOrigin, error: SqlglotError) -> UserError:
    """sqlglot's message is `Missing ' from 2:19`: the line, and the offset of the opening quote in the whole text."""
    message = str(error.__cause__ or error).split("\n")[0]
    missing = re.fullmatch(r"Missing (.+) from (\d+):(\d+)", message)
    if missing is not None:
        return origin.error(
            SQL_SYNTAX, f"the SQL does not parse: the closing {missing[1]} is missing", at=int(missing[3])
        )
    comment = _open_comment(origin.sql)
    if comment is not None:
        return origin.error(SQL_SYNTAX, "the SQL does not parse: the closing */ is missing", at=comment)
    return origin.error(SQL_SYNTAX, "the SQL does not parse: it has a character that SQL does not allow", cause=error)


def _open_comment(sql: str) -> int | None:
    quoted_or_comment = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|(/\*)", re.DOTALL)
    return next((m.start() for m in quoted_or_comment.finditer(sql) if m[1]), None)
