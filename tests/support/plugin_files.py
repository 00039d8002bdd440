"""Plugins in files, and pipelines that use them, checked as `validate` does."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from streamling.engine.preparation import check
from streamling.errors import InvalidPipeline, StreamlingError
from streamling.plan.pipeline import Plan
from streamling.spec.settings import Settings
from streamling.spec.settings.blocks import Plugin

HEAD = """
import pyarrow as pa
from streamling.plugin import *

NUMBERS = pa.schema([pa.field("id", pa.int64(), False), pa.field("_gs_op", pa.string(), False)])
"""

NUMBERS = """
@register_source("numbers")
class Numbers(SourcePlugin):
    '''Rows that are numbered.'''
    def output_schema(self):
        return NUMBERS
    def generate_batch(self):
        return None
"""


def settings(path: Path | None = None, **plugin: object) -> Settings:
    return Settings(plugin=Plugin.model_validate({"path": str(path) if path else None, **plugin}))


def write_plugin(directory: Path, text: str, name: str = "own.py") -> Path:
    file = directory / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(HEAD + textwrap.dedent(text))
    return file


def checked(directory: Path, pipeline: str, **plugin: object) -> Plan:
    """The plan of a pipeline over the plugins of `directory`."""
    file = directory / "pipeline.yaml"
    file.write_text(textwrap.dedent(pipeline))
    return check(file, settings(directory, **plugin), probe=False)


def problems(directory: Path, pipeline: str, **plugin: object) -> list[StreamlingError]:
    with pytest.raises(InvalidPipeline) as found:
        checked(directory, pipeline, **plugin)
    return list(found.value.problems)
