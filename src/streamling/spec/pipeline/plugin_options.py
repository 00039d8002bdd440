"""The fields of plugin nodes: the runtime's own are typed, all others belong to the plugin.

A plugin gets one flat map of text to text. Its options stand on the node, under `options:`, or both; on the same key
the node wins. What the runtime owns does not reach the plugin, wherever it is written.
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
    Reading,
    SinkOptions,
    SourceOptions,
    TransformOptions,
)

if TYPE_CHECKING:
    from streamling.spec.pipeline import NodeSpec


# Of several bases the last one decides, so each model says it itself.
_OPEN = ConfigDict(extra="allow")


class PluginOptions(NodeOptions):
    """Mix-in: fields that no model knows are options of the plugin."""

    identity_labels = ("type",)
    opaque = ("options",)
    owned: ClassVar[tuple[str, ...]] = ("type", "primary_key", "telemetry", "parallelism")
    """Names that never reach the plugin. `on_error` and `dead_letter` are the runtime's on the node only."""

    options: dict[str, JsonValue] = Field(
        default_factory=dict, description="Options of the plugin; those written on the node itself come before them."
    )

    @field_validator("options", mode="before")
    @classmethod
    def _empty_options(cls, value: object) -> object:
        return {} if value is None else value

    def plugin_options(self) -> dict[str, str]:
        """What the plugin gets: scalars as text, lists and maps as JSON. An empty value is none."""
        given: dict[str, JsonValue] = {name: value for name, value in self.options.items() if name not in self.owned}
        given |= {name: value for name, value in (self.model_extra or {}).items() if value is not None}
        return {name: _text(value) for name, value in given.items() if value is not None}

    def check_columns(self, node: NodeSpec, columns: Iterable[object], key: tuple[str, ...]) -> Iterator[Caution]:
        """Nothing about columns: says which options the plugin will not see."""
        for name in self.options:
            if name in self.owned:
                message = f"'options.{name}' has no effect: '{name}' belongs to the runtime"
                yield node.caution(INVALID_VALUE, message, "options", name, hint=f"write '{name}' on the node itself")


class PluginSourceOptions(PluginOptions, Parallel, Keyed, SourceOptions):
    """A source of a plugin."""

    model_config = _OPEN


class PluginTransformOptions(PluginOptions, Parallel, Batched, Keyed, Reading, TransformOptions):
    """A transform of a plugin."""

    model_config = _OPEN
    owned = (*PluginOptions.owned, "from", "batch_size", "batch_flush_interval")


class PluginSinkOptions(PluginOptions, Parallel, Batched, SinkOptions):
    """A sink of a plugin. Its key, if it stands on the node, is an option too."""

    model_config = _OPEN
    owned = PluginTransformOptions.owned

    def plugin_options(self) -> dict[str, str]:
        given = super().plugin_options()
        return given | ({"primary_key": ",".join(self.primary_key)} if self.primary_key else {})


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
