"""The pipeline file: from text to nodes with typed options."""

from streamling.spec.pipeline.loader import Absent, Kinds, load_pipeline, read_pipeline
from streamling.spec.pipeline.nodes import NodeSpec, OptionsModel, PipelineSpec, Role, describe_node, in_file_order
from streamling.spec.pipeline.text import PipelineText, pipeline_text

__all__ = [
    "Absent",
    "Kinds",
    "NodeSpec",
    "OptionsModel",
    "PipelineSpec",
    "PipelineText",
    "Role",
    "describe_node",
    "in_file_order",
    "load_pipeline",
    "pipeline_text",
    "read_pipeline",
]
