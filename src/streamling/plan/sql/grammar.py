"""Rules about neighbouring tokens that hold in every query.

sqlglot accepts the SQL of many engines and tolerates many mistakes: it skips a second comma, reads `k@prod` as `k` and
`x: bigint` as an alias. A query with a typing mistake would run with another meaning. So these rules refuse such texts
before sqlglot parses them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType

from streamling.errors import SQL_SYNTAX, SQL_UNSUPPORTED, Condition


@dataclass(frozen=True, slots=True)
class Flaw:
    """A token that breaks a rule.

    reason   continues `the SQL does not parse at ..:`, or is the name of an unsupported construct
    """

    token: Token
    reason: str
    hint: str | None = None
    condition: Condition = SQL_SYNTAX


# fmt: off
_BINARY = frozenset({
    TokenType.AND, TokenType.BETWEEN, TokenType.DCOLON, TokenType.DPIPE, TokenType.EQ, TokenType.GT, TokenType.GTE,
    TokenType.ILIKE, TokenType.IN, TokenType.IRLIKE, TokenType.IS, TokenType.LIKE, TokenType.LT, TokenType.LTE,
    TokenType.MOD, TokenType.NEQ, TokenType.NULLSAFE_EQ, TokenType.OR, TokenType.RLIKE, TokenType.SIMILAR_TO,
    TokenType.SLASH,
})
_NEGATABLE = frozenset({
    TokenType.BETWEEN, TokenType.ILIKE, TokenType.IN, TokenType.IRLIKE, TokenType.LIKE, TokenType.RLIKE,
    TokenType.SIMILAR_TO,
})
# After these a token must follow that can begin an item, a value or a name.
_OPENING = _BINARY | {
    TokenType.ALIAS, TokenType.COMMA, TokenType.DASH, TokenType.DOT, TokenType.ELSE, TokenType.FROM,
    TokenType.L_BRACKET, TokenType.L_PAREN, TokenType.NOT, TokenType.PLUS, TokenType.SELECT, TokenType.THEN,
    TokenType.WHEN, TokenType.WHERE, TokenType.WITH,
}
# None of these begins an item, a value or a name.
_CLOSING = _BINARY | {
    TokenType.ALIAS, TokenType.COMMA, TokenType.ELSE, TokenType.END, TokenType.FROM, TokenType.GROUP_BY,
    TokenType.HAVING, TokenType.ORDER_BY, TokenType.R_BRACKET, TokenType.R_PAREN, TokenType.THEN, TokenType.UNION,
    TokenType.WHEN, TokenType.WHERE,
}
# fmt: on
_PAIRS = {TokenType.R_PAREN: TokenType.L_PAREN, TokenType.R_BRACKET: TokenType.L_BRACKET}
_IN_PARENTHESES = ((TokenType.L_PAREN, TokenType.WHERE), (TokenType.L_PAREN, TokenType.ORDER_BY))
_BEFORE_A_STAR = frozenset(
    {TokenType.ALL, TokenType.COMMA, TokenType.DISTINCT, TokenType.DOT, TokenType.L_PAREN, TokenType.SELECT}
)
_VALUE_ENDS = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.STRING, TokenType.NUMBER})
_NEVER_AFTER_A_NUMBER = frozenset({TokenType.NUMBER, TokenType.ARROW, TokenType.FARROW})
_QUOTED = frozenset(kind for kind in TokenType if kind.name.endswith("STRING")) | {TokenType.IDENTIFIER}
_EXCLUSIONS = ("EXCEPT", "EXCLUDE")
_CURLY = str.maketrans("‘’“”", "''\"\"")
_END = Token(TokenType.SENTINEL, "")


def first_flaw(tokens: Sequence[Token]) -> Flaw | None:
    """The first token, in the order of the text, that breaks a rule."""
    flaws = [*_strange_tokens(tokens), *_neighbours(tokens), *_stars(tokens)]
    first = min(flaws, key=lambda flaw: flaw.token.start, default=None)
    return first or _unbalanced(tokens)


def are_adjacent(token: Token, following: Token) -> bool:
    """Whether there is no character between two tokens."""
    return following.start == token.end + 1


def is_word(token: Token) -> bool:
    """Whether it is a word without quotes; it may be a keyword."""
    return token.token_type not in _QUOTED and token.text.replace("$", "_").isidentifier()


def is_name(token: Token) -> bool:
    """Whether it can be a name."""
    return token.token_type == TokenType.IDENTIFIER or (is_word(token) and token.token_type not in _OPENING)


def _strange_tokens(tokens: Sequence[Token]) -> Iterator[Flaw]:
    brackets = 0
    for before, token, after in zip([_END, *tokens], tokens, [*tokens[1:], _END], strict=False):
        kind, text = token.token_type, token.text
        brackets += (kind == TokenType.L_BRACKET) - (kind == TokenType.R_BRACKET)
        if kind == TokenType.VAR and text != text.translate(_CURLY):
            hint = f"use straight quotes: {text.translate(_CURLY)}; single ones for text, double ones for a column"
            yield Flaw(token, "curly quotes are not valid in SQL", hint)
        elif kind == TokenType.PIPE_GT:
            yield Flaw(token, "the pipe operator `|>`", condition=SQL_UNSUPPORTED)
        elif kind == TokenType.PLACEHOLDER or (kind == TokenType.PARAMETER and text == "$"):
            yield Flaw(token, f"parameter `{text}`", condition=SQL_UNSUPPORTED)
        elif kind == TokenType.COLON and not brackets and is_word(after) and not _ends_a_value(before):
            yield Flaw(token, f"parameter `:{after.text}`", condition=SQL_UNSUPPORTED)
        elif kind == TokenType.PARAMETER or (kind == TokenType.COLON and not brackets):
            yield _unexpected(token)
        elif kind == TokenType.NOT and text == "!" and not (_ends_a_value(before) and after.text[:1] == "~"):
            yield _unexpected(token, "write NOT")
        elif before.token_type == TokenType.NUMBER and kind in _NEVER_AFTER_A_NUMBER:
            yield _unexpected(token)
        elif kind == TokenType.VALUES and before.token_type == TokenType.FROM and after.token_type != TokenType.L_PAREN:
            yield Flaw(token, "it is a keyword", f'the name of a node that is a keyword needs double quotes: "{text}"')
        elif kind in (TokenType.ALL, TokenType.WITH) and before.token_type == TokenType.COMMA:
            yield _unexpected(token)
        elif kind == TokenType.NUMBER and are_adjacent(token, after) and after.text[:1].isidentifier():
            yield _number_with_letters(before, token, after)


def _unexpected(token: Token, hint: str | None = None) -> Flaw:
    return Flaw(token, "it was not expected here", hint)


def _number_with_letters(before: Token, number: Token, after: Token) -> Flaw:
    text = f"{number.text}{after.text}"
    if before.token_type == TokenType.FROM:
        return Flaw(number, f"`{text}` begins with a digit", f'a name that begins with a digit needs quotes: "{text}"')
    return Flaw(number, f"`{text}` is not a number")


def _ends_a_value(token: Token) -> bool:
    return is_name(token) or token.token_type in _VALUE_ENDS


def _neighbours(tokens: Sequence[Token]) -> Iterator[Flaw]:
    cases = 0
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else _END
        after = tokens[index + 1] if index + 1 < len(tokens) else None
        cases += (token.token_type == TokenType.CASE) - (token.token_type == TokenType.END and cases > 0)
        if token.token_type not in _OPENING or TokenType.DOT in (before.token_type, after and after.token_type):
            yield from _dots(token, after, tokens[index + 2] if index + 2 < len(tokens) else _END)
        elif _is_gap(before, token, after, in_case=cases > 0):
            yield _missing(token, after)


def _dots(token: Token, after: Token | None, third: Token) -> Iterator[Flaw]:
    """A dot is between two names, or before the digits of a number."""
    if after is not None and after.token_type == TokenType.DOT:
        decimals = third.token_type == TokenType.NUMBER and are_adjacent(after, third)
        if not decimals and not _ends_a_value(token):
            yield _unexpected(after)
    if token.token_type == TokenType.DOT and after is not None:
        is_member = is_word(after) or after.token_type in (TokenType.IDENTIFIER, TokenType.STAR)
        if not is_member and not (after.token_type == TokenType.NUMBER and are_adjacent(token, after)):
            yield _missing(token, after)


def _is_gap(before: Token, token: Token, after: Token | None, *, in_case: bool) -> bool:
    """Whether an item, value or name is missing between two tokens."""
    if after is None:
        return True
    kind, next_ = token.token_type, after.token_type
    if _PAIRS.get(next_) == kind or (kind, next_) in _IN_PARENTHESES or (next_ == TokenType.END and not in_case):
        return False
    if kind == TokenType.ALIAS:
        accepted = is_word(after) or next_ in (TokenType.IDENTIFIER, TokenType.L_PAREN)
        return not accepted or next_ in _CLOSING or next_ == TokenType.SELECT
    if kind == TokenType.NOT:
        return next_ in _CLOSING and not (next_ in _NEGATABLE and _ends_a_value(before))
    # `>>` and `<<` are operators, although not supported ones.
    shift = kind == next_ and kind in (TokenType.GT, TokenType.LT) and are_adjacent(token, after)
    return next_ in _CLOSING and not shift


def _missing(token: Token, after: Token | None) -> Flaw:
    kind = token.token_type
    if kind == TokenType.SELECT:
        what = "the SELECT has no columns" if after is None or after.token_type == TokenType.FROM else "a column"
    elif kind in (TokenType.ALIAS, TokenType.WITH):
        what = "a name"
    elif kind == TokenType.FROM:
        what = "the name of a table"
    elif kind == TokenType.COMMA and after is not None and after.token_type == TokenType.FROM:
        what = "a column"
    else:
        what = "a condition" if kind in (TokenType.WHERE, TokenType.WHEN) else "something"
    first = token.text.upper() if token.text.isalpha() else f"`{token.text}`"
    if what.startswith("the SELECT"):
        return Flaw(token, what)
    if after is None:
        return Flaw(token, f"{what} is missing after {first}")
    second = after.text.upper() if after.token_type in _CLOSING and after.text.isalpha() else f"`{after.text}`"
    return Flaw(after, f"{what} is missing between {first} and {second}")


def _stars(tokens: Sequence[Token]) -> Iterator[Flaw]:
    """A star means all columns, perhaps with `EXCEPT (..)`, or multiplies two values."""
    for index, token in enumerate(tokens):
        if token.token_type != TokenType.STAR:
            continue
        before = tokens[index - 1].token_type if index else None
        after, third, fourth = [*tokens[index + 1 : index + 4], _END, _END, _END][:3]
        closed = after is _END or after.token_type in _CLOSING
        if before not in _BEFORE_A_STAR and closed:
            yield Flaw(token, "something is missing after `*`")
        elif before in _BEFORE_A_STAR and after.text.upper() in _EXCLUSIONS:
            word = after.text.upper()
            if third.token_type != TokenType.L_PAREN:
                hint = f"* {word} ({third.text})" if is_word(third) else None
                yield Flaw(after if third is _END else third, f"`(` is missing after * {word}", hint)
            elif fourth.token_type == TokenType.R_PAREN:
                yield Flaw(fourth, f"a column is missing between `(` and `)` of * {word}")


def _unbalanced(tokens: Sequence[Token]) -> Flaw | None:
    open_: list[Token] = []
    for token in tokens:
        if token.token_type in _PAIRS.values():
            open_.append(token)
        elif token.token_type in _PAIRS:
            if not open_ or open_[-1].token_type != _PAIRS[token.token_type]:
                return Flaw(token, "there is no matching opening bracket")
            open_.pop()
    return Flaw(open_[-1], "it is never closed") if open_ else None
