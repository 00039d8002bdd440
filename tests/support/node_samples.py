"""Loads single nodes, as the tests of their options need them."""

from __future__ import annotations

import textwrap

from streamling.connector import kinds
from streamling.errors import StreamlingError
from streamling.plan.types import OPERATION_FIELD, DataType, Field, Schema
from streamling.spec.pipeline import NodeSpec, PipelineSpec, load_pipeline


def loaded(text: str) -> PipelineSpec:
    pipeline = load_pipeline(text, "p.yaml", kinds.kinds())
    assert pipeline.problems == ()
    return pipeline


def section(role: str, fields: str) -> str:
    """A pipeline with the one node `n`. Its fields begin in line 3, column 5."""
    nodes = {name: f"{name}: {{}}\n" for name in ("sources", "transforms", "sinks")}
    own = f"{role}s:\n  n:\n{textwrap.indent(textwrap.dedent(fields), '    ')}\n"
    return own + "".join(text for name, text in nodes.items() if name != f"{role}s")


def node(role: str, fields: str) -> NodeSpec:
    (only,) = loaded(section(role, fields)).nodes
    return only


def problems(role: str, fields: str) -> list[StreamlingError]:
    found = load_pipeline(section(role, fields), "p.yaml", kinds.kinds()).problems
    assert found
    return list(found)


def problem(role: str, fields: str) -> tuple[str, int, str]:
    """Code, line and message of the only problem."""
    (only,) = problems(role, fields)
    assert only.where is not None
    return only.code, only.where.line, only.message


def columns(**types: DataType) -> Schema:
    """Nullable columns and the operation."""
    return Schema((*(Field(name, type_) for name, type_ in types.items()), OPERATION_FIELD))
