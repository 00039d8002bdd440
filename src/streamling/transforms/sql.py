"""`sql`: one SELECT over other nodes. The planner compiles it, Spark runs it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from streamling.connector import Kind, register
from streamling.spec.pipeline import Role
from streamling.spec.pipeline.options import Parallel, RequiredKey, TransformOptions


class SqlOptions(Parallel, RequiredKey, TransformOptions):
    """A stateless query: filter, compute, rename, unnest, union."""

    reads_by_query: ClassVar[bool] = True

    sql: str = Field(min_length=1, description="One SELECT; the tables it reads are nodes of the pipeline.")


register(Kind(Role.TRANSFORM, "sql", SqlOptions, compiled=True))
