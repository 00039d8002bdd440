"""SQL functions of plugins: what the planner knows of them, and how workers compute them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamling.errors import PLUGIN_FAILED, PLUGIN_NOT_LOADED, PermanentError, StreamlingError, UserError
from streamling.plan.sql import Function, Parameter, Value
from streamling.plan.sql.coercions import cast_to, common_type, is_integer
from streamling.plan.sql.functions import ADDED
from streamling.plan.sql.spark_types import computed_type
from streamling.plan.sql.values import NULL_VALUE, Refusal, string_literal
from streamling.plan.sql.worker_calls import WORKER_CALL
from streamling.plan.types import STRING, DataType
from streamling.plugin.failures import message_of

if TYPE_CHECKING:
    import pyarrow as pa

    from streamling.plugin.registration import PluginOrigin

_LITERAL, _COLUMN = "1", "0"


@dataclass(frozen=True, slots=True)
class Udf:
    """A function, and the plugin that workers load it from."""

    name: str
    argument_types: tuple[pa.DataType, ...]
    return_type: pa.DataType
    function: Callable[..., Any]
    volatile: bool
    origin: PluginOrigin

    @property
    def spark_name(self) -> str:
        return WORKER_CALL + self.name


_functions: dict[str, Udf] = {}


def add_function(udf: Udf) -> None:
    """Make a function available in SQL. Raises UserError if its types have no counterpart in a pipeline."""
    from streamling.formats.arrow import logical_type

    if not udf.name.isidentifier() or not udf.name.isascii():
        raise UserError(PLUGIN_NOT_LOADED, f"function '{udf.name}': the name must consist of letters, digits and '_'")
    if not callable(udf.function):
        raise UserError(PLUGIN_NOT_LOADED, f"function '{udf.name}': {udf.function!r} cannot be called")
    try:
        arguments = [logical_type(t, f"argument {n}") for n, t in enumerate(udf.argument_types, 1)]
        result = logical_type(udf.return_type, "result")
    except (UserError, TypeError, AttributeError) as error:
        message = f"function '{udf.name}': its types must be Arrow types that a pipeline has: {error}"
        raise UserError(PLUGIN_NOT_LOADED, message) from error
    _functions[udf.name] = udf
    ADDED[udf.name] = lambda node: _sql_function(udf, arguments, result, node)


def remove_function(name: str) -> None:
    del _functions[name], ADDED[name]


def registered_functions() -> list[Udf]:
    return list(_functions.values())


def _sql_function(udf: Udf, arguments: Sequence[DataType], result: DataType, node: str) -> Function:
    nulls = {cast_to(NULL_VALUE, computed_type(type_)).text for type_ in arguments}

    def build(values: Sequence[Value]) -> Value:
        marks = "".join(_LITERAL if value.constant is not None or value.text in nulls else _COLUMN for value in values)
        # The call carries what only the planner knows: which arguments are literals, and the node that has the call.
        texts = [string_literal(f"{marks}:{node}"), *(value.text for value in values)]
        return Value(f"{udf.spark_name}({', '.join(texts)})", result)

    usage = f"{udf.name}({', '.join(str(type_) for type_ in arguments)})"
    return Function(usage, tuple(_parameter(type_) for type_ in arguments), build, plugin=udf.name)


def _parameter(type_: DataType) -> Parameter:
    computed = computed_type(type_)

    def admit(value: Value) -> Value:
        is_wider = common_type(value.type, computed) == computed and (value.type != STRING or computed == STRING)
        is_literal_integer = isinstance(value.constant, int) and is_integer(value.type) and is_integer(computed)
        if not is_wider and not is_literal_integer:
            raise Refusal(f"expected {type_}, got {value.type}")
        return replace(cast_to(value, computed), constant=value.constant)

    return Parameter(str(type_), admit)


@dataclass(frozen=True, slots=True)
class Call:
    """A function as workers get it: picklable, looked up by name."""

    name: str
    origin: PluginOrigin

    def __call__(self, marks: pa.Array, *columns: pa.Array) -> pa.Array:
        """The values for a batch of rows. Raises StreamlingError that names function and node."""
        import pyarrow as pa

        from streamling.formats.arrow import arrow_type, logical_type

        udf = self._loaded_udf()
        carrier = arrow_type(logical_type(udf.return_type, "result"))
        if not len(marks):
            return pa.array([], carrier)
        literals, _, node = str(marks[0].as_py()).partition(":")
        arguments = [
            column[0].cast(type_) if mark == _LITERAL else column.cast(type_)
            for mark, column, type_ in zip(literals, columns, udf.argument_types, strict=True)
        ]
        try:
            return self._compute(udf, arguments, len(marks), alone=_COLUMN not in literals).cast(carrier)
        except StreamlingError as error:
            error.node = error.node or node
            raise
        except Exception as error:
            text = f"function '{self.name}' of a plugin failed: {message_of(error)}"
            raise PermanentError(PLUGIN_FAILED, text, node=node, cause=error) from error

    def _compute(self, udf: Udf, arguments: Sequence[Any], rows: int, *, alone: bool) -> pa.Array:
        import pyarrow as pa

        if alone and udf.volatile:
            values = [_single(udf.function(*arguments)) for _ in range(rows)]
            return pa.array(values, udf.return_type)
        if alone:
            return pa.repeat(pa.scalar(_single(udf.function(*arguments)), udf.return_type), rows)
        result = udf.function(*arguments)
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        if isinstance(result, pa.Scalar):
            result = pa.repeat(result, rows)
        if not isinstance(result, pa.Array):
            message = f"function '{self.name}' of a plugin returned {type(result).__name__}, not a pyarrow array"
            raise PermanentError(PLUGIN_FAILED, message)
        if len(result) != rows:
            message = f"function '{self.name}' of a plugin returned {len(result)} values for {rows} rows"
            raise PermanentError(PLUGIN_FAILED, message)
        return result.cast(udf.return_type)

    def _loaded_udf(self) -> Udf:
        from streamling.plugin.loading import load_again

        if self.name not in _functions:
            load_again(self.origin)
        if self.name not in _functions:
            message = (
                f"function '{self.name}' of a plugin is not registered again when its plugin is loaded by a worker"
            )
            raise PermanentError(PLUGIN_FAILED, message, hint="register it wherever the module is imported")
        return _functions[self.name]


def _single(result: Any) -> Any:
    """The one value that a call with only literals returns: plain, a scalar, or an array of one."""
    import pyarrow as pa

    if isinstance(result, pa.Array | pa.ChunkedArray) and len(result) == 1:
        result = result[0]
    return result.as_py() if isinstance(result, pa.Scalar) else result
