"""Expressions: from a syntax tree to a typed value, bottom-up.

`_HANDLERS` is an allow-list: any other type of tree node is a user error and never passed on to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlglot import exp

from streamling.errors import SQL_SYNTAX, UserError
from streamling.plan.sql.calls import UNNEST, find_function, function_name
from streamling.plan.sql.casts import cast, named_type
from streamling.plan.sql.coercions import cast_to_common, condition
from streamling.plan.sql.constructs import construct, unsupported
from streamling.plan.sql.epoch import EPOCH_SEED, ROW_NUMBER
from streamling.plan.sql.functions import Function, lists, structs
from streamling.plan.sql.functions.streamling_functions import TABLE_CALLS
from streamling.plan.sql.intervals import interval_literal
from streamling.plan.sql.literals import boolean, number
from streamling.plan.sql.operators import (
    arithmetic,
    cast_for_comparison,
    comparison,
    concatenation,
    like,
    matches,
    negation,
)
from streamling.plan.sql.origin import SqlOrigin
from streamling.plan.sql.patterns import similar_pattern
from streamling.plan.sql.scope import Scope, column_value, name_of
from streamling.plan.sql.table_calls import SelectCalls
from streamling.plan.sql.values import NULL_VALUE, Refusal, Value, any_nullable, identifier, text_value
from streamling.plan.types import BINARY, BOOLEAN, INT64, NULL


@dataclass(slots=True)
class Uses:
    """What some expressions use: columns of the input, and parameters of the epoch."""

    reads: set[str] = field(default_factory=set)
    parameters: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Compiler:
    """Compiles the expressions of one SELECT, and collects what they use.

    reads              the columns that the expressions compiled so far read
    plugin_functions   the plugin functions that they call
    parameters         the parameters of the epoch in their text
    row_numbers        the columns with row numbers in their text
    match              the column that says for which rows plugin functions are called with the values of the row
    table_calls        the calls of dynamic tables; None where they cannot be used
    """

    origin: SqlOrigin
    scope: Scope
    functions: Mapping[str, Function]
    salts: Iterator[str]
    table_calls: SelectCalls | None = None
    row_number: str = field(default=ROW_NUMBER, init=False)
    reads: set[str] = field(default_factory=set, init=False)
    plugin_functions: set[str] = field(default_factory=set, init=False)
    parameters: set[str] = field(default_factory=set, init=False)
    row_numbers: set[str] = field(default_factory=set, init=False)
    match: str | None = field(default=None, init=False)

    def value(self, node: exp.Expr) -> Value:
        """The compiled value of a tree node; raises UserError."""
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise unsupported(self.origin, construct(node), node)
        try:
            return handler(self, node)
        except Refusal as refusal:
            raise self.error(refusal, node) from None

    def condition(self, node: exp.Expr) -> Value:
        """The compiled boolean value of a tree node; raises UserError."""
        value = self.value(node)
        try:
            return condition(value)
        except Refusal as refusal:
            raise self.error(refusal, node) from None

    def column(self, names: Sequence[str], *, quoted: bool = False) -> Value:
        """The value of `[qualifier.]column[.field ...]`; raises Refusal.

        quoted   a single name was written in quotes
        """
        column, fields = self.scope.find(names, quoted=quoted)
        self.reads.add(column.name)
        return column_value(column, fields)

    def place(self) -> Sequence[Value]:
        """The row number and a salt for one call."""
        self.row_numbers.add(self.row_number)
        number = Value(identifier(self.row_number), INT64, nullable=False)
        return number, text_value(next(self.salts))

    @contextmanager
    def numbering(self, column: str) -> Iterator[None]:
        """Inside this context, calls use `column` as the row number."""
        before, self.row_number = self.row_number, column
        try:
            yield
        finally:
            self.row_number = before

    @contextmanager
    def collecting(self, match: str | None) -> Iterator[Uses]:
        """What the expressions compiled inside this context use; `match` applies to them."""
        uses = Uses()
        reads, parameters = self.reads, self.parameters
        self.reads, self.parameters, self.match = uses.reads, uses.parameters, match
        try:
            yield uses
        finally:
            self.reads, self.parameters, self.match = reads | uses.reads, parameters | uses.parameters, None

    def error(self, refusal: Refusal, node: exp.Expr) -> UserError:
        if refusal.argument is not None and refusal.argument < len(node.expressions):
            node = node.expressions[refusal.argument]
        return self.origin.error(refusal.condition, refusal.message, at=node, hint=refusal.hint)

    def function(self, node: exp.Expr) -> Function:
        if function_name(node) == UNNEST:
            raise unsupported(self.origin, "unnest inside an expression", node)
        function = find_function(self.origin, node, self.functions)
        if isinstance(function, UserError):
            raise function
        return function


_Handler = Callable[[Compiler, exp.Expr], Value]


def _paren(compiler: Compiler, node: exp.Expr) -> Value:
    return compiler.value(node.this)


def _literal(compiler: Compiler, node: exp.Expr) -> Value:
    return text_value(node.name) if node.is_string else number(node.name)


def _escaped_text(compiler: Compiler, node: exp.Expr) -> Value:
    """`E'..'`; the parser has already replaced the escapes."""
    return text_value(node.name)


def _bytes(compiler: Compiler, node: exp.Expr) -> Value:
    digits = node.name
    if len(digits) % 2 or not set(digits.lower()) <= set("0123456789abcdef"):
        raise Refusal(f"x'{digits}' must contain pairs of hexadecimal digits", condition=SQL_SYNTAX)
    return Value(f"X'{digits}'", BINARY, nullable=False)


def _boolean(compiler: Compiler, node: exp.Expr) -> Value:
    return boolean(bool(node.this))


def _null(compiler: Compiler, node: exp.Expr) -> Value:
    return NULL_VALUE


def _column(compiler: Compiler, node: exp.Expr) -> Value:
    parts = node.parts if isinstance(node, exp.Column) else []
    if any(not isinstance(part, exp.Identifier) for part in parts):
        raise unsupported(compiler.origin, construct(node.this), node)
    quoted = len(parts) == 1 and bool(parts[0].args.get("quoted"))
    return compiler.column([name_of(part) for part in parts], quoted=quoted)


def _dot(compiler: Compiler, node: exp.Expr) -> Value:
    """A name with more parts than a sqlglot Column has (`a.b.c.d.e`), or a field of another expression."""
    member = node.expression
    if not isinstance(member, exp.Identifier):
        raise unsupported(compiler.origin, construct(member), node)
    names = _dotted(node)
    if names is not None:
        return compiler.column(names)
    return structs.field(compiler.value(node.this), name_of(member))


def _dotted(node: exp.Expr) -> list[str] | None:
    if isinstance(node, exp.Column):
        return [name_of(part) for part in node.parts]
    if not isinstance(node, exp.Dot) or not isinstance(node.expression, exp.Identifier):
        return None
    before = _dotted(node.this)
    return None if before is None else [*before, name_of(node.expression)]


def _bracket(compiler: Compiler, node: exp.Expr) -> Value:
    if len(node.expressions) != 1:
        raise unsupported(compiler.origin, "several subscripts", node)
    if isinstance(node.expressions[0], exp.Slice):
        return _slice(compiler, compiler.value(node.this), node.expressions[0])
    value, key = compiler.value(node.this), compiler.value(node.expressions[0])
    if value.type.kind == "list":
        return lists.element(value, key)
    if value.type.kind == "map":
        return structs.map_value(value, key)
    if isinstance(key.constant, str):
        return structs.field(value, key.constant)
    raise Refusal(f"a value of type {value.type} has no element [{node.expressions[0].sql()}]")


def _slice(compiler: Compiler, value: Value, node: exp.Expr) -> Value:
    """`list[from:to]`, both ends included."""
    if node.args.get("step") is not None:
        raise unsupported(compiler.origin, "slice with a step", node)
    if value.type.kind != "list":
        raise Refusal(f"a value of type {value.type} has no slices")
    first, last = (node.args.get(part) for part in ("this", "expression"))
    start = number("1") if first is None else compiler.value(first)
    return lists.slice_of(value, start, number("1", negated=True) if last is None else compiler.value(last))


def _array(compiler: Compiler, node: exp.Expr) -> Value:
    return lists.make_array([compiler.value(item) for item in node.expressions])


def _arithmetic(compiler: Compiler, node: exp.Expr) -> Value:
    steps = _spine(node)
    value = compiler.value(steps[0].this)
    for step in steps:
        value = arithmetic(_ARITHMETIC[type(step)], value, compiler.value(step.expression))
    return value


def _spine(node: exp.Expr) -> list[exp.Expr]:
    """The binary nodes of `a + b - c ..`, innermost first, so that a long chain needs no deep recursion."""
    steps = [node]
    while type(steps[-1].this) in _ARITHMETIC:
        steps.append(steps[-1].this)
    return steps[::-1]


def _negation(compiler: Compiler, node: exp.Expr) -> Value:
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        return number(node.this.name, negated=True)
    return negation(compiler.value(node.this))


def _comparison(operator: str) -> _Handler:
    def handle(compiler: Compiler, node: exp.Expr) -> Value:
        return comparison(operator, compiler.value(node.this), compiler.value(node.expression))

    return handle


def _distinct_from(compiler: Compiler, node: exp.Expr) -> Value:
    same = comparison("<=>", compiler.value(node.this), compiler.value(node.expression))
    return Value(f"(NOT {same.text})", BOOLEAN, nullable=False)


def _connective(word: str) -> _Handler:
    def handle(compiler: Compiler, node: exp.Expr) -> Value:
        values = [compiler.condition(operand) for operand in node.flatten()]
        return Value(f"({f' {word} '.join(v.text for v in values)})", BOOLEAN, any_nullable(values))

    return handle


def _not(compiler: Compiler, node: exp.Expr) -> Value:
    value = compiler.condition(node.this)
    return Value(f"(NOT {value.text})", BOOLEAN, value.nullable)


def _is(compiler: Compiler, node: exp.Expr) -> Value:
    negation = "NOT " if node.args.get("negate") else ""
    if isinstance(node.expression, exp.Null):
        return Value(f"({compiler.value(node.this).text} IS {negation}NULL)", BOOLEAN, nullable=False)
    if isinstance(node.expression, exp.Boolean):
        word = "TRUE" if node.expression.this else "FALSE"
        return Value(f"({compiler.condition(node.this).text} IS {negation}{word})", BOOLEAN, nullable=False)
    raise unsupported(compiler.origin, f"IS {node.expression.sql()}", node)


def _between(compiler: Compiler, node: exp.Expr) -> Value:
    if node.args.get("symmetric"):
        raise unsupported(compiler.origin, "BETWEEN SYMMETRIC", node)
    value, low, high = (compiler.value(node.args[part]) for part in ("this", "low", "high"))
    from_low, to_high = comparison(">=", value, low), comparison("<=", value, high)
    return Value(f"({from_low.text} AND {to_high.text})", BOOLEAN, any_nullable((value, low, high)))


def _in(compiler: Compiler, node: exp.Expr) -> Value:
    if not node.expressions or node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
        raise unsupported(compiler.origin, "IN without a list of values", node)
    values = [compiler.value(item) for item in (node.this, *node.expressions)]
    _, (subject, *items) = cast_for_comparison(values)
    return Value(f"({subject.text} IN ({', '.join(i.text for i in items)}))", BOOLEAN, any_nullable(values))


def _like(ignore_case: bool) -> _Handler:
    return lambda compiler, node: _like_with(compiler, node, ignore_case, "\\")


def _like_with(compiler: Compiler, node: exp.Expr, ignore_case: bool, escape: str) -> Value:
    value, pattern = compiler.value(node.this), compiler.value(node.expression)
    match = like(value, pattern, ignore_case=ignore_case, escape=escape)
    text = f"(NOT {match.text})" if node.args.get("negate") else match.text
    return Value(text, BOOLEAN, match.nullable)


def _escape(compiler: Compiler, node: exp.Expr) -> Value:
    character = node.expression.name
    if isinstance(node.this, exp.SimilarTo) and len(character) == 1:
        return _similar(compiler, node.this, character)
    if not isinstance(node.this, exp.Like | exp.ILike) or len(character) != 1:
        raise unsupported(compiler.origin, f"ESCAPE '{character}'", node)
    return _like_with(compiler, node.this, isinstance(node.this, exp.ILike), character)


def _similar(compiler: Compiler, node: exp.Expr, escape: str = "\\") -> Value:
    value, pattern = compiler.value(node.this), compiler.value(node.expression)
    if isinstance(pattern.constant, str):
        pattern = text_value(similar_pattern(pattern.constant, escape))
    return matches(value, pattern)


def _matches(flags: str) -> _Handler:
    def handle(compiler: Compiler, node: exp.Expr) -> Value:
        return matches(compiler.value(node.this), compiler.value(node.expression), flags)

    return handle


def _concatenation(compiler: Compiler, node: exp.Expr) -> Value:
    return concatenation([compiler.value(part) for part in node.flatten()])


def _case(compiler: Compiler, node: exp.Expr) -> Value:
    branches: list[exp.Expr] = node.args["ifs"]
    subject = node.args.get("this")
    otherwise = node.args.get("default")
    if subject is None:
        head, tests = "CASE", [compiler.condition(branch.this) for branch in branches]
    else:
        parts = [compiler.value(part) for part in (subject, *(b.this for b in branches))]
        _, (compared, *tests) = cast_for_comparison(parts)
        head = f"CASE {compared.text}"
    results = [compiler.value(branch.args["true"]) for branch in branches]
    results.append(NULL_VALUE if otherwise is None else compiler.value(otherwise))
    type_, results = cast_to_common(results, text_wins=True)
    whens = (f"WHEN {test.text} THEN {result.text}" for test, result in zip(tests, results[:-1], strict=True))
    return Value(f"{head} {' '.join(whens)} ELSE {results[-1].text} END", type_, any_nullable(results))


def _cast(compiler: Compiler, node: exp.Expr) -> Value:
    if node.args.get("format") or node.args.get("default"):
        raise unsupported(compiler.origin, "CAST with FORMAT or DEFAULT", node)
    return cast(compiler.value(node.this), named_type(node.args["to"]), safe=isinstance(node, exp.TryCast))


def _interval(compiler: Compiler, node: exp.Expr) -> Value:
    unit = node.args.get("unit")
    return interval_literal(node.this.name, unit.name if unit is not None else None)


def _call(compiler: Compiler, node: exp.Expr) -> Value:
    function = compiler.function(node)
    if function_name(node) in TABLE_CALLS:
        return _table_call(compiler, node, function)
    arguments = [compiler.value(argument) for argument in node.expressions]
    if function.plugin is not None and compiler.match is not None:
        # Spark calls workers for all rows, whatever CASE is around the call: other rows have NULL arguments.
        arguments = [_where_it_matches(argument, compiler.match) for argument in arguments]
    value = function.call(arguments, compiler.place() if EPOCH_SEED in function.takes else ())
    compiler.parameters |= function.takes
    if function.plugin is not None:
        compiler.plugin_functions.add(function.plugin)
    return value


def _table_call(compiler: Compiler, node: exp.Expr, function: Function) -> Value:
    """A call that looks a value up in a dynamic table, before the SELECT is computed: for all rows that it reads."""
    name = function_name(node)
    if compiler.table_calls is None:
        raise unsupported(compiler.origin, f"`{name}` outside of the query of a transform", node)
    match, compiler.match = compiler.match, None
    with compiler.numbering(ROW_NUMBER):
        arguments = [compiler.value(argument) for argument in node.expressions]
    compiler.match = match
    return compiler.table_calls.add(name, function.admit(arguments))


def _where_it_matches(value: Value, match: str) -> Value:
    if value.constant is not None or value.type == NULL:
        return value
    return Value(f"CASE WHEN {identifier(match)} THEN {value.text} END", value.type)


_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>",
}  # fmt: skip
_HANDLERS: dict[type[exp.Expr], _Handler] = {
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **{kind: _comparison(operator) for kind, operator in _COMPARISONS.items()},
    exp.NullSafeNEQ: _distinct_from,
    exp.Paren: _paren,
    exp.Literal: _literal,
    exp.ByteString: _escaped_text,
    exp.HexString: _bytes,
    exp.Boolean: _boolean,
    exp.Null: _null,
    exp.Column: _column,
    exp.Dot: _dot,
    exp.Bracket: _bracket,
    exp.Array: _array,
    exp.Neg: _negation,
    exp.And: _connective("AND"),
    exp.Or: _connective("OR"),
    exp.Not: _not,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Like: _like(ignore_case=False),
    exp.ILike: _like(ignore_case=True),
    exp.Escape: _escape,
    exp.SimilarTo: _similar,
    exp.RegexpLike: _matches(""),
    exp.RegexpILike: _matches("i"),
    exp.DPipe: _concatenation,
    exp.Case: _case,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Interval: _interval,
    exp.Anonymous: _call,
}
