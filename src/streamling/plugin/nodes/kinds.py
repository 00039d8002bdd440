"""The kinds of nodes that plugins add: what the planner learns about them before they run.

The planner makes an instance of a plugin, asks for its schema and ends it at once, or, if the plugin is partitioned,
calls its `describe`. Neither touches the outside world.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import PrivateAttr

from streamling.connector import Kind
from streamling.errors import (
    KEY_REQUIRED,
    PLACEMENT,
    PLUGIN_REFUSED,
    SCHEMA_UNUSABLE,
    StreamlingError,
    UserError,
)
from streamling.plan.contract import Finding, Key
from streamling.plan.types import OPERATION_COLUMN, STRING, Schema
from streamling.plugin.application import Application, no_state
from streamling.plugin.bases import ByColumns, ByPrimaryKey, Description
from streamling.plugin.context import PluginContext
from streamling.plugin.failures import message_of
from streamling.plugin.nodes.instance import resolve
from streamling.spec.pipeline import NodeSpec, Role
from streamling.spec.pipeline.options import NodeOptions
from streamling.spec.pipeline.plugin_options import (
    PluginOptions,
    PluginSinkOptions,
    PluginSourceOptions,
    PluginTransformOptions,
)
from streamling.spec.settings import Settings

if TYPE_CHECKING:
    from streamling.connector import Sink, Source, Transform
    from streamling.plugin.registration import Registration


@dataclass(frozen=True, slots=True)
class PluginAnswer:
    """What a plugin says about a node; `description` for partitioned plugins only."""

    columns: Schema | None
    description: Description | None
    bounded: bool = False
    """The source says that it ends by itself."""


class PluginNode(PluginOptions):
    """Mix-in: what all nodes of plugins tell the planner."""

    registration: ClassVar[Registration]
    _application: Application = PrivateAttr(default_factory=Application)

    def model_post_init(self, context: object) -> None:
        """`context` are the settings that the pipeline was read with, if there are any."""
        if isinstance(context, Settings):
            self._application = Application.of(context)

    @property
    def application(self) -> Application:
        return self._application

    def effective_options(self) -> dict[str, str]:
        """The options as the plugin gets them: its own settings override the pipeline file."""
        return self.application.options_for(self.registration.id, self.plugin_options())

    def ask_plugin(self, node: NodeSpec, rows: Schema | None) -> PluginAnswer:
        """Raises UserError with the position of the node, or of the option that the plugin names."""
        try:
            return _ask(self, node, rows)
        except _MethodFailed as failed:
            raise self.refusal(node, failed.error, failed.method) from failed.error
        except StreamlingError as error:
            if error.where is not None:
                raise
            raise self.refusal(node, error) from error
        except Exception as error:
            raise self.refusal(node, error) from error

    def refusal(self, node: NodeSpec, error: BaseException, method: str | None = None) -> UserError:
        """`method` raised the error; None: the constructor."""
        options = self.effective_options()
        key = error.args[0] if isinstance(error, KeyError) and error.args else None
        if isinstance(key, str) and key not in options:
            return node.error(PLUGIN_REFUSED, f"the option '{key}' is missing")
        message = f"{method} failed: {message_of(error)}" if method else message_of(error)
        condition = error.condition if isinstance(error, UserError) else PLUGIN_REFUSED
        named = next((name for name in options if re.search(rf"\b{re.escape(name)}\b", message)), None)
        path = () if named is None else (named,) if node.tree.get(named) is not None else ("options", named)
        return node.error(condition, message, *path, hint=getattr(error, "hint", None))

    def width(self, node: NodeSpec, rows: Schema | None, key: Key, upstream: int) -> int:
        """How many instances there are; `upstream` is the width of the input. Raises UserError."""
        parallelism: int | None = self.streams
        description = self.ask_plugin(node, rows).description if self.registration.partitioned else None
        if description is None:
            if parallelism is not None and parallelism > 1:
                message = f"'parallelism' is {parallelism}, but the plugin is not partitioned and runs as one stream"
                raise node.error(PLACEMENT, message, "parallelism", hint="remove 'parallelism'")
            return 1
        width = parallelism or ((description.preferred or 1) if node.role is Role.SOURCE else upstream)
        minimum, maximum = description.minimum, description.maximum
        if width < minimum or (maximum is not None and width > maximum):
            allowed = f"{minimum} to {maximum}" if maximum is not None else f"at least {minimum}"
            message = f"would run on {width} streams; the plugin allows {allowed}"
            raise node.error(PLACEMENT, message, "parallelism", hint="set 'parallelism'")
        if node.role is not Role.SOURCE and width > 1:
            _check_placement(node, description, rows, key)
        return width


class _SourceNode(PluginNode, PluginSourceOptions):
    """A source of a plugin."""

    def output_schema(self, node: NodeSpec) -> Schema | None:
        return self.ask_plugin(node, None).columns


class _TransformNode(PluginNode, PluginTransformOptions):
    """A transform of a plugin."""

    def reshaped(self, node: NodeSpec, rows: Schema) -> Schema:
        columns = self.ask_plugin(node, rows).columns
        return rows if columns is None else columns


class _SinkNode(PluginNode, PluginSinkOptions):
    """A sink of a plugin."""

    def check_columns(self, node: NodeSpec, columns: Schema, key: Key) -> Iterator[Finding]:  # type: ignore[override]
        yield from super().check_columns(node, columns, key)
        if self.registration.partitioned:
            return  # the planner also asks for its width, where it is refused
        try:
            self.ask_plugin(node, columns)
        except UserError as error:
            yield error


_MODELS: dict[Role, type[PluginNode]] = {
    Role.SOURCE: _SourceNode,
    Role.TRANSFORM: _TransformNode,
    Role.SINK: _SinkNode,
}


def node_kind(registration: Registration) -> Kind:
    """The kind of node that a plugin adds."""
    role = registration.kind.role
    if role is None:
        raise AssertionError(registration)
    model: type[NodeOptions] = type(
        f"{role.value.capitalize()}Of{registration.target.__name__}",
        (_MODELS[role],),
        {"__module__": __name__, "__doc__": registration.doc, "registration": registration},
    )
    options = dict(getattr(registration.target, "sample_options", {}))
    samples = {"options": options} if options else {}
    return Kind(role, registration.id, model, _build, samples=samples)


def plugin_node(node: NodeSpec) -> PluginNode:
    if not isinstance(node.options, PluginNode):
        raise TypeError(node.options)
    return node.options


def _build(node: NodeSpec, settings: Settings) -> Source | Transform | Sink:
    from streamling.plugin.nodes import processor, sink, source, transform

    options = plugin_node(node)
    match node.role:
        case Role.SOURCE:
            return source.PluginSource(node, options)
        case Role.TRANSFORM:
            if options.registration.stateless:
                return processor.StatelessTransform(node, options)
            return transform.PluginTransform(node, options)
        case Role.SINK:
            return sink.PluginSink(node, options)


class _MethodFailed(Exception):
    """A method of a plugin raised `error` while the node was planned."""

    def __init__(self, method: str, error: Exception) -> None:
        super().__init__(method, error)
        self.method = method
        self.error = error


def _answer(plugin: Any, method: str, *arguments: object) -> Any:
    try:
        return resolve(getattr(plugin, method)(*arguments))
    except Exception as error:
        raise _MethodFailed(method, error) from error


def _ask(plugin_options: PluginNode, node: NodeSpec, rows: Schema | None) -> PluginAnswer:
    from streamling.formats.exchange import exchange_schema

    registration, options = plugin_options.registration, plugin_options.effective_options()
    input_schema = exchange_schema(rows) if rows is not None else None
    if registration.partitioned:
        description = _answer(registration.target, "describe", options, input_schema)
        if not isinstance(description, Description):
            raise TypeError(f"describe returned {type(description).__name__}, not a Description")
        schema = description.output_schema if node.role is not Role.SINK else None
        return PluginAnswer(
            _columns(node, schema, rows) if node.role is not Role.SINK else None, description, description.bounded
        )
    application_id = plugin_options.application.id
    context = PluginContext(node.ref, application_id=application_id, input_schema=input_schema, store=no_state)
    plugin = registration.target(context, options)
    try:
        columns = None if node.role is Role.SINK else _columns(node, _answer(plugin, "output_schema"), rows)
    except Exception:
        with suppress(_MethodFailed):  # the first error tells more
            _end(plugin)
        raise
    _end(plugin)
    return PluginAnswer(columns, None, bool(getattr(plugin, "bounded", False)))


def _end(plugin: Any) -> None:
    if callable(getattr(plugin, "terminate", None)):
        _answer(plugin, "terminate")


def _columns(node: NodeSpec, schema: Any, rows: Schema | None) -> Schema:
    import pyarrow as pa

    from streamling.formats.exchange import columns_of

    if not isinstance(schema, pa.Schema):
        raise node.error(SCHEMA_UNUSABLE, f"output_schema returned {type(schema).__name__}, not a pyarrow.Schema")
    try:
        columns = columns_of(schema, rows)
    except UserError as error:
        raise node.error(SCHEMA_UNUSABLE, f"output_schema: {error.message}") from error
    operation = columns.get(OPERATION_COLUMN)
    if operation is None:
        message = f"output_schema has no column '{OPERATION_COLUMN}'; it has: {', '.join(columns.names) or 'none'}"
        raise node.error(SCHEMA_UNUSABLE, message, hint=f'add pa.field("{OPERATION_COLUMN}", pa.string(), False)')
    if schema.field(OPERATION_COLUMN).type not in (pa.string(), pa.large_string(), pa.string_view()):
        raise node.error(SCHEMA_UNUSABLE, f"'{OPERATION_COLUMN}' must be text, not {operation.type or STRING}")
    twice = [name for name in columns.names if columns.names.count(name) > 1]
    if twice:
        raise node.error(SCHEMA_UNUSABLE, f"output_schema has the column '{twice[0]}' twice")
    return Schema((*(field for field in columns if field != operation), operation))


def _check_placement(node: NodeSpec, description: Description, rows: Schema | None, key: Key) -> None:
    if isinstance(description.placement, ByPrimaryKey) and not key:
        message = "the plugin distributes rows to its streams by primary key, and there is none"
        raise node.error(KEY_REQUIRED, message, hint="set primary_key")
    if isinstance(description.placement, ByColumns) and rows is not None:
        missing = [column for column in description.placement.columns if column not in rows]
        if missing:
            message = f"the plugin distributes rows by the column '{missing[0]}', which the input does not have"
            raise node.error(PLACEMENT, message)
