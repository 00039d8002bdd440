"""What authors of plugins see.

Plugins are classes with the methods of `SourcePlugin`, `TransformPlugin`, `SinkPlugin` and their like, made known with
`register_source` and so on. Connectors of the engine's own contract are written with `streamling.connector`.
Importing this loads neither Spark nor Arrow.
"""

from streamling.plugin.bases import (
    ByColumns,
    ByPrimaryKey,
    Description,
    PluginError,
    PreprocessorPlugin,
    RoundRobin,
    SideOutputPlugin,
    SinkPlugin,
    SourcePlugin,
    TransformPlugin,
)
from streamling.plugin.context import PluginContext, Recorder, State
from streamling.plugin.registration import (
    register_preprocessor,
    register_side_output,
    register_sink,
    register_source,
    register_transform,
    register_udf,
)

__all__ = [
    "ByColumns",
    "ByPrimaryKey",
    "Description",
    "PluginContext",
    "PluginError",
    "PreprocessorPlugin",
    "Recorder",
    "RoundRobin",
    "SideOutputPlugin",
    "SinkPlugin",
    "SourcePlugin",
    "State",
    "TransformPlugin",
    "register_preprocessor",
    "register_side_output",
    "register_sink",
    "register_source",
    "register_transform",
    "register_udf",
]
