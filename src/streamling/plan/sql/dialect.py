"""Our SQL as a sqlglot dialect: PostgreSQL's grammar with all rewrites of sqlglot turned off.

sqlglot parses a known function into a node of its own type and changes the arguments (order, units, index offsets) to
the semantics of other engines. Here every call, including those with special syntax (`extract(.. from ..)`,
`trim(both .. from ..)`), becomes an `Anonymous` node with the arguments as written; only the function table defines
what a name means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ParseError
from sqlglot.parser import Parser
from sqlglot.parsers.postgres import PostgresParser

INTERVAL_UNITS = frozenset(
    unit + plural
    for unit in ("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")
    for plural in ("", "S")
)

_NO_ALIASES = frozenset({TokenType.END, TokenType.FORMAT, TokenType.IS})

# sqlglot's parsers and tokens are mutable class tables without precise types.
_Table = dict[Any, Any]


def _call(name: str, arguments: Sequence[exp.Expr | None]) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=[a for a in arguments if a is not None])


def _extract(parser: Any) -> exp.Expr:
    token = parser._prev
    part = parser._parse_var_or_string(upper=True)
    if not (parser._match(TokenType.FROM) or parser._match(TokenType.COMMA)):
        parser.raise_error("Expected FROM after the part of EXTRACT")
    unit = exp.Literal.string(part.name.lower() if part else "")
    return _call("date_part", [unit, parser._parse_bitwise()]).update_positions(token)


def _value(parser: Any) -> Any:
    return parser._parse_bitwise() or parser.raise_error("Expected value")


def _position(parser: Any) -> exp.Expr:
    token = parser._prev
    needle = parser._parse_bitwise()
    if not parser._match(TokenType.IN):
        parser.raise_error("Expected IN: position(part IN text)")
    return _call("strpos", [parser._parse_bitwise(), needle]).update_positions(token)


def _substring(parser: Any) -> exp.Expr:
    token = parser._prev
    arguments = list(parser._parse_csv(parser._parse_bitwise))
    start = _value(parser) if parser._match(TokenType.FROM) else None
    length = _value(parser) if parser._match(TokenType.FOR) else None
    if length is not None and start is None:
        start = exp.Literal.number(1)
    return _call("substr", [*arguments, start, length]).update_positions(token)


def _trim(parser: Any) -> exp.Expr:
    token = parser._prev
    side = parser._prev.text.upper() if parser._match_texts(("BOTH", "LEADING", "TRAILING")) else "BOTH"
    name = {"BOTH": "btrim", "LEADING": "ltrim", "TRAILING": "rtrim"}[side]
    arguments: list[exp.Expr | None] = [_value(parser)]
    if parser._match(TokenType.FROM):
        arguments = [_value(parser), arguments[0]]
    elif parser._match(TokenType.COMMA):
        arguments.append(_value(parser))
    return _call(name, arguments).update_positions(token)


def _case(parser: Any) -> Any:
    if parser._match(TokenType.DOT, advance=False):
        parser._retreat(parser._index - 1)
        return None
    subject = parser._parse_disjunction()
    branches = []
    while parser._match(TokenType.WHEN):
        test = parser._parse_disjunction()
        if not parser._match(TokenType.THEN):
            parser.raise_error("Expected THEN")
        branches.append(parser.expression(exp.If(this=test, true=parser._parse_disjunction())))
    if not branches:
        parser.raise_error("Expected WHEN")
    default = parser._parse_disjunction() if parser._match(TokenType.ELSE) else None
    if not parser._match(TokenType.END):
        parser.raise_error("Expected END")
    return parser.expression(exp.Case(this=subject, ifs=branches, default=default))


def _cast(kind: type[exp.Expr]) -> Callable[[Any], Any]:
    def parse(parser: Any) -> Any:
        value = parser._parse_disjunction()
        if not parser._match(TokenType.ALIAS):
            parser.raise_error("Expected AS")
        type_ = parser._parse_types()
        if type_ is None:
            parser.raise_error("Expected type")
        return parser.expression(kind(this=value, to=type_))

    return parse


class _Parser(PostgresParser):
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        "CAST": _cast(exp.Cast),
        "TRY_CAST": _cast(exp.TryCast),
        "EXTRACT": _extract,
        "POSITION": _position,
        "SUBSTRING": _substring,
        "TRIM": _trim,
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[_Table] = {"CASE": _case}
    NO_PAREN_FUNCTIONS: ClassVar[_Table] = {
        TokenType.CURRENT_DATE: lambda: _call("current_date", []),
        TokenType.CURRENT_TIME: lambda: _call("current_time", []),
        TokenType.CURRENT_TIMESTAMP: lambda: _call("current_timestamp", []),
    }
    EXPONENT: ClassVar[_Table] = {}
    OPTIONAL_ALIAS_TOKEN_CTE = False
    # These words end a construct; they are not aliases after a column or table.
    ALIAS_TOKENS: ClassVar[Any] = Parser.ALIAS_TOKENS - _NO_ALIASES
    TABLE_ALIAS_TOKENS: ClassVar[Any] = PostgresParser.TABLE_ALIAS_TOKENS - _NO_ALIASES

    def _parse_between(self, this: Any) -> Any:
        symmetric = self._match_text_seq("SYMMETRIC") or None
        low = self._parse_bitwise()
        if not self._match(TokenType.AND):
            self.raise_error("Expected AND after BETWEEN")
        return self.expression(exp.Between(this=this, low=low, high=self._parse_bitwise(), symmetric=symmetric))

    def _parse_type_size(self) -> Any:
        size = super()._parse_type_size()
        if size is not None and size.args.get("expression") is not None:
            self.raise_error("Expected )", self._prev)
        return size

    def _parse_cte(self) -> Any:
        cte = super()._parse_cte()
        if cte is None:
            self.raise_error("Expected AS after the name of a query in WITH")
        return cte

    def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> Any:
        """`interval '<text>' [unit]`; the text stays as written, `interval` alone stays a column name."""
        if self._curr.token_type != TokenType.INTERVAL or self._next.token_type != TokenType.STRING:
            return None
        token = self._curr
        self._advance()
        text = self._parse_string()
        unit = self._parse_var(any_token=True, upper=True) if self._curr.text.upper() in INTERVAL_UNITS else None
        return exp.Interval(this=text, unit=unit).update_positions(token)


class Streamling(Postgres):
    """PostgreSQL's grammar, DataFusion's spelling of types, identifiers in double quotes or backticks."""

    INDEX_OFFSET = 0

    class Tokenizer(Postgres.Tokenizer):
        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]
        # `regexp` is a function here, and FLOAT is the type of 32 bits.
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            **{word: kind for word, kind in Postgres.Tokenizer.KEYWORDS.items() if word not in ("REGEXP", "RLIKE")},
            "FLOAT": TokenType.FLOAT,
        }

    Parser = _Parser


def tokenize(sql: str) -> list[Token]:
    """The tokens of `sql`; keywords in dotted names after FROM are plain names."""
    tokens = Streamling().tokenize(sql)
    for index, token in enumerate(tokens):
        if token.token_type == TokenType.FROM:
            _make_dotted_name_plain(tokens, index + 1)
    return tokens


def _make_dotted_name_plain(tokens: list[Token], index: int) -> None:
    while index + 1 < len(tokens) and tokens[index + 1].token_type == TokenType.DOT and _is_word(tokens[index]):
        _make_plain(tokens[index])
        index += 2
        if index < len(tokens) and _is_word(tokens[index]):
            _make_plain(tokens[index])


def _is_word(token: Token) -> bool:
    return token.token_type != TokenType.STRING and token.text.replace("$", "_").isidentifier()


def _make_plain(token: Token) -> None:
    if token.token_type != TokenType.IDENTIFIER:
        token.token_type = TokenType.VAR


def parse_tokens(tokens: list[Token], sql: str, *, expression: bool = False) -> exp.Expr:
    """The tree of one statement or one expression. Raises sqlglot's ParseError."""
    parser = Streamling().parser()
    trees = parser.parse_into(exp.Condition, tokens, sql) if expression else parser.parse(tokens, sql)
    if len(trees) != 1 or trees[0] is None:
        raise ParseError("nothing to parse")
    return trees[0]
