"""`sql`: one SELECT over other nodes. The planner compiles it, Spark runs it."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from streamling.connector import Kind, register
from streamling.spec.pipeline import Role
from streamling.spec.pipeline.options import Parallel, RequiredKey, TransformOptions


class WhenFilteredOut(StrEnum):
    DROP = "drop"
    DELETE = "delete"


class SqlOptions(Parallel, RequiredKey, TransformOptions):
    """A stateless query: filter, compute, rename, unnest, union, join lookups."""

    reads_by_query: ClassVar[bool] = True

    sql: str = Field(min_length=1, description="One SELECT; the tables it reads are nodes of the pipeline.")
    when_filtered_out: WhenFilteredOut = Field(
        default=WhenFilteredOut.DROP,
        description="What happens to an update or a delete that does not match the `WHERE`, or a row of a lookup in a "
        "`JOIN`: drop it, or turn it into the delete of its key. An insert that does not match is always dropped. "
        "Written explicitly, `drop` also turns the warning off.",
    )

    @property
    def deletes_unmatched(self) -> bool:
        return self.when_filtered_out is WhenFilteredOut.DELETE

    @property
    def drops_knowingly(self) -> bool:
        return "when_filtered_out" in self.model_fields_set and not self.deletes_unmatched


register(Kind(Role.TRANSFORM, "sql", SqlOptions, compiled=True))
