"""The fields of plugin nodes: those of the runtime are typed, all others belong to the plugin.

A plugin gets one flat map of text to text. Its options are written on the node, under `options:`, or both; if a key is
in both, the one on the node counts. Fields of the runtime are never passed to the plugin, wherever they are written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar

from pydantic import ConfigDict, Field, JsonValue, field_validator

from streamling.errors import INVALID_VALUE, Caution
from streamling.spec.pipeline.options import (
    Batched,
    Keyed,
    NodeOptions,
    Parallel,
    ReadsNode,
    SinkOptions,
    SourceOptions,
    TransformOptions,
)

if TYPE_CHECKING:
    from streamling.spec.pipeline import NodeSpec


# With several bases the configuration of the last one counts, so each model sets it again.
_OPEN = ConfigDict(extra="allow")


class PluginOptions(NodeOptions):
    """Mix-in: fields that the model does not have are options of the plugin."""

    identity_labels = ("type",)
    opaque = ("options",)
    owned: ClassVar[tuple[str, ...]] = ("type", "primary_key", "telemetry", "parallelism")
    """Names that are never passed to the plugin. `on_error` and `dead_letter` are passed if they are in `options`."""

    options: dict[str, JsonValue] = Field(
        default_factory=dict, description="Options of the plugin; an option on the node itself overrides the one here."
    )

    @field_validator("options", mode="before")
    @classmethod
    def _empty_options(cls, value: object) -> object:
        return {} if value is None else value

    def plugin_options(self) -> dict[str, str]:
        """The options as the plugin gets them: scalars as text, lists and maps as JSON; empty values are dropped."""
        options: dict[str, JsonValue] = {name: value for name, value in self.options.items() if name not in self.owned}
        options |= {name: value for name, value in (self.model_extra or {}).items() if value is not None}
        return {name: _text(value) for name, value in options.items() if value is not None}

    def check_columns(self, node: NodeSpec, columns: Iterable[object], key: tuple[str, ...]) -> Iterator[Caution]:
        """Checks no columns; warns of options that will not be passed to the plugin."""
        for name in self.options:
            if name in self.owned:
                message = f"'options.{name}' has no effect: '{name}' is a field of the runtime"
                yield node.caution(INVALID_VALUE, message, "options", name, hint=f"write '{name}' on the node itself")


class PluginSourceOptions(PluginOptions, Parallel, Keyed, SourceOptions):
    """A source of a plugin."""

    model_config = _OPEN


class PluginTransformOptions(PluginOptions, Parallel, Batched, Keyed, ReadsNode, TransformOptions):
    """A transform of a plugin."""

    model_config = _OPEN
    owned = (*PluginOptions.owned, "from", "batch_size", "batch_flush_interval")


class PluginSinkOptions(PluginOptions, Parallel, Batched, SinkOptions):
    """A sink of a plugin. A key on the node is passed to the plugin as an option, too."""

    model_config = _OPEN
    owned = PluginTransformOptions.owned

    def plugin_options(self) -> dict[str, str]:
        options = super().plugin_options()
        return options | ({"primary_key": ",".join(self.primary_key)} if self.primary_key else {})


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
